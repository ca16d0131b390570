/* family.c - describes the pipeline of Z-Image and Z-Image-Turbo */
#include "families/family.h"

#include "families/zimage/keys.h"

extern const xd_dit xd_dit_zimage;

/* The chat template of Qwen3 with one message of the user and the start of the answer. The answer
 * does not begin with an empty thought, because thinking is enabled by default. */
static const char chat[] = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n";

static const int layers[] = { -2 };

#define QWEN3 \
    { { .folder = "text_encoder", .tokenizer = "tokenizer", .slot = "llm", \
        .rows = XD_ROWS_BELOW, .pad = XD_PAD_NONE, .layers = layers, .nlayers = 1, \
        .frame = chat } }

static const xd_recipe controlnet;

/* This recipe has the text encoders, defaults and rules of diffusers' ZImagePipeline.__call__ and
 * ZImageImg2ImgPipeline. */
static const xd_recipe zimage = {
    .name = "z-image",
    .pipelines = { "ZImagePipeline", "ZImageImg2ImgPipeline", "ZImageInpaintPipeline" },
    .mask_strength = 1,
    .dit = "transformer",
    .vae = "vae",
    .text = QWEN3,
    .ntext = 1,
    .steps = 50,
    .guidance = 5,
    .max_text = 512,
    .own_sigmas = XD_OWN_ALWAYS,
    .max_shift = 1.15,
    .guides_from_prompt = 1,
    .with_sides = &controlnet,
};

/* This recipe has the text encoders, defaults and rules of diffusers'
 * ZImageControlNetPipeline.__call__ and ZImageControlNetInpaintPipeline. */
static const xd_recipe controlnet = {
    .name = "z-image-controlnet",
    .pipelines = { "ZImageControlNetPipeline", "ZImageControlNetInpaintPipeline" },
    .mask_strength = 1,
    .dit = "transformer",
    .vae = "vae",
    .text = QWEN3,
    .ntext = 1,
    .steps = 50,
    .guidance = 5,
    .max_text = 512,
    .own_sigmas = XD_OWN_ALWAYS,
    .max_shift = 1.15,
    .guides_from_prompt = 1,
    .side_scale = 0.75,
};

/* ---- models and example scripts of xDiT ----------------------------------------------------- */

static const xd_xdit_model xdit_models[] = {
    { .title = "Z-Image",
      .scripts = "zimage_example ray_zimage_example",
      .pipeline = "ZImagePipeline",
      .own = "z-image",
      .cell = 8,
      .patch = 2,
      .can = XD_CAN_CFG | XD_CAN_USP | XD_HAS_GUIDANCE | XD_HAS_PADDED_HEADS },
    { .title = "Z-Image Turbo",
      .names = "Z-Image-Turbo",
      .pipeline = "ZImageTurbo",
      .own = "z-image",
      .cell = 8,
      .patch = 2,
      .can = XD_CAN_USP | XD_CAN_FSDP | XD_HAS_PADDED_HEADS,
      .steps = "9",
      .guidance = "0" },
    { .title = "Z-Image",
      .names = "Z-Image",
      .pipeline = "ZImage",
      .own = "z-image",
      .cell = 8,
      .patch = 2,
      .can = XD_CAN_CFG | XD_CAN_USP | XD_CAN_FSDP | XD_HAS_PADDED_HEADS,
      .steps = "50",
      .guidance = "4" },
    { .title = NULL },
};

static const xd_xdit_net xdit_nets[] = {
    { "Z-Image", 30, 34, 0 },
    { .name = NULL },
};

static const xd_xdit_name xdit_names[] = {
    { "Z-Image", "Tongyi-MAI/Z-Image" },
    { "Z-Image-Turbo", "Tongyi-MAI/Z-Image-Turbo" },
    { .name = NULL },
};

static const xd_xdit_rows xdit_rows = { .models = xdit_models,
                                        .nets = xdit_nets,
                                        .names = xdit_names };

extern const xd_family xd_family_zimage;

const xd_family xd_family_zimage = {
    .title = "Z-Image",
    .dits = XD_LIST(xd_dit, &xd_dit_zimage),
    .recipes = XD_LIST(xd_recipe, &zimage, &controlnet),
    .key_maps = xd_zimage_key_maps,
    .lora_names = xd_zimage_lora_names,
    .xdit = &xdit_rows,
    .examples = { .layers = "30,2",
                  .file = "z_image_turbo_bf16.safetensors",
                  .hub = "Tongyi-MAI/Z-Image-Turbo" },
};
