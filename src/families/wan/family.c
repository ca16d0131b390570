/* family.c - Wan: its pipeline */
#include "families/family.h"

#include "families/wan/keys.h"
#include "tok/tok.h"

extern const xd_dit xd_dit_wan;

/* diffusers: WanPipeline.__call__; examples of export_to_video write 16 frames per second. */
static const xd_recipe from_text = {
    .name = "wan", .pipelines = { "WanPipeline" },
    .dit = "transformer", .vae = "vae",
    .text = { { .folder = "text_encoder", .tokenizer = "tokenizer", .slot = "t5xxl",
                .rows = XD_ROWS_BELOW, .pad = XD_PAD_MOST, .masked = 1,
                .blank = 1 } },
    .ntext = 1,
    .steps = 50, .guidance = 5, .max_text = 512, .max_shift = 1.15, .fps = 16,
    .frames_up = 1, .channels_first = 1, .caption = xd_caption_clean,
    .lacks = "transformer_2",
};

/* ---- in xDiT -------------------------------------------------------------------------------- */

/* A name is looked for from the first row on. */
static const xd_xdit_model xdit_models[] = {
    { .title = "Wan", .scripts = "wan_example wan_usp_example wan_pipeline_example",
      .pipeline = "WanPipeline", .own = "wan", .cell = 8, .patch = 2,
      .can = XD_CAN_USP | XD_HAS_VIDEO | XD_HAS_GUIDANCE },
    { .title = "Wan from an image", .scripts = "wan_i2v_example", .pipeline = "WanPipeline",
      .cell = 8, .patch = 2, .can = XD_CAN_USP | XD_HAS_VIDEO | XD_HAS_GUIDANCE },
    { .title = "CausalWan", .names = "CausalWan", .pipeline = "CausalWan", .cell = 8, .patch = 2,
      .can = XD_CAN_FSDP | XD_HAS_VIDEO },
    { .title = "Wan from an image", .names = "Wan2.1-I2V Wan2.2-I2V TI2V", .pipeline = "WanI2V",
      .cell = 8, .patch = 2,
      .can = XD_CAN_CFG | XD_CAN_USP | XD_CAN_VAE | XD_CAN_FSDP | XD_HAS_VIDEO },
    { .title = "Wan of two transformers, or with references", .names = "Wan2.2 VACE",
      .pipeline = "Wan", .cell = 8, .patch = 2,
      .can = XD_CAN_USP | XD_CAN_VAE | XD_CAN_FSDP | XD_HAS_VIDEO },
    { .title = "Wan", .names = "Wan2", .pipeline = "Wan", .own = "wan", .cell = 8, .patch = 2,
      .can = XD_CAN_USP | XD_CAN_VAE | XD_CAN_FSDP | XD_HAS_VIDEO, .steps = "40",
      .guidance = "3.5" },
    { .title = NULL },
};

static const xd_xdit_net xdit_nets[] = {
    { "Wan2.1-T2V-1.3B", 12, 30, 0 }, { "VACE-1.3B", 12, 30, 0 }, { "TI2V-5B", 24, 30, 0 },
    { "Wan2", 40, 40, 0 },            { .name = NULL },
};

static const xd_xdit_name xdit_names[] = {
    { "CausalWan", "FastVideo/CausalWan2.2-I2V-A14B-Preview-Diffusers" },
    { "Wan2.1-I2V", "Wan-AI/Wan2.1-I2V-14B-720P-Diffusers" },
    { "Wan2.2-I2V", "Wan-AI/Wan2.2-I2V-A14B-Diffusers" },
    { "Wan2.1-T2V", "Wan-AI/Wan2.1-T2V-14B-Diffusers" },
    { "Wan2.2-T2V", "Wan-AI/Wan2.2-T2V-A14B-Diffusers" },
    { "Wan2.2-TI2V", "Wan-AI/Wan2.2-TI2V-5B-Diffusers" },
    { "Wan2.1-VACE-14B", "Wan-AI/Wan2.1-VACE-14B-diffusers" },
    { "Wan2.1-VACE-1.3B", "Wan-AI/Wan2.1-VACE-1.3B-diffusers" },
    { .name = NULL },
};

static const xd_xdit_rows xdit_rows = { .models = xdit_models, .nets = xdit_nets,
                                        .names = xdit_names };

extern const xd_family xd_family_wan;
const xd_family xd_family_wan = {
    .title = "Wan", .dits = XD_LIST(xd_dit, &xd_dit_wan),
    .recipes = XD_LIST(xd_recipe, &from_text),
    .key_maps = xd_wan_key_maps, .lora_names = xd_wan_lora_names,
    .xdit = &xdit_rows,
    .examples = { .file = "wan2.1_t2v_1.3B_bf16.safetensors",
                  .hub = "Wan-AI/Wan2.1-T2V-1.3B-Diffusers" },
};
