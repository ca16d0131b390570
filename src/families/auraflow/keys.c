/* keys.c - lists the names of tensors in the files of AuraFlow (such as fal's
 * aura_flow_0.3.safetensors), and the names of modules in AuraFlow's LoRA files */
#include "families/auraflow/keys.h"

#include <stddef.h>

/* In the original names, 1 stands for the text and 2 for the image. */
static const xd_stem double_block[] = {
    XD_STEM("attn.to_q", "attn.w2q"),
    XD_STEM("attn.to_k", "attn.w2k"),
    XD_STEM("attn.to_v", "attn.w2v"),
    XD_STEM("attn.to_out.0", "attn.w2o"),
    XD_STEM("attn.add_q_proj", "attn.w1q"),
    XD_STEM("attn.add_k_proj", "attn.w1k"),
    XD_STEM("attn.add_v_proj", "attn.w1v"),
    XD_STEM("attn.to_add_out", "attn.w1o"),
    XD_STEM("ff.linear_1", "mlpX.c_fc1"),
    XD_STEM("ff.linear_2", "mlpX.c_fc2"),
    XD_STEM("ff.out_projection", "mlpX.c_proj"),
    XD_STEM("ff_context.linear_1", "mlpC.c_fc1"),
    XD_STEM("ff_context.linear_2", "mlpC.c_fc2"),
    XD_STEM("ff_context.out_projection", "mlpC.c_proj"),
    XD_STEM("norm1.linear", "modX.1"),
    XD_STEM("norm1_context.linear", "modC.1"),
    XD_STEMS_END,
};

static const xd_stem single_block[] = {
    XD_STEM("attn.to_q", "attn.w1q"),
    XD_STEM("attn.to_k", "attn.w1k"),
    XD_STEM("attn.to_v", "attn.w1v"),
    XD_STEM("attn.to_out.0", "attn.w1o"),
    XD_STEM("ff.linear_1", "mlp.c_fc1"),
    XD_STEM("ff.linear_2", "mlp.c_fc2"),
    XD_STEM("ff.out_projection", "mlp.c_proj"),
    XD_STEM("norm1.linear", "modCX.1"),
    XD_STEMS_END,
};

static const xd_stem top[] = {
    XD_STEM("pos_embed.pos_embed", "positional_encoding"),
    XD_STEM("pos_embed.proj", "init_x_linear"),
    XD_STEM("context_embedder", "cond_seq_linear"),
    XD_STEM("time_step_proj.linear_1", "t_embedder.mlp.0"),
    XD_STEM("time_step_proj.linear_2", "t_embedder.mlp.2"),
    XD_STEM("register_tokens", "register_tokens"),
    XD_STEM_SWAP("norm_out.linear", "modF.1", XD_SWAP_ALWAYS),
    XD_STEM("proj_out", "final_linear"),
    XD_STEMS_END,
};

/* Files with all parts of the pipeline, such as fal's, have the prefix "model.". */
#define PREFIXES { "", "model.", "model.diffusion_model.", "diffusion_model." }

const xd_key_map xd_auraflow_key_maps[] = {
    { { "auraflow" },
      "an AuraFlow transformer in its original layout",
      { "positional_encoding", "register_tokens" },
      PREFIXES,
      { { "joint_transformer_blocks.#.", "double_layers.#.", double_block },
        { "single_transformer_blocks.#.", "single_layers.#.", single_block },
        { "", "", top } } },
    { { "auraflow" },
      "an AuraFlow transformer in the layout of diffusers",
      { "pos_embed.pos_embed", "register_tokens" },
      PREFIXES,
      { { "joint_transformer_blocks.#.", "joint_transformer_blocks.#.", NULL },
        { "single_transformer_blocks.#.", "single_transformer_blocks.#.", NULL },
        { "", "", NULL } } },
    { .what = NULL },
};

/* ---- modules of LoRA files ---------------------------------------------------------------- */

const xd_lora_name xd_auraflow_lora_names[] = {
    { "double_layers_#_attn_w2q", "joint_transformer_blocks_#_attn_to_q" },
    { "double_layers_#_attn_w2k", "joint_transformer_blocks_#_attn_to_k" },
    { "double_layers_#_attn_w2v", "joint_transformer_blocks_#_attn_to_v" },
    { "double_layers_#_attn_w2o", "joint_transformer_blocks_#_attn_to_out_0" },
    { "double_layers_#_attn_w1q", "joint_transformer_blocks_#_attn_add_q_proj" },
    { "double_layers_#_attn_w1k", "joint_transformer_blocks_#_attn_add_k_proj" },
    { "double_layers_#_attn_w1v", "joint_transformer_blocks_#_attn_add_v_proj" },
    { "double_layers_#_attn_w1o", "joint_transformer_blocks_#_attn_to_add_out" },
    { "double_layers_#_mlpX_c_fc1", "joint_transformer_blocks_#_ff_linear_1" },
    { "double_layers_#_mlpX_c_fc2", "joint_transformer_blocks_#_ff_linear_2" },
    { "double_layers_#_mlpX_c_proj", "joint_transformer_blocks_#_ff_out_projection" },
    { "double_layers_#_mlpC_c_fc1", "joint_transformer_blocks_#_ff_context_linear_1" },
    { "double_layers_#_mlpC_c_fc2", "joint_transformer_blocks_#_ff_context_linear_2" },
    { "double_layers_#_mlpC_c_proj", "joint_transformer_blocks_#_ff_context_out_projection" },
    { "double_layers_#_modX_1", "joint_transformer_blocks_#_norm1_linear" },
    { "double_layers_#_modC_1", "joint_transformer_blocks_#_norm1_context_linear" },
    { "single_layers_#_attn_w1q", "single_transformer_blocks_#_attn_to_q" },
    { "single_layers_#_attn_w1k", "single_transformer_blocks_#_attn_to_k" },
    { "single_layers_#_attn_w1v", "single_transformer_blocks_#_attn_to_v" },
    { "single_layers_#_attn_w1o", "single_transformer_blocks_#_attn_to_out_0" },
    { "single_layers_#_mlp_c_fc1", "single_transformer_blocks_#_ff_linear_1" },
    { "single_layers_#_mlp_c_fc2", "single_transformer_blocks_#_ff_linear_2" },
    { "single_layers_#_mlp_c_proj", "single_transformer_blocks_#_ff_out_projection" },
    { "single_layers_#_modCX_1", "single_transformer_blocks_#_norm1_linear" },
    { "init_x_linear", "pos_embed_proj" },
    { "cond_seq_linear", "context_embedder" },
    { "t_embedder_mlp_0", "time_step_proj_linear_1" },
    { "t_embedder_mlp_2", "time_step_proj_linear_2" },
    { "modF_1", "~norm_out_linear" },
    { "final_linear", "proj_out" },
    { NULL, NULL },
};
