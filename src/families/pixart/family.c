/* family.c - describes the pipelines of PixArt-alpha and PixArt-Sigma, and that of Latte, whose
 * transformer has the blocks of PixArt-alpha */
#include "families/family.h"
#include "tok/tok.h"

extern const xd_dit xd_dit_pixart, xd_dit_pixart_2d, xd_dit_latte;

/* This recipe has the text encoders, defaults and rules of diffusers'
 * PixArtAlphaPipeline.__call__. */
static const xd_recipe alpha = {
    .name = "pixart-alpha",
    .pipelines = { "PixArtAlphaPipeline" },
    .dit = "transformer",
    .vae = "vae",
    .text = { { .folder = "text_encoder",
                .tokenizer = "tokenizer",
                .slot = "t5xxl",
                .rows = XD_ROWS_BELOW } },
    .ntext = 1,
    .steps = 20,
    .guidance = 4.5,
    .max_text = 120,
    .leap = 1,
    .trained_size = xd_ratio_buckets_1024,
    .resized = 1,
    .caption = xd_caption_of_web,
    .uncleaned = xd_caption_plain,
};

/* This recipe has the text encoders, defaults and rules of diffusers'
 * PixArtSigmaPipeline.__call__. */
static const xd_recipe sigma = {
    .name = "pixart-sigma",
    .pipelines = { "PixArtSigmaPipeline" },
    .dit = "transformer",
    .vae = "vae",
    .text = { { .folder = "text_encoder",
                .tokenizer = "tokenizer",
                .slot = "t5xxl",
                .rows = XD_ROWS_BELOW } },
    .ntext = 1,
    .steps = 20,
    .guidance = 4.5,
    .max_text = 300,
    .trained_size = xd_ratio_buckets_2048,
    .resized = 1,
    .caption = xd_caption_of_web,
    .uncleaned = xd_caption_plain,
};

/* This recipe has the text encoder, defaults and rules of diffusers' LattePipeline.__call__ for one
 * video. */
static const xd_recipe latte = {
    .name = "latte-1",
    .pipelines = { "LattePipeline" },
    .dit = "transformer",
    .vae = "vae",
    .text = { { .folder = "text_encoder",
                .tokenizer = "tokenizer",
                .slot = "t5xxl",
                .rows = XD_ROWS_BELOW,
                .pad = XD_PAD_MOST,
                .masked = 1 } },
    .ntext = 1,
    .steps = 50,
    .guidance = 7.5,
    .max_text = 120,
    .most_text = 120,
    .cuts_text = 1,
    .fps = 8,
    .channels_first = 1,
    .role = XD_ROLE_NONE,
    .caption = xd_caption_of_web,
    .uncleaned = xd_caption_plain,
};

static const xd_key_map key_maps[] = {
    { { "pixart" },
      "a PixArt transformer in the layout of diffusers",
      { "pos_embed.proj.weight", "caption_projection.linear_1.weight" },
      XD_DIT_PREFIXES,
      { { "transformer_blocks.#.", "transformer_blocks.#.", NULL }, { "", "", NULL } } },
    { { "latte" },
      "a Latte transformer in the layout of diffusers",
      { "temporal_transformer_blocks.0.attn1.to_q.weight", "caption_projection.linear_1.weight" },
      XD_DIT_PREFIXES,
      { { "transformer_blocks.#.", "transformer_blocks.#.", NULL },
        { "temporal_transformer_blocks.#.", "temporal_transformer_blocks.#.", NULL },
        { "", "", NULL } } },
    { .what = NULL },
};

/* Module names in LoRA files. Each row has a module's name in the original code, then its name in
 * diffusers. */
static const xd_lora_name lora_names[] = {
    { "x_embedder_proj", "pos_embed_proj" },
    { "final_layer_linear", "proj_out" },
    { NULL, NULL },
};

/* ---- models and example scripts of xDiT ----------------------------------------------------- */

static const xd_xdit_model xdit_models[] = {
    { .title = "PixArt-alpha",
      .scripts = "pixartalpha_example ray_pixartalpha_example pixartalpha_generate",
      .pipeline = "xFuserPixArtAlphaPipeline",
      .own = "pixart-alpha",
      .cell = 8,
      .patch = 2,
      .can = XD_CAN_CFG | XD_CAN_USP | XD_CAN_PP | XD_CAN_VAE | XD_CAN_FSDP | XD_HAS_ROWS },
    { .title = "PixArt-Sigma",
      .scripts = "pixartsigma_example ray_pixartsigma_example",
      .pipeline = "xFuserPixArtSigmaPipeline",
      .own = "pixart-sigma",
      .cell = 8,
      .patch = 2,
      .can = XD_CAN_CFG | XD_CAN_USP | XD_CAN_PP | XD_CAN_VAE | XD_CAN_FSDP | XD_HAS_ROWS },
    { .title = "Latte",
      .scripts = "latte_example",
      .pipeline = "xFuserLattePipeline",
      .own = "latte-1",
      .cell = 8,
      .patch = 2,
      .can = XD_CAN_USP | XD_HAS_ROWS | XD_HAS_VIDEO },
    { .title = NULL },
};

static const xd_xdit_net xdit_nets[] = {
    { "PixArt", 16, 28, 0 },
    { "Latte", 16, 56, 0 },
    { .name = NULL },
};

static const xd_xdit_rows xdit_rows = { .models = xdit_models, .nets = xdit_nets };

extern const xd_family xd_family_pixart;

const xd_family xd_family_pixart = {
    .title = "PixArt",
    .dits = XD_LIST(xd_dit, &xd_dit_pixart, &xd_dit_pixart_2d, &xd_dit_latte),
    .recipes = XD_LIST(xd_recipe, &alpha, &sigma, &latte),
    .key_maps = key_maps,
    .lora_names = lora_names,
    .xdit = &xdit_rows,
};
