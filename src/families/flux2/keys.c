/* keys.c - lists the names of tensors in the files of FLUX.2 (such as Black Forest Labs'
 * flux2-dev.safetensors), and the names of modules in FLUX.2's LoRA files */
#include "families/flux2/keys.h"

#include <stddef.h>

static const xd_stem pair[] = {
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
    XD_STEM("ff.linear_in", "img_mlp.0"),
    XD_STEM("ff.linear_out", "img_mlp.2"),
    XD_STEM("ff_context.linear_in", "txt_mlp.0"),
    XD_STEM("ff_context.linear_out", "txt_mlp.2"),
    XD_STEMS_END,
};

static const xd_stem solo[] = {
    XD_STEM("attn.to_qkv_mlp_proj", "linear1"),
    XD_STEM("attn.to_out", "linear2"),
    XD_STEM("attn.norm_q.weight", "norm.query_norm.scale"),
    XD_STEM("attn.norm_k.weight", "norm.key_norm.scale"),
    XD_STEMS_END,
};

/* Names of the tensors outside the blocks. The final modulation's rows are stored as (shift, scale)
 * in the original files, but the network declares them as (scale, shift). */
static const xd_stem top[] = {
    XD_STEM("x_embedder", "img_in"),
    XD_STEM("context_embedder", "txt_in"),
    XD_STEM("time_guidance_embed.timestep_embedder.linear_1", "time_in.in_layer"),
    XD_STEM("time_guidance_embed.timestep_embedder.linear_2", "time_in.out_layer"),
    XD_STEM("time_guidance_embed.guidance_embedder.linear_1", "guidance_in.in_layer"),
    XD_STEM("time_guidance_embed.guidance_embedder.linear_2", "guidance_in.out_layer"),
    XD_STEM("double_stream_modulation_img.linear", "double_stream_modulation_img.lin"),
    XD_STEM("double_stream_modulation_txt.linear", "double_stream_modulation_txt.lin"),
    XD_STEM("single_stream_modulation.linear", "single_stream_modulation.lin"),
    { "norm_out.linear", "final_layer.adaLN_modulation.1", 0, 0, 0, XD_SWAP_ALWAYS },
    XD_STEM("proj_out", "final_layer.linear"),
    XD_STEMS_END,
};

const xd_key_map xd_flux2_key_maps[] = {
    { { "flux2" },
      "a FLUX.2 transformer in its original layout",
      { "single_stream_modulation.lin.weight", "img_in.weight" },
      XD_DIT_PREFIXES,
      { { "transformer_blocks.#.", "double_blocks.#.", pair },
        { "single_transformer_blocks.#.", "single_blocks.#.", solo },
        { "", "", top } } },
    { { "flux2" },
      "a FLUX.2 transformer in the layout of diffusers",
      { "single_stream_modulation.linear.weight", "x_embedder.weight" },
      XD_DIT_PREFIXES,
      { { "transformer_blocks.#.", "transformer_blocks.#.", NULL },
        { "single_transformer_blocks.#.", "single_transformer_blocks.#.", NULL },
        { "", "", NULL } } },
    { .what = NULL },
};

/* ---- modules of LoRA files ---------------------------------------------------------------- */

const xd_lora_name xd_flux2_lora_names[] = {
    { "double_blocks_#_img_attn_qkv",
      "transformer_blocks_#_attn_to_q transformer_blocks_#_attn_to_k "
      "transformer_blocks_#_attn_to_v" },
    { "double_blocks_#_txt_attn_qkv",
      "transformer_blocks_#_attn_add_q_proj "
      "transformer_blocks_#_attn_add_k_proj transformer_blocks_#_attn_add_v_proj" },
    { "transformer_blocks_#_attn_to_qkv", /* fused projection of query, key and value */
      "transformer_blocks_#_attn_to_q transformer_blocks_#_attn_to_k "
      "transformer_blocks_#_attn_to_v" },
    { "transformer_blocks_#_attn_to_added_qkv",
      "transformer_blocks_#_attn_add_q_proj "
      "transformer_blocks_#_attn_add_k_proj transformer_blocks_#_attn_add_v_proj" },
    { "double_blocks_#_img_attn_proj", "transformer_blocks_#_attn_to_out_0" },
    { "double_blocks_#_txt_attn_proj", "transformer_blocks_#_attn_to_add_out" },
    { "double_blocks_#_img_mlp_0", "transformer_blocks_#_ff_linear_in" },
    { "double_blocks_#_img_mlp_2", "transformer_blocks_#_ff_linear_out" },
    { "double_blocks_#_txt_mlp_0", "transformer_blocks_#_ff_context_linear_in" },
    { "double_blocks_#_txt_mlp_2", "transformer_blocks_#_ff_context_linear_out" },
    { "single_blocks_#_linear1", "single_transformer_blocks_#_attn_to_qkv_mlp_proj" },
    { "single_blocks_#_linear2", "single_transformer_blocks_#_attn_to_out" },
    { "img_in", "x_embedder" },
    { "txt_in", "context_embedder" },
    { "time_in_in_layer", "time_guidance_embed_timestep_embedder_linear_1" },
    { "time_in_out_layer", "time_guidance_embed_timestep_embedder_linear_2" },
    { "guidance_in_in_layer", "time_guidance_embed_guidance_embedder_linear_1" },
    { "guidance_in_out_layer", "time_guidance_embed_guidance_embedder_linear_2" },
    { "double_stream_modulation_img_lin", "double_stream_modulation_img_linear" },
    { "double_stream_modulation_txt_lin", "double_stream_modulation_txt_linear" },
    { "single_stream_modulation_lin", "single_stream_modulation_linear" },
    { "final_layer_linear", "proj_out" },
    { "final_layer_adaLN_modulation_1", "~norm_out_linear" },
    { NULL, NULL },
};
