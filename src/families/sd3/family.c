/* family.c - describes the pipeline of Stable Diffusion 3 and 3.5 */
#include "families/family.h"
#include "families/sd3/keys.h"

extern const xd_dit xd_dit_sd3;

enum { CLIP_IDS = 77 }; /* max tokens of a CLIP text encoder */

/* This recipe has the text encoders, defaults and rules of diffusers'
 * StableDiffusion3Pipeline.__call__ and StableDiffusion3Img2ImgPipeline. */
static const xd_recipe sd3 = {
    .name = "sd3",
    .pipelines = { "StableDiffusion3Pipeline", "StableDiffusion3Img2ImgPipeline",
                   "StableDiffusion3InpaintPipeline", "StableDiffusion3ControlNetPipeline" },
    .dit = "transformer",
    .vae = "vae",
    .text = { { .folder = "text_encoder",
                .tokenizer = "tokenizer",
                .slot = "clip_l",
                .rows = XD_ROWS_BELOW,
                .pad = CLIP_IDS,
                .penultimate = 1,
                .pooled = 1 },
              { .folder = "text_encoder_2",
                .tokenizer = "tokenizer_2",
                .slot = "clip_g",
                .rows = XD_ROWS_BESIDE,
                .pad = CLIP_IDS,
                .penultimate = 1,
                .pooled = 1,
                .prompt = 1 },
              { .folder = "text_encoder_3",
                .tokenizer = "tokenizer_3",
                .slot = "t5xxl",
                .rows = XD_ROWS_BELOW,
                .pad = XD_PAD_MOST,
                .optional = 1,
                .prompt = 2 } },
    .ntext = 3,
    .steps = 28,
    .guidance = 7.0,
    .max_text = 256,
    .most_text = 512,
    .max_shift = 1.16,
    .skips_layers = 1,
    .of_image = { .steps = 50 },
    .of_mask = { .steps = 50 },
};

/* ---- models and example scripts of xDiT ----------------------------------------------------- */

static const xd_xdit_model xdit_models[] = {
    { .title = "Stable Diffusion 3",
      .scripts = "sd3_example sd3_ray_example ray_sd3_example",
      .pipeline = "xFuserStableDiffusion3Pipeline",
      .own = "sd3",
      .cell = 8,
      .patch = 2,
      .can = XD_CAN_CFG | XD_CAN_USP | XD_CAN_PP | XD_CAN_VAE | XD_HAS_ROWS | XD_HAS_GUIDANCE },
    { .title = "Stable Diffusion 3.5",
      .names = "stable-diffusion-3.5 SD3.5",
      .pipeline = "StableDiffusion35",
      .own = "sd3",
      .cell = 8,
      .patch = 2,
      .can = XD_CAN_CFG | XD_CAN_USP | XD_CAN_PP | XD_CAN_FSDP | XD_HAS_ROWS,
      .guidance = "3.5" },
    { .title = NULL },
};

static const xd_xdit_net xdit_nets[] = {
    { "stable-diffusion-3.5-large", 38, 38, 0 },
    { "stable-diffusion-3", 24, 24, 0 },
    { .name = NULL },
};

static const xd_xdit_name xdit_names[] = {
    { "SD3.5", "stabilityai/stable-diffusion-3.5-large" },
    { "stable-diffusion-3.5-large", "stabilityai/stable-diffusion-3.5-large" },
    { .name = NULL },
};

static const xd_xdit_rows xdit_rows = { .models = xdit_models,
                                        .nets = xdit_nets,
                                        .names = xdit_names };

extern const xd_family xd_family_sd3;

const xd_family xd_family_sd3 = {
    .title = "Stable Diffusion 3",
    .dits = XD_LIST(xd_dit, &xd_dit_sd3),
    .recipes = XD_LIST(xd_recipe, &sd3),
    .key_maps = xd_sd3_key_maps,
    .lora_names = xd_sd3_lora_names,
    .xdit = &xdit_rows,
};
