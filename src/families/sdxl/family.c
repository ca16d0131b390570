/* family.c - describes the pipeline of Stable Diffusion XL and SDXL Turbo */
#include "families/family.h"
#include "families/sdxl/keys.h"

extern const xd_dit xd_dit_sdxl;

enum { CLIP_IDS = 77 }; /* max tokens of a CLIP text encoder */

/* This recipe has the text encoders, defaults and rules of diffusers'
 * StableDiffusionXLPipeline.__call__, StableDiffusionXLImg2ImgPipeline and
 * StableDiffusionXLInpaintPipeline. */
static const xd_recipe sdxl = {
    .name = "sdxl",
    .pipelines = { "StableDiffusionXLPipeline", "StableDiffusionXLImg2ImgPipeline",
                   "StableDiffusionXLInpaintPipeline" },
    .dit = "unet",
    .vae = "vae",
    .text = { { .folder = "text_encoder",
                .tokenizer = "tokenizer",
                .slot = "clip_l",
                .rows = XD_ROWS_BELOW,
                .pad = CLIP_IDS,
                .penultimate = 1 },
              { .folder = "text_encoder_2",
                .tokenizer = "tokenizer_2",
                .slot = "clip_g",
                .rows = XD_ROWS_BESIDE,
                .pad = CLIP_IDS,
                .penultimate = 1,
                .pooled = 1,
                .prompt = 1 } },
    .ntext = 2,
    .weighs = 1,
    .steps = 50,
    .guidance = 5.0,
    .max_text = CLIP_IDS,
    .most_text = CLIP_IDS,
    .zeros_negative = 1,
    .micro = 1,
    .negative_micro = 1,
    .strength = 0.3,
    .mask_strength = 0.9999,
    .of_mask = { .guidance = 7.5 },
};

/* This recipe has the text encoder, defaults and rules of diffusers'
 * StableDiffusionPipeline.__call__, StableDiffusionImg2ImgPipeline and
 * StableDiffusionInpaintPipeline. */
static const xd_recipe sd = {
    .name = "sd15",
    .pipelines = { "StableDiffusionPipeline", "StableDiffusionImg2ImgPipeline",
                   "StableDiffusionInpaintPipeline" },
    .dit = "unet",
    .vae = "vae",
    .text = { { .folder = "text_encoder",
                .tokenizer = "tokenizer",
                .slot = "clip_l",
                .rows = XD_ROWS_BELOW,
                .pad = CLIP_IDS } },
    .ntext = 1,
    .weighs = 1,
    .steps = 50,
    .guidance = 7.5,
    .max_text = CLIP_IDS,
    .most_text = CLIP_IDS,
    .strength = 0.8,
    .mask_strength = 1,
};

/* ---- models and example scripts of xDiT ----------------------------------------------------- */

static const xd_xdit_model xdit_models[] = {
    { .title = "SDXL",
      .scripts = "sdxl_example",
      .pipeline = "xFuserStableDiffusionXLPipeline",
      .own = "sdxl",
      .cell = 8,
      .patch = 1,
      .can = XD_CAN_CFG | XD_HAS_GUIDANCE | XD_IS_UNET },
    { .title = NULL },
};

static const xd_xdit_rows xdit_rows = { .models = xdit_models };

extern const xd_family xd_family_sdxl;

const xd_family xd_family_sdxl = {
    .title = "Stable Diffusion XL",
    .dits = XD_LIST(xd_dit, &xd_dit_sdxl),
    .recipes = XD_LIST(xd_recipe, &sdxl, &sd),
    .key_maps = xd_sdxl_key_maps,
    .lora_names = xd_sdxl_lora_names,
    .xdit = &xdit_rows,
    .examples = { .hub = "stabilityai/stable-diffusion-xl-base-1.0" },
};
