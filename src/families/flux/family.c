/* family.c - FLUX.1: its pipeline */
#include "families/family.h"
#include "families/flux/keys.h"

extern const xd_dit xd_dit_flux;

enum { CLIP_IDS = 77 };         /* positions of a CLIP text model                              */

/* diffusers: FluxPipeline.__call__, FluxImg2ImgPipeline. CLIP gives only the pooled embedding. */
static const xd_recipe flux = {
    .name = "flux", .pipelines = { "FluxPipeline", "FluxImg2ImgPipeline" },
    .dit = "transformer", .vae = "vae",
    .text = { { .folder = "text_encoder", .tokenizer = "tokenizer", .slot = "clip_l",
                .rows = XD_ROWS_NONE, .pad = CLIP_IDS, .pooled = 1 },
              { .folder = "text_encoder_2", .tokenizer = "tokenizer_2", .slot = "t5xxl",
                .rows = XD_ROWS_BELOW, .pad = XD_PAD_MOST } },
    .ntext = 2,
    .steps = 28, .guidance = 3.5, .max_text = 512, .most_text = 512, .distilled = 1,
    .own_sigmas = 1, .max_shift = 1.15,
};

extern const xd_family xd_family_flux;
const xd_family xd_family_flux = {
    .title = "FLUX", .dits = XD_LIST(xd_dit, &xd_dit_flux),
    .recipes = XD_LIST(xd_recipe, &flux),
    .key_maps = xd_flux_key_maps, .lora_names = xd_flux_lora_names,
};
