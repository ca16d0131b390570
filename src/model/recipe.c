/* recipe.c - all recipes */
#include "model/recipe.h"

#include <string.h>

#include "tok/tok.h"

enum { CLIP_IDS = 77 };         /* positions of a CLIP text model                              */

/* diffusers: PixArtAlphaPipeline.__call__ */
static const xd_recipe pixart_alpha = {
    .name = "pixart-alpha", .pipelines = { "PixArtAlphaPipeline" },
    .dit = "transformer", .vae = "vae",
    .text = { { "text_encoder", "tokenizer", XD_ROWS_BELOW, XD_PAD_NONE, 0, 0, 0, "t5xxl", 0 } },
    .ntext = 1,
    .steps = 20, .guidance = 4.5, .max_text = 120, .leap = 1, .largest_bin = 128,
    .caption = xd_caption_plain,
};

/* diffusers: PixArtSigmaPipeline.__call__ */
static const xd_recipe pixart_sigma = {
    .name = "pixart-sigma", .pipelines = { "PixArtSigmaPipeline" },
    .dit = "transformer", .vae = "vae",
    .text = { { "text_encoder", "tokenizer", XD_ROWS_BELOW, XD_PAD_NONE, 0, 0, 0, "t5xxl", 0 } },
    .ntext = 1,
    .steps = 20, .guidance = 4.5, .max_text = 300, .largest_bin = 256,
    .caption = xd_caption_plain,
};

/* diffusers: FluxPipeline.__call__, FluxImg2ImgPipeline. CLIP gives only the pooled embedding. */
static const xd_recipe flux = {
    .name = "flux", .pipelines = { "FluxPipeline", "FluxImg2ImgPipeline" },
    .dit = "transformer", .vae = "vae", .ntext = 2,
    .text = { { "text_encoder", "tokenizer", XD_ROWS_NONE, CLIP_IDS, 0, 1, 0, "clip_l", 0 },
              { "text_encoder_2", "tokenizer_2", XD_ROWS_BELOW, XD_PAD_MOST, 0, 0, 0, "t5xxl",
                0 } },
    .steps = 28, .guidance = 3.5, .max_text = 512, .most_text = 512, .distilled = 1,
    .own_sigmas = 1, .max_shift = 1.15,
};

/* diffusers: StableDiffusion3Pipeline.__call__, StableDiffusion3Img2ImgPipeline. */
static const xd_recipe sd3 = {
    .name = "sd3", .pipelines = { "StableDiffusion3Pipeline", "StableDiffusion3Img2ImgPipeline" },
    .dit = "transformer", .vae = "vae", .ntext = 3,
    .text = { { "text_encoder", "tokenizer", XD_ROWS_BELOW, CLIP_IDS, 1, 1, 0, "clip_l", 0 },
              { "text_encoder_2", "tokenizer_2", XD_ROWS_BESIDE, CLIP_IDS, 1, 1, 0, "clip_g", 0 },
              { "text_encoder_3", "tokenizer_3", XD_ROWS_BELOW, XD_PAD_MOST, 0, 0, 1, "t5xxl",
                0 } },
    .steps = 28, .guidance = 7.0, .max_text = 256, .most_text = 512, .max_shift = 1.16,
};

/* diffusers: CogVideoXPipeline.__call__; examples of export_to_video write 8 frames per second,
 * those of CogVideoX 1.5 write 16 (its transformer has patches in time). */
static const xd_recipe cogvideox = {
    .name = "cogvideox", .pipelines = { "CogVideoXPipeline" },
    .dit = "transformer", .vae = "vae",
    .text = { { "text_encoder", "tokenizer", XD_ROWS_BELOW, XD_PAD_MOST, 0, 0, 0, "t5xxl", 0 } },
    .ntext = 1,
    .steps = 50, .guidance = 6, .max_text = 226, .fps = 8,
};

/* diffusers: CogVideoXImageToVideoPipeline.__call__ */
static const xd_recipe cogvideox_i2v = {
    .name = "cogvideox-i2v", .pipelines = { "CogVideoXImageToVideoPipeline" },
    .dit = "transformer", .vae = "vae",
    .text = { { "text_encoder", "tokenizer", XD_ROWS_BELOW, XD_PAD_MOST, 0, 0, 0, "t5xxl", 0 } },
    .ntext = 1,
    .steps = 50, .guidance = 6, .max_text = 226, .fps = 8, .from_image = 1,
};

/* diffusers: HunyuanDiTPipeline.__call__. mT5's text does not attend to padding, but the
 * pooling includes it. */
static const xd_recipe hunyuandit = {
    .name = "hunyuandit", .pipelines = { "HunyuanDiTPipeline" },
    .dit = "transformer", .vae = "vae", .ntext = 2,
    .text = { { "text_encoder", "tokenizer", XD_ROWS_BELOW, 77, 0, 0, 0, "bert", 1 },
              { "text_encoder_2", "tokenizer_2", XD_ROWS_BELOW, 256, 0, 0, 0, "mt5", 1 } },
    .steps = 50, .guidance = 5, .max_text = 77 + 256, .standard = 1, .rescales = 1,
};

const xd_recipe *const xd_recipes[] = { &pixart_alpha, &pixart_sigma, &flux, &sd3, &cogvideox,
                                        &cogvideox_i2v, &hunyuandit, NULL };

void xd_recipe_names(xd_text_buf *b)
{
    for (int i = 0; xd_recipes[i]; i++)
        xd_buf_add(b, "%s%s", i ? ", " : "", xd_recipes[i]->pipelines[0]);
}

const xd_recipe *xd_recipe_find(const char *pipeline)
{
    for (int i = 0; xd_recipes[i]; i++)
        for (int k = 0; k < 4 && xd_recipes[i]->pipelines[k]; k++)
            if (pipeline && strcmp(xd_recipes[i]->pipelines[k], pipeline) == 0)
                return xd_recipes[i];
    return NULL;
}
