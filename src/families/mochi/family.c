/* family.c - describes the pipeline of Mochi 1 */
#include "families/family.h"

#include "families/mochi/keys.h"

extern const xd_dit xd_dit_mochi;

/* This recipe has the text encoder, defaults and rules of diffusers' MochiPipeline.__call__. The
 * transformer and its pool read no padding of the text, and T5's attention does not see padding, so
 * the text is not padded. Diffusers' example writes 30 frames per second. */
static const xd_recipe mochi = {
    .name = "mochi",
    .pipelines = { "MochiPipeline" },
    .dit = "transformer",
    .vae = "vae",
    .text = { { .folder = "text_encoder",
                .tokenizer = "tokenizer",
                .slot = "t5xxl",
                .rows = XD_ROWS_BELOW,
                .pad = XD_PAD_NONE } },
    .ntext = 1,
    .steps = 64,
    .guidance = 4.5,
    .max_text = 256,
    .max_shift = 1.15,
    .own_sigmas = XD_OWN_ALWAYS,
    .threshold_noise = 0.025,
    .rising = 1,
    .fps = 30,
    .channels_first = 1,
    .role = XD_ROLE_NONE,
};

extern const xd_family xd_family_mochi;

const xd_family xd_family_mochi = {
    .title = "Mochi",
    .dits = XD_LIST(xd_dit, &xd_dit_mochi),
    .recipes = XD_LIST(xd_recipe, &mochi),
    .key_maps = xd_mochi_key_maps,
    .lora_names = xd_mochi_lora_names,
    .examples = { .hub = "genmo/mochi-1-preview" },
};
