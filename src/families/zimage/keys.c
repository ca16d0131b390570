/* keys.c - lists the names of tensors in single files of Z-Image (ComfyUI:
 * z_image_turbo_bf16.safetensors), and the names of modules in LoRA files that were trained on
 * these files */
#include "families/zimage/keys.h"

#include <stddef.h>

static const xd_stem zimage_block[] = {
    XD_STEM_ROWS("attention.to_q", "attention.qkv", 0, 1, 3),
    XD_STEM_ROWS("attention.to_k", "attention.qkv", 1, 1, 3),
    XD_STEM_ROWS("attention.to_v", "attention.qkv", 2, 1, 3),
    XD_STEM("attention.to_out.0", "attention.out"),
    XD_STEM("attention.norm_q.weight", "attention.q_norm.weight"),
    XD_STEM("attention.norm_k.weight", "attention.k_norm.weight"),
    XD_STEM("feed_forward.w1", "feed_forward.w1"),
    XD_STEM("feed_forward.w2", "feed_forward.w2"),
    XD_STEM("feed_forward.w3", "feed_forward.w3"),
    XD_STEM("attention_norm1.weight", "attention_norm1.weight"),
    XD_STEM("attention_norm2.weight", "attention_norm2.weight"),
    XD_STEM("ffn_norm1.weight", "ffn_norm1.weight"),
    XD_STEM("ffn_norm2.weight", "ffn_norm2.weight"),
    XD_STEM("adaLN_modulation.0", "adaLN_modulation.0"),
    XD_STEMS_END,
};

static const xd_stem zimage_top[] = {
    XD_STEM("all_x_embedder.2-1", "x_embedder"),
    XD_STEM("all_final_layer.2-1.linear", "final_layer.linear"),
    XD_STEM("all_final_layer.2-1.adaLN_modulation.1", "final_layer.adaLN_modulation.1"),
    XD_STEM("cap_embedder.0.weight", "cap_embedder.0.weight"),
    XD_STEM("cap_embedder.1", "cap_embedder.1"),
    XD_STEM("t_embedder.mlp.0", "t_embedder.mlp.0"),
    XD_STEM("t_embedder.mlp.2", "t_embedder.mlp.2"),
    XD_STEM("x_pad_token", "x_pad_token"),
    XD_STEM("cap_pad_token", "cap_pad_token"),
    XD_STEMS_END,
};

/* Tensor names in the files that SVDQuant writes for nunchaku, in which w3 and w1 are one layer. */
#define ZIMAGE_SVD(q, k, v)                                                               \
    q, k, v, XD_STEM("attention.to_out.0", "attention.to_out.0"),                         \
    XD_STEM("attention.norm_q", "attention.norm_q"),                                      \
    XD_STEM("attention.norm_k", "attention.norm_k"),                                      \
    XD_STEM_ROWS("feed_forward.w3", "feed_forward.net.0.proj", 0, 1, 2),                  \
    XD_STEM_ROWS("feed_forward.w1", "feed_forward.net.0.proj", 1, 1, 2),                  \
    XD_STEM("feed_forward.w2", "feed_forward.net.2"),                                     \
    XD_STEM("attention_norm1", "attention_norm1"),                                        \
    XD_STEM("attention_norm2", "attention_norm2"), XD_STEM("ffn_norm1", "ffn_norm1"),     \
    XD_STEM("ffn_norm2", "ffn_norm2"),                                                    \
    XD_STEM("adaLN_modulation.0", "adaLN_modulation.0"), XD_STEMS_END
static const xd_stem zimage_svd[] = {
    ZIMAGE_SVD(XD_STEM_ROWS("attention.to_q", "attention.to_qkv", 0, 1, 3),
               XD_STEM_ROWS("attention.to_k", "attention.to_qkv", 1, 1, 3),
               XD_STEM_ROWS("attention.to_v", "attention.to_qkv", 2, 1, 3)),
};
static const xd_stem zimage_svd_plain[] = {
    ZIMAGE_SVD(XD_STEM("attention.to_q", "attention.to_q"),
               XD_STEM("attention.to_k", "attention.to_k"),
               XD_STEM("attention.to_v", "attention.to_v")),
};
#define ZIMAGE_SVD_SCOPES(refiner)                                                        \
    { { "noise_refiner.#.", "noise_refiner.#.", refiner },                                \
      { "context_refiner.#.", "context_refiner.#.", refiner },                            \
      { "layers.#.", "layers.#.", zimage_svd }, { "", "", NULL } }

const xd_key_map xd_zimage_key_maps[] = {
    { { "zimage" },
      "a Z-Image transformer of SVDQuant",
      { "layers.0.attention.to_qkv.qweight", "noise_refiner.0.attention.to_qkv.qweight" },
      XD_DIT_PREFIXES,
      ZIMAGE_SVD_SCOPES(zimage_svd) },
    { { "zimage" },
      "a Z-Image transformer of SVDQuant with plain refiners",
      { "layers.0.attention.to_qkv.qweight", "noise_refiner.0.attention.to_q.weight" },
      XD_DIT_PREFIXES,
      ZIMAGE_SVD_SCOPES(zimage_svd_plain) },
    { { "zimage" },
      "a Z-Image transformer in the layout of ComfyUI",
      { "layers.0.attention.qkv.weight", "cap_pad_token" },
      XD_DIT_PREFIXES,
      { { "noise_refiner.#.", "noise_refiner.#.", zimage_block },
        { "context_refiner.#.", "context_refiner.#.", zimage_block },
        { "layers.#.", "layers.#.", zimage_block },
        { "", "", zimage_top } } },
    { { "zimage" },
      "a Z-Image transformer in the layout of diffusers",
      { "layers.0.attention.to_q.weight", "cap_pad_token" },
      XD_DIT_PREFIXES,
      { { "", "", NULL } } },
    { .what = NULL },
};

/* ---- modules of LoRA files ---------------------------------------------------------------- */

#define BLOCKS(list)                                                                               \
    { list "_#_attention_qkv", list "_#_attention_to_q " list "_#_attention_to_k "                 \
                               list "_#_attention_to_v" },                                         \
    { list "_#_attention_out", list "_#_attention_to_out_0" }

const xd_lora_name xd_zimage_lora_names[] = {
    BLOCKS("layers"),
    BLOCKS("noise_refiner"),
    BLOCKS("context_refiner"),
    { "x_embedder", "all_x_embedder_2-1" },
    { "final_layer_linear", "all_final_layer_2-1_linear" },
    { "final_layer_adaLN_modulation_1", "all_final_layer_2-1_adaLN_modulation_1" },
    { NULL, NULL },
};
