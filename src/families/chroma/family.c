/* family.c - describes the pipelines of Chroma */
#include "families/family.h"

#include "families/chroma/keys.h"

extern const xd_dit xd_dit_chroma;

/* This recipe has the text encoders, defaults and rules of diffusers' ChromaPipeline.__call__ and
 * ChromaImg2ImgPipeline. Attention covers the text and the first padding row after it, whose
 * embedding T5 computes from the text; further padding rows are masked. */
static const xd_recipe chroma = {
    .name = "chroma",
    .pipelines = { "ChromaPipeline", "ChromaImg2ImgPipeline", "ChromaInpaintPipeline" },
    .dit = "transformer",
    .vae = "vae",
    .text = { { .folder = "text_encoder",
                .tokenizer = "tokenizer",
                .slot = "t5xxl",
                .rows = XD_ROWS_BELOW,
                .pad = XD_PAD_ONE,
                .masked = 1 } },
    .ntext = 1,
    .steps = 35,
    .guidance = 5,
    .max_text = 512,
    .most_text = 512,
    .own_sigmas = XD_OWN_ALWAYS,
    .packed = 1,
    .max_shift = 1.15,
    .strength = 0.9,
    .of_mask = { .steps = 28, .max_text = 256, .guidance = 7 },
};

/* ---- models and example scripts of xDiT ----------------------------------------------------- */

/* The row of this family's model in the table of xDiT's models. Chroma's attention has a mask,
 * which xDiT's ring attention does not support. */
static const xd_xdit_model xdit_models[] = {
    { .title = "Chroma",
      .names = "Chroma1",
      .pipeline = "xFuserChromaPipeline",
      .own = "chroma",
      .cell = 16,
      .patch = 1,
      .can = XD_CAN_CFG | XD_CAN_SP | XD_CAN_FSDP },
    { .title = NULL },
};

static const xd_xdit_net xdit_nets[] = {
    { "Chroma1", 24, 57, 0 },
    { .name = NULL },
};

static const xd_xdit_name xdit_names[] = {
    { "Chroma1-HD", "lodestones/Chroma1-HD" },
    { .name = NULL },
};

static const xd_xdit_rows xdit_rows = { .models = xdit_models,
                                        .nets = xdit_nets,
                                        .names = xdit_names };

extern const xd_family xd_family_chroma;

const xd_family xd_family_chroma = {
    .title = "Chroma",
    .dits = XD_LIST(xd_dit, &xd_dit_chroma),
    .recipes = XD_LIST(xd_recipe, &chroma),
    .key_maps = xd_chroma_key_maps,
    .lora_names = xd_chroma_lora_names,
    .xdit = &xdit_rows,
    .examples = { .file = "Chroma1-HD.safetensors",
                  .hub = "lodestones/Chroma1-HD",
                  .layers = "2,4" },
};
