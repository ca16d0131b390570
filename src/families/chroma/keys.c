/* keys.c - lists the names of tensors in the files of Chroma (such as lodestones'
 * Chroma1-HD.safetensors), and the names of modules in Chroma's LoRA files */
#include "families/chroma/keys.h"

#include <stddef.h>

static const xd_stem double_block[] = {
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
static const xd_stem single_block[] = {
    XD_STEM_ROWS("attn.to_q", "linear1", 0, 1, 7),
    XD_STEM_ROWS("attn.to_k", "linear1", 1, 1, 7),
    XD_STEM_ROWS("attn.to_v", "linear1", 2, 1, 7),
    XD_STEM_ROWS("proj_mlp", "linear1", 3, 4, 7),
    XD_STEM("attn.norm_q.weight", "norm.query_norm.scale"),
    XD_STEM("attn.norm_k.weight", "norm.key_norm.scale"),
    XD_STEM("proj_out", "linear2"),
    XD_STEMS_END,
};

static const xd_stem layer[] = {
    XD_STEM("linear_1", "in_layer"),
    XD_STEM("linear_2", "out_layer"),
    XD_STEMS_END,
};

static const xd_stem norm[] = {
    XD_STEM("weight", "scale"),
    XD_STEMS_END,
};

static const xd_stem top[] = {
    XD_STEM("x_embedder", "img_in"),
    XD_STEM("context_embedder", "txt_in"),
    XD_STEM("distilled_guidance_layer.in_proj", "distilled_guidance_layer.in_proj"),
    XD_STEM("distilled_guidance_layer.out_proj", "distilled_guidance_layer.out_proj"),
    XD_STEM("proj_out", "final_layer.linear"),
    XD_STEMS_END,
};

#define APPROXIMATOR "distilled_guidance_layer."

const xd_key_map xd_chroma_key_maps[] = {
    { { "chroma" },
      "a Chroma transformer in its original layout",
      { "double_blocks.0.img_attn.qkv.weight", APPROXIMATOR "in_proj.weight" },
      XD_DIT_PREFIXES,
      { { "transformer_blocks.#.", "double_blocks.#.", double_block },
        { "single_transformer_blocks.#.", "single_blocks.#.", single_block },
        { APPROXIMATOR "layers.#.", APPROXIMATOR "layers.#.", layer },
        { APPROXIMATOR "norms.#.", APPROXIMATOR "norms.#.", norm },
        { "", "", top } } },
    { { "chroma" },
      "a Chroma transformer in the layout of diffusers",
      { "x_embedder.weight", APPROXIMATOR "in_proj.weight" },
      XD_DIT_PREFIXES,
      { { "transformer_blocks.#.", "transformer_blocks.#.", NULL },
        { "single_transformer_blocks.#.", "single_transformer_blocks.#.", NULL },
        { APPROXIMATOR "layers.#.", APPROXIMATOR "layers.#.", NULL },
        { "", "", NULL } } },
    { .what = NULL },
};

/* ---- modules of LoRA files ---------------------------------------------------------------- */

const xd_lora_name xd_chroma_lora_names[] = {
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
    { "single_blocks_#_linear1",
      "single_transformer_blocks_#_attn_to_q "
      "single_transformer_blocks_#_attn_to_k single_transformer_blocks_#_attn_to_v "
      "single_transformer_blocks_#_proj_mlp" },
    { "single_blocks_#_linear2", "single_transformer_blocks_#_proj_out" },
    { "distilled_guidance_layer_layers_#_in_layer", "distilled_guidance_layer_layers_#_linear_1" },
    { "distilled_guidance_layer_layers_#_out_layer", "distilled_guidance_layer_layers_#_linear_2" },
    { "img_in", "x_embedder" },
    { "txt_in", "context_embedder" },
    { "final_layer_linear", "proj_out" },
    { NULL, NULL },
};
