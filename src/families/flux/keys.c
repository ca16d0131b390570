/* keys.c - lists the names of tensors in the files of FLUX.1 (such as Black Forest Labs'
 * flux1-dev.safetensors), and the names of modules in FLUX.1's LoRA files */
#include "families/flux/keys.h"

#include <stddef.h>

static const xd_stem flux_double[] = {
    XD_STEM("norm1.linear", "img_mod.lin"),
    XD_STEM("norm1_context.linear", "txt_mod.lin"),
    XD_STEM_ROWS("attn.to_q", "img_attn.qkv", 0, 1, 3),
    XD_STEM_ROWS("attn.to_k", "img_attn.qkv", 1, 1, 3),
    XD_STEM_ROWS("attn.to_v", "img_attn.qkv", 2, 1, 3),
    XD_STEM_ROWS("attn.add_q_proj", "txt_attn.qkv", 0, 1, 3),
    XD_STEM_ROWS("attn.add_k_proj", "txt_attn.qkv", 1, 1, 3),
    XD_STEM_ROWS("attn.add_v_proj", "txt_attn.qkv", 2, 1, 3),
    XD_STEM("attn.norm_q.weight", "img_attn.norm.query_norm.scale"),
    XD_STEM("attn.norm_k.weight", "img_attn.norm.key_norm.scale"),
    XD_STEM("attn.norm_added_q.weight", "txt_attn.norm.query_norm.scale"),
    XD_STEM("attn.norm_added_k.weight", "txt_attn.norm.key_norm.scale"),
    XD_STEM("attn.to_out.0", "img_attn.proj"),
    XD_STEM("attn.to_add_out", "txt_attn.proj"),
    XD_STEM("ff.net.0.proj", "img_mlp.0"),
    XD_STEM("ff.net.2", "img_mlp.2"),
    XD_STEM("ff_context.net.0.proj", "txt_mlp.0"),
    XD_STEM("ff_context.net.2", "txt_mlp.2"),
    XD_STEMS_END,
};

/* Names of the tensors of a single block. The tensor linear1 contains the rows of query, key, value
 * and feed-forward; the feed-forward has four times as many rows as the query. */
static const xd_stem flux_single[] = {
    XD_STEM("norm.linear", "modulation.lin"),
    XD_STEM_ROWS("attn.to_q", "linear1", 0, 1, 7),
    XD_STEM_ROWS("attn.to_k", "linear1", 1, 1, 7),
    XD_STEM_ROWS("attn.to_v", "linear1", 2, 1, 7),
    XD_STEM_ROWS("proj_mlp", "linear1", 3, 4, 7),
    XD_STEM("attn.norm_q.weight", "norm.query_norm.scale"),
    XD_STEM("attn.norm_k.weight", "norm.key_norm.scale"),
    XD_STEM("proj_out", "linear2"),
    XD_STEMS_END,
};

/* Names of the tensors outside the blocks. The final modulation's rows are stored as (shift, scale)
 * in the original files, but the network declares them as (scale, shift). */
#define FLUX_INPUTS                                                                       \
    XD_STEM("x_embedder", "img_in"), XD_STEM("context_embedder", "txt_in"),               \
    XD_STEM("time_text_embed.timestep_embedder.linear_1", "time_in.in_layer"),            \
    XD_STEM("time_text_embed.timestep_embedder.linear_2", "time_in.out_layer"),           \
    XD_STEM("time_text_embed.guidance_embedder.linear_1", "guidance_in.in_layer"),        \
    XD_STEM("time_text_embed.guidance_embedder.linear_2", "guidance_in.out_layer"),       \
    XD_STEM("time_text_embed.text_embedder.linear_1", "vector_in.in_layer"),              \
    XD_STEM("time_text_embed.text_embedder.linear_2", "vector_in.out_layer")

static const xd_stem flux_top[] = {
    FLUX_INPUTS,
    { "norm_out.linear", "final_layer.adaLN_modulation.1", 0, 0, 0, XD_SWAP_ALWAYS },
    XD_STEM("proj_out", "final_layer.linear"),
    XD_STEMS_END,
};

/* Names of the tensors outside the blocks of a control network of XLabs. input_hint_block is a list
 * of convolutions and activations. */
