/* family.c - describes the pipelines of FLUX.1, and the image sizes of FLUX.1 Kontext */
#include <math.h>

#include "families/family.h"
#include "families/flux/keys.h"

extern const xd_dit xd_dit_flux;

enum { CLIP_IDS = 77 }; /* max tokens of a CLIP text encoder */
enum { MEGAPIXEL = 1024 * 1024 };

/* The prior is that of FLUX.1 Redux, as in diffusers' FluxPriorReduxPipeline. */
#define CLIP_T5_AND_PRIOR \
    { { .folder = "text_encoder", .tokenizer = "tokenizer", .slot = "clip_l", \
        .rows = XD_ROWS_NONE, .pad = CLIP_IDS, .pooled = 1 }, \
      { .folder = "text_encoder_2", .tokenizer = "tokenizer_2", .slot = "t5xxl", \
        .rows = XD_ROWS_BELOW, .pad = XD_PAD_MOST, .prompt = 1 }, \
      { .folder = "image_encoder", .processor = "feature_extractor", .slot = "clip_vision", \
        .rows = XD_ROWS_NONE, .prior = 1 }, \
      { .folder = "image_embedder", .slot = "image_embedder", \
        .rows = XD_ROWS_BELOW, .follows = 1, .prior = 1 } }

static const xd_recipe control, controlnet;

/* This recipe has the text encoders, defaults and rules of diffusers' FluxPipeline.__call__,
 * FluxImg2ImgPipeline and FluxInpaintPipeline. CLIP is used only for the pooled text embedding. */
static const xd_recipe flux = {
    .name = "flux",
    .pipelines = { "FluxPipeline", "FluxImg2ImgPipeline", "FluxInpaintPipeline" },
    .dit = "transformer",
    .vae = "vae",
    .text = CLIP_T5_AND_PRIOR,
    .ntext = 4,
    .steps = 28,
    .guidance = 3.5,
    .max_text = 512,
    .most_text = 512,
    .distilled = 1,
    .own_sigmas = XD_OWN_BUT_FLOW_TEXT,
    .packed = 1,
    .max_shift = 1.15,
    .with_control_lora = &control,
    .with_sides = &controlnet,
    .of_image = { .guidance = 7 },
    .of_mask = { .guidance = 7 },
};

/* This recipe has the text encoders, defaults and rules of diffusers' FluxFillPipeline.__call__. */
static const xd_recipe fill = {
    .name = "flux-fill",
    .pipelines = { "FluxFillPipeline" },
    .dit = "transformer",
    .vae = "vae",
    .text = CLIP_T5_AND_PRIOR,
    .ntext = 4,
    .steps = 50,
    .guidance = 30,
    .max_text = 512,
    .most_text = 512,
    .distilled = 1,
    .own_sigmas = XD_OWN_ALWAYS,
    .packed = 1,
    .max_shift = 1.15,
    .role = XD_ROLE_MASK,
    .needs_image = 1,
    .mask_strength = 1,
};

/* This recipe has the text encoders, defaults and rules of diffusers'
 * FluxControlPipeline.__call__, FluxControlImg2ImgPipeline and FluxControlInpaintPipeline. */
static const xd_recipe control = {
    .name = "flux-control",
    .pipelines = { "FluxControlPipeline", "FluxControlImg2ImgPipeline",
                   "FluxControlInpaintPipeline" },
    .dit = "transformer",
    .vae = "vae",
    .text = CLIP_T5_AND_PRIOR,
    .ntext = 4,
    .steps = 28,
    .guidance = 3.5,
    .max_text = 512,
    .most_text = 512,
    .distilled = 1,
    .own_sigmas = XD_OWN_ALWAYS,
    .packed = 1,
    .max_shift = 1.15,
    .role = XD_ROLE_CONTROL,
    .of_image = { .guidance = 7 },
    .of_mask = { .guidance = 7 },
};

/* This recipe has the text encoders, defaults and rules of diffusers'
 * FluxControlNetPipeline.__call__, FluxControlNetImg2ImgPipeline and
 * FluxControlNetInpaintPipeline. */
static const xd_recipe controlnet = {
    .name = "flux-controlnet",
    .pipelines = { "FluxControlNetPipeline", "FluxControlNetImg2ImgPipeline",
                   "FluxControlNetInpaintPipeline" },
    .dit = "transformer",
    .vae = "vae",
    .text = CLIP_T5_AND_PRIOR,
    .ntext = 4,
    .steps = 28,
    .guidance = 7,
    .max_text = 512,
    .most_text = 512,
    .distilled = 1,
    .own_sigmas = XD_OWN_ALWAYS,
    .packed = 1,
    .max_shift = 1.15,
    .samples_sides = 1,
};

/* ---- FLUX.1 Kontext ------------------------------------------------------------------------- */

/* Image sizes on which FLUX.1 Kontext was trained (PREFERRED_KONTEXT_RESOLUTIONS in diffusers). */
static const struct {
    int width, height;
} kontext_sizes[] = {
    { 672, 1568 }, { 688, 1504 }, { 720, 1456 },  { 752, 1392 }, { 800, 1328 }, { 832, 1248 },
    { 880, 1184 }, { 944, 1104 }, { 1024, 1024 }, { 1104, 944 }, { 1184, 880 }, { 1248, 832 },
    { 1328, 800 }, { 1392, 752 }, { 1456, 720 },  { 1504, 688 }, { 1568, 672 },
};

