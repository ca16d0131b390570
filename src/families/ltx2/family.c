/* family.c - describes the pipelines of LTX-2 */
#include "families/family.h"
#include "tok/tok.h"

extern const xd_dit xd_dit_ltx2;

/* This recipe has the text encoder, defaults and rules of diffusers' LTX2Pipeline.__call__. Gemma
 * reads the prompt without padding, because text does not attend to padding, and the connectors put
 * registers in its place. */
static const xd_recipe from_text = {
    .name = "ltx2",
    .pipelines = { "LTX2Pipeline" },
    .dit = "transformer",
    .vae = "vae",
    .text = { { .folder = "text_encoder",
                .tokenizer = "tokenizer",
                .slot = "llm",
                .rows = XD_ROWS_NONE,
                .pad = XD_PAD_NONE,
                .all = 1 },
              { .folder = "connectors",
                .tokenizer = "tokenizer",
                .slot = "connectors",
                .rows = XD_ROWS_BELOW,
                .pad = XD_PAD_MOST,
                .masked = 1,
                .follows = 1 } },
    .ntext = 2,
    .steps = 30,
    .guidance = 3,
    .audio_guidance = 7,
    .max_text = 1024,
    .max_shift = 2.05,
    .own_sigmas = XD_OWN_ALWAYS,
    .fps = 24,
    .channels_first = 1,
    .packed = 1,
    .role = XD_ROLE_NONE,
    .audio_channels = 8,
    .audio = { "audio_vae", "vocoder" },
    .caption = xd_caption_strip,
};

extern const xd_family xd_family_ltx2;

const xd_family xd_family_ltx2 = {
    .title = "LTX-2",
    .dits = XD_LIST(xd_dit, &xd_dit_ltx2),
    .recipes = XD_LIST(xd_recipe, &from_text),
};
