/* family.c - Qwen-Image: its pipeline */
#include "families/family.h"
#include "families/qwenimage/keys.h"

extern const xd_dit xd_dit_qwenimage;

/* The template of Qwen2.5-VL with the pipeline's system message, whose rows are cut off. */
static const char frame[] =
    "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, "
    "quantity, text, spatial relationships of the objects and background:<|im_end|>\n"
    "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n";
enum { FRAME_ROWS = 34 };

/* diffusers: QwenImagePipeline.__call__, QwenImageImg2ImgPipeline. */
static const xd_recipe qwen_image = {
    .name = "qwen-image", .pipelines = { "QwenImagePipeline", "QwenImageImg2ImgPipeline" },
    .dit = "transformer", .vae = "vae",
    .text = { { .folder = "text_encoder", .tokenizer = "tokenizer", .slot = "llm",
                .rows = XD_ROWS_BELOW, .pad = XD_PAD_NONE, .frame = frame,
                .drop = FRAME_ROWS } },
    .ntext = 1,
    .steps = 50, .guidance = 1, .distilled = 1, .true_cfg = 4, .keeps_length = 1,
    .max_text = 512, .most_text = 1024, .own_sigmas = 1, .max_shift = 1.15,
};

/* ---- in xDiT -------------------------------------------------------------------------------- */

static const xd_xdit_model xdit_models[] = {
    { .title = "Qwen-Image-Edit", .names = "Qwen-Image-Edit", .pipeline = "QwenImageEdit",
      .cell = 8, .patch = 2, .can = XD_CAN_USP | XD_CAN_FSDP },
    { .title = "Qwen-Image", .names = "Qwen-Image", .pipeline = "QwenImage", .own = "qwen-image",
      .cell = 8, .patch = 2, .can = XD_CAN_USP | XD_CAN_FSDP },
    { .title = NULL },
};

static const xd_xdit_net xdit_nets[] = {
    { "Qwen-Image", 24, 60, 0 },
    { .name = NULL },
};

static const xd_xdit_name xdit_names[] = {
    { "Qwen-Image", "Qwen/Qwen-Image" },
    { "Qwen-Image-2512", "Qwen/Qwen-Image-2512" },
    { "Qwen-Image-Edit", "Qwen/Qwen-Image-Edit" },
    { "Qwen-Image-Edit-2509", "Qwen/Qwen-Image-Edit-2509" },
    { "Qwen-Image-Edit-2511", "Qwen/Qwen-Image-Edit-2511" },
    { .name = NULL },
};

static const xd_xdit_rows xdit_rows = { .models = xdit_models, .nets = xdit_nets,
                                        .names = xdit_names };

extern const xd_family xd_family_qwenimage;
const xd_family xd_family_qwenimage = {
    .title = "Qwen-Image", .dits = XD_LIST(xd_dit, &xd_dit_qwenimage),
    .recipes = XD_LIST(xd_recipe, &qwen_image),
    .key_maps = xd_qwenimage_key_maps,
    .xdit = &xdit_rows,
    .examples = { .layers = "60", .file = "qwen_image_bf16.safetensors",
                  .hub = "Qwen/Qwen-Image" },
};
