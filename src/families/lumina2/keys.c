/* keys.c - lists the names of tensors in single files of Lumina-Image 2.0 (original code and
 * ComfyUI: lumina_2_model_bf16.safetensors), and the names of modules in LoRA files that were
 * trained on these files */
#include "families/lumina2/keys.h"

#include <stddef.h>

/* One layer of a file has the queries, keys and values. There are three heads of queries for each
 * head of keys. */
#define BLOCK(norm1)                                                                              \
    XD_STEM_ROWS("attn.to_q", "attention.qkv", 0, 3, 5),                                          \
    XD_STEM_ROWS("attn.to_k", "attention.qkv", 3, 1, 5),                                          \
    XD_STEM_ROWS("attn.to_v", "attention.qkv", 4, 1, 5),                                          \
    XD_STEM("attn.to_out.0", "attention.out"),                                                    \
    XD_STEM("attn.norm_q.weight", "attention.q_norm.weight"),                                     \
    XD_STEM("attn.norm_k.weight", "attention.k_norm.weight"),                                     \
    XD_STEM("feed_forward.linear_1", "feed_forward.w1"),                                          \
    XD_STEM("feed_forward.linear_2", "feed_forward.w2"),                                          \
    XD_STEM("feed_forward.linear_3", "feed_forward.w3"),                                          \
    XD_STEM(norm1, "attention_norm1.weight"), XD_STEM("norm2.weight", "attention_norm2.weight"),  \
    XD_STEM("ffn_norm1.weight", "ffn_norm1.weight"),                                              \
    XD_STEM("ffn_norm2.weight", "ffn_norm2.weight"),                                              \
    XD_STEM("norm1.linear", "adaLN_modulation.1"), XD_STEMS_END

static const xd_stem timed[] = { BLOCK("norm1.norm.weight") };
static const xd_stem plain[] = { BLOCK("norm1.weight") };

static const xd_stem top[] = {
    XD_STEM("x_embedder", "x_embedder"),
    XD_STEM("norm_out.linear_1", "final_layer.adaLN_modulation.1"),
    XD_STEM("norm_out.linear_2", "final_layer.linear"),
    XD_STEM("time_caption_embed.caption_embedder.0.weight", "cap_embedder.0.weight"),
    XD_STEM("time_caption_embed.caption_embedder.1", "cap_embedder.1"),
    XD_STEM("time_caption_embed.timestep_embedder.linear_1", "t_embedder.mlp.0"),
    XD_STEM("time_caption_embed.timestep_embedder.linear_2", "t_embedder.mlp.2"),
    XD_STEMS_END,
};

const xd_key_map xd_lumina2_key_maps[] = {
    { { "lumina2" },
      "a Lumina-Image 2.0 transformer in the layout of ComfyUI",
      { "layers.0.attention.qkv.weight", "layers.0.adaLN_modulation.1.weight" },
      XD_DIT_PREFIXES,
      { { "noise_refiner.#.", "noise_refiner.#.", timed },
        { "context_refiner.#.", "context_refiner.#.", plain },
        { "layers.#.", "layers.#.", timed },
        { "", "", top } } },
    { { "lumina2" },
      "a Lumina-Image 2.0 transformer in the layout of diffusers",
      { "layers.0.norm1.linear.weight", "time_caption_embed.caption_embedder.0.weight" },
      XD_DIT_PREFIXES,
      { { "", "", NULL } } },
    { .what = NULL },
};

/* ---- modules of LoRA files ---------------------------------------------------------------- */

#define BLOCKS(list)                                                                               \
    { list "_#_attention_qkv",                                                                     \
      list "_#_attn_to_q " list "_#_attn_to_k " list "_#_attn_to_v" },                             \
    { list "_#_attention_out", list "_#_attn_to_out_0" },                                          \
    { list "_#_feed_forward_w1", list "_#_feed_forward_linear_1" },                                \
    { list "_#_feed_forward_w2", list "_#_feed_forward_linear_2" },                                \
    { list "_#_feed_forward_w3", list "_#_feed_forward_linear_3" },                                \
    { list "_#_adaLN_modulation_1", list "_#_norm1_linear" }

const xd_lora_name xd_lumina2_lora_names[] = {
    BLOCKS("layers"),
    BLOCKS("noise_refiner"),
    BLOCKS("context_refiner"),
    { "cap_embedder_1", "time_caption_embed_caption_embedder_1" },
    { "t_embedder_mlp_0", "time_caption_embed_timestep_embedder_linear_1" },
    { "t_embedder_mlp_2", "time_caption_embed_timestep_embedder_linear_2" },
    { "final_layer_adaLN_modulation_1", "norm_out_linear_1" },
    { "final_layer_linear", "norm_out_linear_2" },
    { NULL, NULL },
};
