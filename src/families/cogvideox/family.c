/* family.c - describes CogVideoX's pipelines for text to video and image to video */
#include "families/family.h"

extern const xd_dit xd_dit_cogvideox;

/* This recipe has the text encoders, defaults and rules of diffusers' CogVideoXPipeline.__call__.
 * The pipeline's examples of export_to_video write 8 frames per second, and the examples of
 * CogVideoX 1.5 (whose transformer has patches in time) write 16. */
static const xd_recipe from_text = {
    .name = "cogvideox",
    .pipelines = { "CogVideoXPipeline" },
    .dit = "transformer",
    .vae = "vae",
    .text = { { .folder = "text_encoder",
                .tokenizer = "tokenizer",
                .slot = "t5xxl",
                .rows = XD_ROWS_BELOW,
                .pad = XD_PAD_MOST } },
    .ntext = 1,
    .steps = 50,
    .guidance = 6,
    .max_text = 226,
    .fps = 8,
    .pairs_fps = 16,
    .role = XD_ROLE_NONE,
    .dynamic_cfg = 1,
};

/* This recipe has the text encoders, defaults and rules of diffusers'
 * CogVideoXImageToVideoPipeline.__call__. */
static const xd_recipe from_image = {
    .name = "cogvideox-i2v",
    .pipelines = { "CogVideoXImageToVideoPipeline" },
    .dit = "transformer",
    .vae = "vae",
    .text = { { .folder = "text_encoder",
                .tokenizer = "tokenizer",
                .slot = "t5xxl",
                .rows = XD_ROWS_BELOW,
                .pad = XD_PAD_MOST } },
    .ntext = 1,
    .steps = 50,
    .guidance = 6,
    .max_text = 226,
    .fps = 8,
    .pairs_fps = 16,
    .role = XD_ROLE_FIRST_FRAME,
    .needs_image = 1,
    .dynamic_cfg = 1,
};

static const xd_key_map key_maps[] = {
    { { "cogvideox" },
      "a CogVideoX transformer in the layout of diffusers",
      { "time_embedding.linear_1.weight", "transformer_blocks.0.attn1.to_q.weight" },
      XD_DIT_PREFIXES,
      { { "transformer_blocks.#.", "transformer_blocks.#.", NULL }, { "", "", NULL } } },
    { { "cogvideox-vae" },
      "CogVideoX's autoencoder in the layout of diffusers",
      { "decoder.mid_block.resnets.0.norm1.conv_y.conv.weight", NULL },
      XD_VAE_PREFIXES,
      { { "", "", NULL } } },
    { .what = NULL },
};

/* ---- models and example scripts of xDiT ----------------------------------------------------- */

static const xd_xdit_model xdit_models[] = {
    { .title = "CogVideoX",
      .scripts = "cogvideox_example cogvideox_usp_example cogvideox_teacache_example",
      .pipeline = "xFuserCogVideoXPipeline",
      .own = "cogvideox",
      .cell = 8,
      .patch = 2,
      .can = XD_CAN_CFG | XD_CAN_USP | XD_HAS_ROWS | XD_HAS_GUIDANCE | XD_HAS_VIDEO,
      .refuses = "CogVideo",
      .text_rows = 226,
      .frame_pairs = "X1.5 x1.5" },
    { .title = "CogVideoX from an image",
      .scripts = "cogvideox_i2v_example",
      .pipeline = "CogVideoXImageToVideoPipeline",
      .own = "cogvideox-i2v",
      .cell = 8,
      .patch = 2,
      .can = XD_CAN_CFG | XD_CAN_USP | XD_HAS_ROWS | XD_HAS_GUIDANCE | XD_HAS_VIDEO,
      .refuses = "CogVideo",
      .text_rows = 226,
      .frame_pairs = "X1.5 x1.5" },
    { .title = "ConsisID",
      .scripts = "consisid_example consisid_usp_example",
      .pipeline = "xFuserConsisIDPipeline",
      .instead = "it needs a face detector; CogVideoX-5b-I2V is nearest",
      .cell = 8,
      .patch = 2,
      .refuses = "ConsisID",
      .can = XD_CAN_CFG | XD_CAN_USP | XD_HAS_ROWS | XD_HAS_GUIDANCE | XD_HAS_VIDEO },
    { .title = NULL },
};

static const xd_xdit_net xdit_nets[] = {
    { "CogVideoX-2b", 30, 30, 0 },
    { "CogVideoX", 48, 42, 0 },
    { .name = NULL },
};

static const xd_xdit_rows xdit_rows = { .models = xdit_models, .nets = xdit_nets };

extern const xd_family xd_family_cogvideox;

const xd_family xd_family_cogvideox = {
    .title = "CogVideoX",
    .dits = XD_LIST(xd_dit, &xd_dit_cogvideox),
    .recipes = XD_LIST(xd_recipe, &from_text, &from_image),
    .key_maps = key_maps,
    .xdit = &xdit_rows,
    .examples = { .from_image = "CogVideoX-5b-I2V and CogVideoX1.5-5B-I2V" },
};
