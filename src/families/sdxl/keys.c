/* keys.c - lists the names of tensors in the original files of Stable Diffusion XL, 1 and 2
 * (sd_xl_base_1.0.safetensors, v1-5-pruned-emaonly.safetensors, v2-1_768-ema-pruned.safetensors),
 * and the names of modules in LoRA files that use these names */
#include "families/sdxl/keys.h"

#include <stddef.h>

static const xd_stem res[] = {
    XD_STEM("norm1", "in_layers.0"),
    XD_STEM("conv1", "in_layers.2"),
    XD_STEM("time_emb_proj", "emb_layers.1"),
    XD_STEM("norm2", "out_layers.0"),
    XD_STEM("conv2", "out_layers.3"),
    XD_STEM("conv_shortcut", "skip_connection"),
    XD_STEMS_END,
};

static const xd_stem top[] = {
    XD_STEM("conv_in", "input_blocks.0.0"),
    XD_STEM("time_embedding.linear_1", "time_embed.0"),
    XD_STEM("time_embedding.linear_2", "time_embed.2"),
    XD_STEM("add_embedding.linear_1", "label_emb.0.0"),
    XD_STEM("add_embedding.linear_2", "label_emb.0.2"),
    XD_STEM("conv_norm_out", "out.0"),
    XD_STEM("conv_out", "out.2"),
    XD_STEM("down_blocks.0.downsamplers.0.conv", "input_blocks.3.0.op"),
    XD_STEM("down_blocks.1.downsamplers.0.conv", "input_blocks.6.0.op"),
    XD_STEM("up_blocks.0.upsamplers.0.conv", "output_blocks.2.2.conv"),
    XD_STEM("up_blocks.1.upsamplers.0.conv", "output_blocks.5.2.conv"),
    XD_STEMS_END,
};

/* The rest of the names of Stable Diffusion 1 and 2, which have a level more. */
static const xd_stem small_top[] = {
    XD_STEM("conv_in", "input_blocks.0.0"),
    XD_STEM("time_embedding.linear_1", "time_embed.0"),
    XD_STEM("time_embedding.linear_2", "time_embed.2"),
    XD_STEM("conv_norm_out", "out.0"),
    XD_STEM("conv_out", "out.2"),
    XD_STEM("down_blocks.0.downsamplers.0.conv", "input_blocks.3.0.op"),
    XD_STEM("down_blocks.1.downsamplers.0.conv", "input_blocks.6.0.op"),
    XD_STEM("down_blocks.2.downsamplers.0.conv", "input_blocks.9.0.op"),
    XD_STEM("up_blocks.0.upsamplers.0.conv", "output_blocks.2.1.conv"),
    XD_STEM("up_blocks.1.upsamplers.0.conv", "output_blocks.5.2.conv"),
    XD_STEM("up_blocks.2.upsamplers.0.conv", "output_blocks.8.2.conv"),
    XD_STEMS_END,
};

/* Residual block j of a level is the first module of a block of the file; the transformer after it
 * is the second. */