/* Replaces a size by one of the sizes on which the model was trained: the size with the nearest
 * ratio of width to height. If two ratios are equally near, uses the narrower size. The pipeline's
 * max_area limits the size of the generated image, but not the size of reference images. */
static xd_status kontext_size(int64_t unit, int64_t area, int64_t *height, int64_t *width,
                              xd_err *e)
{
    double ratio = (double)*width / (double)*height, best = INFINITY;
    (void)area, (void)e;
    for (size_t i = 0; i < sizeof kontext_sizes / sizeof *kontext_sizes; i++) {
        int    w = kontext_sizes[i].width, h = kontext_sizes[i].height;
        double off = fabs(ratio - (double)w / (double)h);
        if (off < best)
            best = off, *height = h / unit * unit, *width = w / unit * unit;
    }
    return XD_OK;
}

/* This recipe has the text encoders, defaults and rules of diffusers'
 * FluxKontextPipeline.__call__. */
static const xd_recipe kontext = {
    .name = "flux-kontext",
    .pipelines = { "FluxKontextPipeline" },
    .dit = "transformer",
    .vae = "vae",
    .text = CLIP_T5_AND_PRIOR,
    .ntext = 4,
    .steps = 28,
    .guidance = 3.5,
    .max_text = 512,
    .most_text = 512,
    .distilled = 1,
    .own_sigmas = XD_OWN_ALWAYS,
    .packed = 1,
    .max_shift = 1.15,
    .role = XD_ROLE_REFERENCES,
    .references = 1,
    .reference_size = kontext_size,
    .max_area = MEGAPIXEL,
    .auto_resizes = 1,
};

/* ---- models and example scripts of xDiT ----------------------------------------------------- */

static const xd_xdit_model xdit_models[] = {
    { .title = "FLUX.1",
      .scripts = "flux_example flux_usp_example ray_flux_example flux flux_generate flux_service",
      .pipeline = "xFuserFluxPipeline",
      .own = "flux",
      .cell = 16,
      .patch = 1,
      .old_packing = "FLUX",
      .can = XD_CAN_USP | XD_CAN_PP | XD_CAN_TP | XD_CAN_VAE | XD_HAS_ROWS | XD_HAS_GUIDANCE },
    { .title = "FLUX.1 control",
      .scripts = "flux_control_example",
      .pipeline = "xFuserFluxControlPipeline",
      .own = "flux-control",
      .cell = 16,
      .patch = 1,
      .old_packing = "FLUX",
      .can = XD_CAN_USP | XD_CAN_PP | XD_CAN_VAE | XD_HAS_ROWS | XD_HAS_GUIDANCE,
      .control_image = "test_imgs/016#.png" },
    { .title = "FLUX.1 Kontext",
      .scripts = "flux_kontext_example",
      .pipeline = "xFuserFluxKontextPipeline",
      .own = "flux-kontext",
      .cell = 16,
      .patch = 1,
      .old_packing = "FLUX",
      .can = XD_CAN_USP | XD_CAN_VAE | XD_HAS_GUIDANCE },
    { .title = "FLUX.1 Kontext",
      .names = "FLUX.1-Kontext",
      .pipeline = "FluxKontext",
      .own = "flux-kontext",
      .cell = 16,
      .patch = 1,
      .old_packing = "FLUX",
      .can = XD_CAN_USP | XD_CAN_VAE | XD_CAN_FSDP,
      .bad_padding = "xFuserFluxTransformer2DWrapper",
      .steps = "50",
      .guidance = "2.5",
      .text = "256" },
    { .title = "FLUX.1",
      .names = "FLUX.1",
      .pipeline = "Flux",
      .own = "flux",
      .cell = 16,
      .patch = 1,
      .old_packing = "FLUX",
      .can = XD_CAN_USP | XD_CAN_PP | XD_CAN_VAE | XD_CAN_FSDP,
      .bad_padding = "xFuserFluxTransformer2DWrapper",
      .steps = "50" },
    { .title = NULL },
};

static const xd_xdit_net xdit_nets[] = {
    { "FLUX.1", 24, 57, 0 },
    { .name = NULL },
};

static const xd_xdit_name xdit_names[] = {
    { "FLUX.1-dev", "black-forest-labs/FLUX.1-dev" },
    { "FLUX.1-Kontext-dev", "black-forest-labs/FLUX.1-Kontext-dev" },
    { .name = NULL },
};

static const xd_xdit_rows xdit_rows = { .models = xdit_models,
                                        .nets = xdit_nets,
                                        .names = xdit_names };

extern const xd_family xd_family_flux;

const xd_family xd_family_flux = {
    .title = "FLUX",
    .dits = XD_LIST(xd_dit, &xd_dit_flux),
    .recipes = XD_LIST(xd_recipe, &flux, &fill, &control, &controlnet, &kontext),
    .key_maps = xd_flux_key_maps,
    .lora_names = xd_flux_lora_names,
    .xdit = &xdit_rows,
    .examples = { .file = "flux1-dev.safetensors",
                  .hub = "black-forest-labs/FLUX.1-dev",
                  .control_image = "FLUX.1-Canny-dev, FLUX.1-Depth-dev",
                  .layers = "2,4" },
};
