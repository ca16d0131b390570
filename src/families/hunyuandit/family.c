/* family.c - describes HunyuanDiT's pipeline, and the image sizes on which it was trained */
#include "families/family.h"

#include <math.h>
#include <stdlib.h>

extern const xd_dit xd_dit_hunyuandit;

enum { BERT_IDS = 77, MT5_IDS = 256 };

static const struct {
    int width, height;
} standard[] = {
    { 1024, 1024 }, { 1280, 1280 }, { 1024, 768 }, { 1152, 864 }, { 1280, 960 },
    { 768, 1024 },  { 864, 1152 },  { 960, 1280 }, { 1280, 768 }, { 768, 1280 },
};
/* The ratio that each of the trained sizes represents; 1280 x 768 counts as 16:9, although its
 * exact ratio is 5:3. */
static const double stands_for[] = { 1,       1,       4.0 / 3, 4.0 / 3,  4.0 / 3,
                                     3.0 / 4, 3.0 / 4, 3.0 / 4, 16.0 / 9, 9.0 / 16 };

/* Replaces a size by one of the sizes on which the model was trained: the size with the nearest
 * ratio of width to height. If several sizes have this ratio, uses the size with the nearest
 * area. */
static int standard_size(int64_t sample, int64_t *height, int64_t *width)
{
    int64_t h = *height < 16 ? 16 : *height / 16 * 16, w = *width < 16 ? 16 : *width / 16 * 16;
    int     n = (int)(sizeof standard / sizeof *standard), best = 0;
    double  ratio = (double)w / (double)h, gap = INFINITY;
    (void)sample;
    for (int i = 0; i < n; i++)
        gap = fmin(gap, fabs(stands_for[i] - ratio));
    while (fabs(stands_for[best] - ratio) != gap)
        best++;
    for (int i = best; i < n && stands_for[i] == stands_for[best]; i++)
        if (llabs((int64_t)standard[i].width * standard[i].height - w * h) <
            llabs((int64_t)standard[best].width * standard[best].height - w * h))
            best = i;
    *height = standard[best].height;
    *width = standard[best].width;
    return 1;
}

/* This recipe has the text encoders, defaults and rules of diffusers' HunyuanDiTPipeline.__call__.
 * The text rows of mT5 do not attend to padding rows, but the pooling of mT5's rows includes
 * padding. */
static const xd_recipe hunyuandit = {
    .name = "hunyuandit",
    .pipelines = { "HunyuanDiTPipeline", "HunyuanDiTControlNetPipeline" },
    .dit = "transformer",
    .vae = "vae",
    .text = { { .folder = "text_encoder",
                .tokenizer = "tokenizer",
                .slot = "bert",
                .rows = XD_ROWS_BELOW,
                .pad = BERT_IDS,
                .masked = 1 },
              { .folder = "text_encoder_2",
                .tokenizer = "tokenizer_2",
                .slot = "mt5",
                .rows = XD_ROWS_BELOW,
                .pad = MT5_IDS,
                .masked = 1 } },
    .ntext = 2,
    .steps = 50,
    .guidance = 5,
    .max_text = BERT_IDS + MT5_IDS,
    .rescales = 1,
    .micro = 1,
    .trained_size = standard_size,
};

static const xd_key_map key_maps[] = {
    { { "hunyuandit" },
      "a HunyuanDiT transformer in the layout of diffusers",
      { "text_embedding_padding", "time_extra_emb.pooler.positional_embedding" },
      XD_DIT_PREFIXES,
      { { "blocks.#.", "blocks.#.", NULL }, { "", "", NULL } } },
    { .what = NULL },
};

/* Module names in LoRA files. Each row has a module's name in the original code, then its name in
 * diffusers. */
static const xd_lora_name lora_names[] = {
    { "x_embedder_proj", "pos_embed_proj" },
    { "final_layer_linear", "proj_out" },
    { "final_layer_adaLN_modulation_1", "~norm_out_linear" },
    { NULL, NULL },
};

/* ---- models and example scripts of xDiT ----------------------------------------------------- */

static const xd_xdit_model xdit_models[] = {
    { .title = "HunyuanDiT",
      .scripts = "hunyuandit_example ray_hunyuandit_example",
      .pipeline = "xFuserHunyuanDiTPipeline",
      .own = "hunyuandit",
      .cell = 8,
      .patch = 2,
      .can = XD_CAN_CFG | XD_CAN_USP | XD_CAN_PP | XD_CAN_VAE | XD_HAS_ROWS | XD_HAS_PAIRS },
    { .title = NULL },
};

static const xd_xdit_net xdit_nets[] = {
    { "HunyuanDiT", 16, 40, 0 },
    { .name = NULL },
};

static const xd_xdit_rows xdit_rows = { .models = xdit_models, .nets = xdit_nets };

extern const xd_family xd_family_hunyuandit;

const xd_family xd_family_hunyuandit = {
    .title = "HunyuanDiT",
    .dits = XD_LIST(xd_dit, &xd_dit_hunyuandit),
    .recipes = XD_LIST(xd_recipe, &hunyuandit),
    .key_maps = key_maps,
    .lora_names = lora_names,
    .xdit = &xdit_rows,
};