#define RES(level, j, block) { level ".resnets." #j ".", block ".0.", res }
#define BOTH(level, j, block) \
    RES(level, j, block), { level ".attentions." #j ".", block ".1.", NULL }

const xd_key_map xd_sdxl_key_maps[] = {
    { { "sdxl" },
      "a Stable Diffusion XL U-Net in its original layout",
      { "label_emb.0.0.weight", "input_blocks.8.1.transformer_blocks.0.attn2.to_k.weight" },
      XD_DIT_PREFIXES,
      { RES("down_blocks.0", 0, "input_blocks.1"),
        RES("down_blocks.0", 1, "input_blocks.2"),
        BOTH("down_blocks.1", 0, "input_blocks.4"),
        BOTH("down_blocks.1", 1, "input_blocks.5"),
        BOTH("down_blocks.2", 0, "input_blocks.7"),
        BOTH("down_blocks.2", 1, "input_blocks.8"),
        BOTH("mid_block", 0, "middle_block"),
        { "mid_block.resnets.1.", "middle_block.2.", res },
        BOTH("up_blocks.0", 0, "output_blocks.0"),
        BOTH("up_blocks.0", 1, "output_blocks.1"),
        BOTH("up_blocks.0", 2, "output_blocks.2"),
        BOTH("up_blocks.1", 0, "output_blocks.3"),
        BOTH("up_blocks.1", 1, "output_blocks.4"),
        BOTH("up_blocks.1", 2, "output_blocks.5"),
        RES("up_blocks.2", 0, "output_blocks.6"),
        RES("up_blocks.2", 1, "output_blocks.7"),
        RES("up_blocks.2", 2, "output_blocks.8"),
        { "", "", top } } },
    { { "sdxl" },
      "a Stable Diffusion U-Net in its original layout",
      { "input_blocks.11.0.in_layers.2.weight", "output_blocks.11.1.proj_out.weight" },
      XD_DIT_PREFIXES,
      { BOTH("down_blocks.0", 0, "input_blocks.1"),
        BOTH("down_blocks.0", 1, "input_blocks.2"),
        BOTH("down_blocks.1", 0, "input_blocks.4"),
        BOTH("down_blocks.1", 1, "input_blocks.5"),
        BOTH("down_blocks.2", 0, "input_blocks.7"),
        BOTH("down_blocks.2", 1, "input_blocks.8"),
        RES("down_blocks.3", 0, "input_blocks.10"),
        RES("down_blocks.3", 1, "input_blocks.11"),
        BOTH("mid_block", 0, "middle_block"),
        { "mid_block.resnets.1.", "middle_block.2.", res },
        RES("up_blocks.0", 0, "output_blocks.0"),
        RES("up_blocks.0", 1, "output_blocks.1"),
        RES("up_blocks.0", 2, "output_blocks.2"),
        BOTH("up_blocks.1", 0, "output_blocks.3"),
        BOTH("up_blocks.1", 1, "output_blocks.4"),
        BOTH("up_blocks.1", 2, "output_blocks.5"),
        BOTH("up_blocks.2", 0, "output_blocks.6"),
        BOTH("up_blocks.2", 1, "output_blocks.7"),
        BOTH("up_blocks.2", 2, "output_blocks.8"),
        BOTH("up_blocks.3", 0, "output_blocks.9"),
        BOTH("up_blocks.3", 1, "output_blocks.10"),
        BOTH("up_blocks.3", 2, "output_blocks.11"),
        { "", "", small_top } } },
    { { "sdxl" },
      "a U-Net in the layout of diffusers",
      { "down_blocks.0.resnets.0.conv1.weight", "add_embedding.linear_1.weight" },
      XD_DIT_PREFIXES,
      { { "", "", NULL } } },
    { { "sdxl" },
      "a U-Net in the layout of diffusers",
      { "down_blocks.0.resnets.0.conv1.weight", "down_blocks.3.resnets.0.conv1.weight" },
      XD_DIT_PREFIXES,
      { { "", "", NULL } } },
    { .what = NULL },
};

/* ---- modules of LoRA files ---------------------------------------------------------------- */

#define RES_LORA(to, from)                                     \
    { from "_in_layers_2", to "_conv1" },                      \
    { from "_emb_layers_1", to "_time_emb_proj" },             \
    { from "_out_layers_3", to "_conv2" },                     \
    { from "_skip_connection", to "_conv_shortcut" }
#define ATTN_ROW(to, from, name) \
    { from "_transformer_blocks_#_" name, to "_transformer_blocks_#_" name }
#define ATTN_LORA(to, from)                                                              \
    { from "_proj_in", to "_proj_in" }, { from "_proj_out", to "_proj_out" },            \
    ATTN_ROW(to, from, "attn1_to_q"), ATTN_ROW(to, from, "attn1_to_k"),                  \
    ATTN_ROW(to, from, "attn1_to_v"), ATTN_ROW(to, from, "attn1_to_out_0"),              \
    ATTN_ROW(to, from, "attn2_to_q"), ATTN_ROW(to, from, "attn2_to_k"),                  \
    ATTN_ROW(to, from, "attn2_to_v"), ATTN_ROW(to, from, "attn2_to_out_0"),              \
    ATTN_ROW(to, from, "ff_net_0_proj"), ATTN_ROW(to, from, "ff_net_2")
#define BOTH_LORA(to, j, from) \
    RES_LORA(to "_resnets_" #j, from "_0"), ATTN_LORA(to "_attentions_" #j, from "_1")

/* Names of blocks have the same numbers in all models. Stable Diffusion XL has no modules for the
 * names of transformers in levels 0 of the input and 2 of the output, nor for a fourth level. */
const xd_lora_name xd_sdxl_lora_names[] = {
    BOTH_LORA("down_blocks_0", 0, "input_blocks_1"),
    BOTH_LORA("down_blocks_0", 1, "input_blocks_2"),
    BOTH_LORA("down_blocks_1", 0, "input_blocks_4"),
    BOTH_LORA("down_blocks_1", 1, "input_blocks_5"),
    BOTH_LORA("down_blocks_2", 0, "input_blocks_7"),
    BOTH_LORA("down_blocks_2", 1, "input_blocks_8"),
    RES_LORA("down_blocks_3_resnets_0", "input_blocks_10_0"),
    RES_LORA("down_blocks_3_resnets_1", "input_blocks_11_0"),
    BOTH_LORA("mid_block", 0, "middle_block"),
    RES_LORA("mid_block_resnets_1", "middle_block_2"),
    BOTH_LORA("up_blocks_0", 0, "output_blocks_0"),
    BOTH_LORA("up_blocks_0", 1, "output_blocks_1"),
    BOTH_LORA("up_blocks_0", 2, "output_blocks_2"),
    BOTH_LORA("up_blocks_1", 0, "output_blocks_3"),
    BOTH_LORA("up_blocks_1", 1, "output_blocks_4"),
    BOTH_LORA("up_blocks_1", 2, "output_blocks_5"),
    BOTH_LORA("up_blocks_2", 0, "output_blocks_6"),
    BOTH_LORA("up_blocks_2", 1, "output_blocks_7"),
    BOTH_LORA("up_blocks_2", 2, "output_blocks_8"),
    BOTH_LORA("up_blocks_3", 0, "output_blocks_9"),
    BOTH_LORA("up_blocks_3", 1, "output_blocks_10"),
    BOTH_LORA("up_blocks_3", 2, "output_blocks_11"),
    { "input_blocks_0_0", "conv_in" },
    { "input_blocks_3_0_op", "down_blocks_0_downsamplers_0_conv" },
    { "input_blocks_6_0_op", "down_blocks_1_downsamplers_0_conv" },
    { "input_blocks_9_0_op", "down_blocks_2_downsamplers_0_conv" },
    { "output_blocks_2_1_conv", "up_blocks_0_upsamplers_0_conv" },
    { "output_blocks_2_2_conv", "up_blocks_0_upsamplers_0_conv" },
    { "output_blocks_5_2_conv", "up_blocks_1_upsamplers_0_conv" },
    { "output_blocks_8_2_conv", "up_blocks_2_upsamplers_0_conv" },
    { "time_embed_0", "time_embedding_linear_1" },
    { "time_embed_2", "time_embedding_linear_2" },
    { "label_emb_0_0", "add_embedding_linear_1" },
    { "label_emb_0_2", "add_embedding_linear_2" },
    { "out_2", "conv_out" },
    { NULL, NULL },
};
