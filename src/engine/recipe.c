/* recipe.c - every pipeline that is built */
#include "engine/recipe.h"

#include <string.h>

#include "tok/tok.h"

/* diffusers: PixArtAlphaPipeline.__call__ */
static const xd_recipe pixart_alpha = {
    .name = "pixart-alpha", .pipelines = { "PixArtAlphaPipeline" },
    .dit = "transformer", .vae = "vae", .text = { { "text_encoder", "tokenizer" } }, .ntext = 1,
    .steps = 20, .guidance = 4.5, .max_text = 120, .largest_bin = 128,
    .caption = xd_caption_plain,
};

/* diffusers: PixArtSigmaPipeline.__call__ */
static const xd_recipe pixart_sigma = {
    .name = "pixart-sigma", .pipelines = { "PixArtSigmaPipeline" },
    .dit = "transformer", .vae = "vae", .text = { { "text_encoder", "tokenizer" } }, .ntext = 1,
    .steps = 20, .guidance = 4.5, .max_text = 300, .largest_bin = 256,
    .caption = xd_caption_plain,
};

const xd_recipe *const xd_recipes[] = { &pixart_alpha, &pixart_sigma, NULL };

const xd_recipe *xd_recipe_find(const char *pipeline)
{
    for (int i = 0; xd_recipes[i]; i++)
        for (int k = 0; k < 4 && xd_recipes[i]->pipelines[k]; k++)
            if (pipeline && strcmp(xd_recipes[i]->pipelines[k], pipeline) == 0)
                return xd_recipes[i];
    return NULL;
}
