/* keys.c - lists the names of tensors in the files of Stable Diffusion 3 (Stability AI's
 * sd3_medium.safetensors and its successors), and the names of modules in LoRA files */
#include "families/sd3/keys.h"

#include <stddef.h>

/* Names of the tensors of a block. In the last block, the text's modulation has only shift and
 * scale, stored in the same order as in the final modulation. */
static const xd_stem sd3_block[] = {
    XD_STEM("norm1.linear", "x_block.adaLN_modulation.1"),
    { "norm1_context.linear", "context_block.adaLN_modulation.1", 0, 0, 0, XD_SWAP_LAST },
    XD_STEM_ROWS("attn.to_q", "x_block.attn.qkv", 0, 1, 3),
    XD_STEM_ROWS("attn.to_k", "x_block.attn.qkv", 1, 1, 3),
    XD_STEM_ROWS("attn.to_v", "x_block.attn.qkv", 2, 1, 3),
    XD_STEM_ROWS("attn.add_q_proj", "context_block.attn.qkv", 0, 1, 3),
    XD_STEM_ROWS("attn.add_k_proj", "context_block.attn.qkv", 1, 1, 3),
    XD_STEM_ROWS("attn.add_v_proj", "context_block.attn.qkv", 2, 1, 3),
    XD_STEM_ROWS("attn2.to_q", "x_block.attn2.qkv", 0, 1, 3),
    XD_STEM_ROWS("attn2.to_k", "x_block.attn2.qkv", 1, 1, 3),
    XD_STEM_ROWS("attn2.to_v", "x_block.attn2.qkv", 2, 1, 3),
    XD_STEM("attn.norm_q", "x_block.attn.ln_q"),
    XD_STEM("attn.norm_k", "x_block.attn.ln_k"),
    XD_STEM("attn.norm_added_q", "context_block.attn.ln_q"),
    XD_STEM("attn.norm_added_k", "context_block.attn.ln_k"),
    XD_STEM("attn2.norm_q", "x_block.attn2.ln_q"),
    XD_STEM("attn2.norm_k", "x_block.attn2.ln_k"),
    XD_STEM("attn.to_out.0", "x_block.attn.proj"),
    XD_STEM("attn.to_add_out", "context_block.attn.proj"),
    XD_STEM("attn2.to_out.0", "x_block.attn2.proj"),
    XD_STEM("ff.net.0.proj", "x_block.mlp.fc1"),
    XD_STEM("ff.net.2", "x_block.mlp.fc2"),
    XD_STEM("ff_context.net.0.proj", "context_block.mlp.fc1"),
    XD_STEM("ff_context.net.2", "context_block.mlp.fc2"),
    XD_STEMS_END,
};

static const xd_stem sd3_top[] = {
    XD_STEM("pos_embed.pos_embed", "pos_embed"),
    XD_STEM("pos_embed.proj", "x_embedder.proj"),
    XD_STEM("context_embedder", "context_embedder"),
    XD_STEM("time_text_embed.timestep_embedder.linear_1", "t_embedder.mlp.0"),
    XD_STEM("time_text_embed.timestep_embedder.linear_2", "t_embedder.mlp.2"),
    XD_STEM("time_text_embed.text_embedder.linear_1", "y_embedder.mlp.0"),
    XD_STEM("time_text_embed.text_embedder.linear_2", "y_embedder.mlp.2"),
    { "norm_out.linear", "final_layer.adaLN_modulation.1", 0, 0, 0, XD_SWAP_ALWAYS },
    XD_STEM("proj_out", "final_layer.linear"),
    XD_STEMS_END,
};

const xd_key_map xd_sd3_key_maps[] = {
    { { "sd3" },
      "a Stable Diffusion 3 transformer in its original layout",
      { "joint_blocks.0.x_block.attn.qkv.weight", "x_embedder.proj.weight" },
      XD_DIT_PREFIXES,
      { { "transformer_blocks.#.", "joint_blocks.#.", sd3_block }, { "", "", sd3_top } } },
    { { "sd3" },
      "a Stable Diffusion 3 transformer in the layout of diffusers",
      { "pos_embed.proj.weight", "context_embedder.weight" },
      XD_DIT_PREFIXES,
      { { "transformer_blocks.#.", "transformer_blocks.#.", NULL }, { "", "", NULL } } },
    { .what = NULL },
};

/* ---- modules of LoRA files ---------------------------------------------------------------- */

const xd_lora_name xd_sd3_lora_names[] = {
    { "joint_blocks_#_x_block_attn_qkv",
      "transformer_blocks_#_attn_to_q "
      "transformer_blocks_#_attn_to_k transformer_blocks_#_attn_to_v" },
    { "joint_blocks_#_x_block_attn2_qkv",
      "transformer_blocks_#_attn2_to_q "
      "transformer_blocks_#_attn2_to_k transformer_blocks_#_attn2_to_v" },
    { "joint_blocks_#_context_block_attn_qkv",
      "transformer_blocks_#_attn_add_q_proj "
      "transformer_blocks_#_attn_add_k_proj transformer_blocks_#_attn_add_v_proj" },
    { "joint_blocks_#_x_block_attn_proj", "transformer_blocks_#_attn_to_out_0" },
    { "joint_blocks_#_x_block_attn2_proj", "transformer_blocks_#_attn2_to_out_0" },
    { "joint_blocks_#_context_block_attn_proj", "transformer_blocks_#_attn_to_add_out" },
    { "joint_blocks_#_x_block_mlp_fc1", "transformer_blocks_#_ff_net_0_proj" },
    { "joint_blocks_#_x_block_mlp_fc2", "transformer_blocks_#_ff_net_2" },
    { "joint_blocks_#_context_block_mlp_fc1", "transformer_blocks_#_ff_context_net_0_proj" },
    { "joint_blocks_#_context_block_mlp_fc2", "transformer_blocks_#_ff_context_net_2" },
    { "joint_blocks_#_x_block_adaLN_modulation_1", "transformer_blocks_#_norm1_linear" },
    { "joint_blocks_#_context_block_adaLN_modulation_1",
      "~transformer_blocks_#_norm1_context_linear" },
    { "x_embedder_proj", "pos_embed_proj" },
    { "t_embedder_mlp_0", "time_text_embed_timestep_embedder_linear_1" },
    { "t_embedder_mlp_2", "time_text_embed_timestep_embedder_linear_2" },
    { "y_embedder_mlp_0", "time_text_embed_text_embedder_linear_1" },
    { "y_embedder_mlp_2", "time_text_embed_text_embedder_linear_2" },
    { "final_layer_linear", "proj_out" },
    { "final_layer_adaLN_modulation_1", "~norm_out_linear" },
    { NULL, NULL },
};
