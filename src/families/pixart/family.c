/* family.c - PixArt-alpha and PixArt-Sigma: pipelines */
#include "families/family.h"
#include "families/pixart/sizes.h"
#include "tok/tok.h"

extern const xd_dit xd_dit_pixart, xd_dit_pixart_2d;

/* diffusers: PixArtAlphaPipeline.__call__ */
static const xd_recipe alpha = {
    .name = "pixart-alpha", .pipelines = { "PixArtAlphaPipeline" },
    .dit = "transformer", .vae = "vae",
    .text = { { .folder = "text_encoder", .tokenizer = "tokenizer", .slot = "t5xxl",
                .rows = XD_ROWS_BELOW } },
    .ntext = 1,
    .steps = 20, .guidance = 4.5, .max_text = 120, .leap = 1,
    .trained_size = xd_pixart_alpha_size, .resized = 1, .caption = xd_caption_plain,
};

/* diffusers: PixArtSigmaPipeline.__call__ */
static const xd_recipe sigma = {
    .name = "pixart-sigma", .pipelines = { "PixArtSigmaPipeline" },
    .dit = "transformer", .vae = "vae",
    .text = { { .folder = "text_encoder", .tokenizer = "tokenizer", .slot = "t5xxl",
                .rows = XD_ROWS_BELOW } },
    .ntext = 1,
    .steps = 20, .guidance = 4.5, .max_text = 300,
    .trained_size = xd_pixart_sigma_size, .resized = 1, .caption = xd_caption_plain,
};

extern const xd_family xd_family_pixart;
const xd_family xd_family_pixart = {
    .title = "PixArt", .dits = XD_LIST(xd_dit, &xd_dit_pixart, &xd_dit_pixart_2d),
    .recipes = XD_LIST(xd_recipe, &alpha, &sigma),
};
