/* family.c - describes the pipelines of LTX-Video */
#include "families/family.h"

#include "families/ltx/keys.h"

extern const xd_dit xd_dit_ltx;

static const char upsampler[] = "LTXLatentUpsamplerModel";

/* This recipe has the text encoder, defaults and rules of diffusers' LTXPipeline.__call__ and, with
 * an image, LTXImageToVideoPipeline.__call__. T5 reads padding like text; the transformer does not
 * read the rows of padding. */
static const xd_recipe from_held = {
    .name = "ltx",
    .pipelines = { "LTXPipeline", "LTXImageToVideoPipeline" },
    .dit = "transformer",
    .vae = "vae",
    .text = { { .folder = "text_encoder",
                .tokenizer = "tokenizer",
                .slot = "t5xxl",
                .rows = XD_ROWS_BELOW,
                .pad = XD_PAD_MOST,
                .trimmed = 1 } },
    .ntext = 1,
    .steps = 50,
    .guidance = 3,
    .max_text = 128,
    .max_shift = 1.15,
    .own_sigmas = XD_OWN_ALWAYS,
    .decodes_at = 1,
    .upsampler = upsampler,
    .rescales = 1,
    .fps = 25,
    .channels_first = 1,
    .packed = 1,
    .role = XD_ROLE_HELD,
    .samples_held = 1,
};

/* This recipe has the defaults and rules of diffusers' LTXConditionPipeline.__call__. No
 * component reads padding of the text. */
static const xd_recipe from_conditions = {
    .name = "ltx-condition",
    .pipelines = { "LTXConditionPipeline" },
    .dit = "transformer",
    .vae = "vae",
    .text = { { .folder = "text_encoder",
                .tokenizer = "tokenizer",
                .slot = "t5xxl",
                .rows = XD_ROWS_BELOW } },
    .ntext = 1,
    .steps = 50,
    .guidance = 3,
    .max_text = 256,
    .max_shift = 1.15,
    .own_sigmas = XD_OWN_ALWAYS,
    .threshold_noise = 0.025,
    .unshifted = 1,
    .decodes_at = 1,
    .upsampler = upsampler,
    .denoises_part = 1,
    .rescales = 1,
    .fps = 25,
    .channels_first = 1,
    .packed = 1,
    .role = XD_ROLE_CONDITIONS,
    .references = 16,
    .condition_noise = 0.15,
};

extern const xd_family xd_family_ltx;

const xd_family xd_family_ltx = {
    .title = "LTX-Video",
    .dits = XD_LIST(xd_dit, &xd_dit_ltx),
    .recipes = XD_LIST(xd_recipe, &from_held, &from_conditions),
    .key_maps = xd_ltx_key_maps,
    .lora_names = xd_ltx_lora_names,
    .examples = { .file = "ltx-video-2b-v0.9.safetensors",
                  .hub = "Lightricks/LTX-Video",
                  .from_image = "LTX-Video" },
};