static const xd_stem flux_xlabs_top[] = {
    FLUX_INPUTS,
    XD_STEM("controlnet_x_embedder", "pos_embed_input"),
    XD_STEM("input_hint_block.conv_in", "input_hint_block.0"),
    XD_STEM("input_hint_block.blocks.0", "input_hint_block.2"),
    XD_STEM("input_hint_block.blocks.1", "input_hint_block.4"),
    XD_STEM("input_hint_block.blocks.2", "input_hint_block.6"),
    XD_STEM("input_hint_block.blocks.3", "input_hint_block.8"),
    XD_STEM("input_hint_block.blocks.4", "input_hint_block.10"),
    XD_STEM("input_hint_block.blocks.5", "input_hint_block.12"),
    XD_STEM("input_hint_block.conv_out", "input_hint_block.14"),
    XD_STEMS_END,
};

/* Tensor names of double blocks in the files that SVDQuant writes for nunchaku. */
static const xd_stem flux_svd_double[] = {
    XD_STEM("norm1.linear", "norm1.linear"),
    XD_STEM("norm1_context.linear", "norm1_context.linear"),
    XD_STEM_ROWS("attn.to_q", "qkv_proj", 0, 1, 3),
    XD_STEM_ROWS("attn.to_k", "qkv_proj", 1, 1, 3),
    XD_STEM_ROWS("attn.to_v", "qkv_proj", 2, 1, 3),
    XD_STEM_ROWS("attn.add_q_proj", "qkv_proj_context", 0, 1, 3),
    XD_STEM_ROWS("attn.add_k_proj", "qkv_proj_context", 1, 1, 3),
    XD_STEM_ROWS("attn.add_v_proj", "qkv_proj_context", 2, 1, 3),
    XD_STEM("attn.norm_q", "norm_q"),
    XD_STEM("attn.norm_k", "norm_k"),
    XD_STEM("attn.norm_added_q", "norm_added_q"),
    XD_STEM("attn.norm_added_k", "norm_added_k"),
    XD_STEM("attn.to_out.0", "out_proj"),
    XD_STEM("attn.to_add_out", "out_proj_context"),
    XD_STEM("ff.net.0.proj", "mlp_fc1"),
    XD_STEM("ff.net.2", "mlp_fc2"),
    XD_STEM("ff_context.net.0.proj", "mlp_context_fc1"),
    XD_STEM("ff_context.net.2", "mlp_context_fc2"),
    XD_STEMS_END,
};
static const xd_stem flux_svd_single[] = {
    XD_STEM("norm.linear", "norm.linear"),
    XD_STEM_ROWS("attn.to_q", "qkv_proj", 0, 1, 3),
    XD_STEM_ROWS("attn.to_k", "qkv_proj", 1, 1, 3),
    XD_STEM_ROWS("attn.to_v", "qkv_proj", 2, 1, 3),
    XD_STEM("attn.norm_q", "norm_q"),
    XD_STEM("attn.norm_k", "norm_k"),
    XD_STEM("proj_mlp", "mlp_fc1"),
    XD_STEM("proj_out", "out_proj+mlp_fc2"),
    XD_STEMS_END,
};

const xd_key_map xd_flux_key_maps[] = {
    { { "flux" },
      "a FLUX.1 transformer of SVDQuant",
      { "transformer_blocks.0.qkv_proj.qweight", "single_transformer_blocks.0.qkv_proj.qweight" },
      XD_DIT_PREFIXES,
      { { "transformer_blocks.#.", "transformer_blocks.#.", flux_svd_double },
        { "single_transformer_blocks.#.", "single_transformer_blocks.#.", flux_svd_single },
        { "", "", NULL } } },
    { { "flux" },
      "a FLUX.1 transformer in its original layout",
      { "double_blocks.0.img_attn.qkv.weight", "vector_in.in_layer.weight",
        "final_layer.linear.weight" },
      XD_DIT_PREFIXES,
      { { "transformer_blocks.#.", "double_blocks.#.", flux_double },
        { "single_transformer_blocks.#.", "single_blocks.#.", flux_single },
        { "", "", flux_top } } },
    { { "flux" },
      "a FLUX.1 transformer in the layout of diffusers",
      { "x_embedder.weight", "context_embedder.weight" },
      XD_DIT_PREFIXES,
      { { "transformer_blocks.#.", "transformer_blocks.#.", NULL },
        { "single_transformer_blocks.#.", "single_transformer_blocks.#.", NULL },
        { "", "", NULL } } },
    { { XD_FLUX_SIDE_NET },
      "a control network of XLabs for FLUX.1",
      { "pos_embed_input.weight", "input_hint_block.14.weight" },
      { "" },
      { { "transformer_blocks.#.", "double_blocks.#.", flux_double },
        { "controlnet_blocks.#.", "controlnet_blocks.#.", NULL },
        { "", "", flux_xlabs_top } } },
    { .what = NULL },
};

