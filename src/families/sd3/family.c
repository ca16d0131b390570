/* family.c - Stable Diffusion 3 and 3.5: their pipeline */
#include "families/family.h"
#include "families/sd3/keys.h"

extern const xd_dit xd_dit_sd3;

enum { CLIP_IDS = 77 };         /* positions of a CLIP text model                              */

/* diffusers: StableDiffusion3Pipeline.__call__, StableDiffusion3Img2ImgPipeline. */
static const xd_recipe sd3 = {
    .name = "sd3", .pipelines = { "StableDiffusion3Pipeline", "StableDiffusion3Img2ImgPipeline" },
    .dit = "transformer", .vae = "vae",
    .text = { { .folder = "text_encoder", .tokenizer = "tokenizer", .slot = "clip_l",
                .rows = XD_ROWS_BELOW, .pad = CLIP_IDS, .penultimate = 1, .pooled = 1 },
              { .folder = "text_encoder_2", .tokenizer = "tokenizer_2", .slot = "clip_g",
                .rows = XD_ROWS_BESIDE, .pad = CLIP_IDS, .penultimate = 1, .pooled = 1 },
              { .folder = "text_encoder_3", .tokenizer = "tokenizer_3", .slot = "t5xxl",
                .rows = XD_ROWS_BELOW, .pad = XD_PAD_MOST, .optional = 1 } },
    .ntext = 3,
    .steps = 28, .guidance = 7.0, .max_text = 256, .most_text = 512, .max_shift = 1.16,
};

extern const xd_family xd_family_sd3;
const xd_family xd_family_sd3 = {
    .title = "Stable Diffusion 3", .dits = XD_LIST(xd_dit, &xd_dit_sd3),
    .recipes = XD_LIST(xd_recipe, &sd3),
    .key_maps = xd_sd3_key_maps, .lora_names = xd_sd3_lora_names,
};