/* ---- modules of LoRA files ---------------------------------------------------------------- */

const xd_lora_name xd_flux_lora_names[] = {
    { "double_blocks_#_img_attn_qkv",
      "transformer_blocks_#_attn_to_q transformer_blocks_#_attn_to_k "
      "transformer_blocks_#_attn_to_v" },
    { "double_blocks_#_txt_attn_qkv",
      "transformer_blocks_#_attn_add_q_proj "
      "transformer_blocks_#_attn_add_k_proj transformer_blocks_#_attn_add_v_proj" },
    { "double_blocks_#_img_attn_proj", "transformer_blocks_#_attn_to_out_0" },
    { "double_blocks_#_txt_attn_proj", "transformer_blocks_#_attn_to_add_out" },
    { "double_blocks_#_img_mlp_0", "transformer_blocks_#_ff_net_0_proj" },
    { "double_blocks_#_img_mlp_2", "transformer_blocks_#_ff_net_2" },
    { "double_blocks_#_txt_mlp_0", "transformer_blocks_#_ff_context_net_0_proj" },
    { "double_blocks_#_txt_mlp_2", "transformer_blocks_#_ff_context_net_2" },
    { "double_blocks_#_img_mod_lin", "transformer_blocks_#_norm1_linear" },
    { "double_blocks_#_txt_mod_lin", "transformer_blocks_#_norm1_context_linear" },
    { "double_blocks_#_processor_qkv_lora1",
      "transformer_blocks_#_attn_to_q "
      "transformer_blocks_#_attn_to_k transformer_blocks_#_attn_to_v" },
    { "double_blocks_#_processor_qkv_lora2",
      "transformer_blocks_#_attn_add_q_proj "
      "transformer_blocks_#_attn_add_k_proj transformer_blocks_#_attn_add_v_proj" },
    { "double_blocks_#_processor_proj_lora1", "transformer_blocks_#_attn_to_out_0" },
    { "double_blocks_#_processor_proj_lora2", "transformer_blocks_#_attn_to_add_out" },
    { "single_blocks_#_processor_qkv",
      "single_transformer_blocks_#_attn_to_q "
      "single_transformer_blocks_#_attn_to_k single_transformer_blocks_#_attn_to_v" },
    { "single_blocks_#_processor_proj", "single_transformer_blocks_#_proj_out" },
    { "single_blocks_#_linear1",
      "single_transformer_blocks_#_attn_to_q "
      "single_transformer_blocks_#_attn_to_k single_transformer_blocks_#_attn_to_v "
      "single_transformer_blocks_#_proj_mlp" },
    { "single_blocks_#_linear2", "single_transformer_blocks_#_proj_out" },
    { "single_blocks_#_modulation_lin", "single_transformer_blocks_#_norm_linear" },
    { "double_blocks_#_img_attn_norm_query_norm", "transformer_blocks_#_attn_norm_q" },
    { "double_blocks_#_img_attn_norm_key_norm", "transformer_blocks_#_attn_norm_k" },
    { "double_blocks_#_txt_attn_norm_query_norm", "transformer_blocks_#_attn_norm_added_q" },
    { "double_blocks_#_txt_attn_norm_key_norm", "transformer_blocks_#_attn_norm_added_k" },
    { "single_blocks_#_norm_query_norm", "single_transformer_blocks_#_attn_norm_q" },
    { "single_blocks_#_norm_key_norm", "single_transformer_blocks_#_attn_norm_k" },
    { "img_in", "x_embedder" },
    { "txt_in", "context_embedder" },
    { "time_in_in_layer", "time_text_embed_timestep_embedder_linear_1" },
    { "time_in_out_layer", "time_text_embed_timestep_embedder_linear_2" },
    { "guidance_in_in_layer", "time_text_embed_guidance_embedder_linear_1" },
    { "guidance_in_out_layer", "time_text_embed_guidance_embedder_linear_2" },
    { "vector_in_in_layer", "time_text_embed_text_embedder_linear_1" },
    { "vector_in_out_layer", "time_text_embed_text_embedder_linear_2" },
    { "final_layer_linear", "proj_out" },
    { "final_layer_adaLN_modulation_1", "~norm_out_linear" },
    { NULL, NULL },
};
