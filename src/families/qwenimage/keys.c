/* keys.c - lists the names of tensors in single files of Qwen-Image.
 *
 * Original files have diffusers' names; ComfyUI's files (qwen_image_bf16.safetensors) have the same
 * names. */
#include "families/qwenimage/keys.h"

#include <stddef.h>

/* Tensor names in the files that SVDQuant writes for nunchaku. */
static const xd_stem qwenimage_svd[] = {
    XD_STEM_ROWS("attn.to_q", "attn.to_qkv", 0, 1, 3),
    XD_STEM_ROWS("attn.to_k", "attn.to_qkv", 1, 1, 3),
    XD_STEM_ROWS("attn.to_v", "attn.to_qkv", 2, 1, 3),
    XD_STEM_ROWS("attn.add_q_proj", "attn.add_qkv_proj", 0, 1, 3),
    XD_STEM_ROWS("attn.add_k_proj", "attn.add_qkv_proj", 1, 1, 3),
    XD_STEM_ROWS("attn.add_v_proj", "attn.add_qkv_proj", 2, 1, 3),
    XD_STEM("attn.norm_q", "attn.norm_q"),
    XD_STEM("attn.norm_k", "attn.norm_k"),
    XD_STEM("attn.norm_added_q", "attn.norm_added_q"),
    XD_STEM("attn.norm_added_k", "attn.norm_added_k"),
    XD_STEM("attn.to_out.0", "attn.to_out.0"),
    XD_STEM("attn.to_add_out", "attn.to_add_out"),
    XD_STEM("img_mlp.net.0.proj", "img_mlp.net.0.proj"),
    XD_STEM("img_mlp.net.2", "img_mlp.net.2"),
    XD_STEM("txt_mlp.net.0.proj", "txt_mlp.net.0.proj"),
    XD_STEM("txt_mlp.net.2", "txt_mlp.net.2"),
    XD_STEM("img_mod.1", "img_mod.1"),
    XD_STEM("txt_mod.1", "txt_mod.1"),
    XD_STEMS_END,
};

const xd_key_map xd_qwenimage_key_maps[] = {
    { { "qwenimage" },
      "a Qwen-Image transformer of SVDQuant",
      { "txt_norm.weight", "transformer_blocks.0.attn.to_qkv.qweight" },
      XD_DIT_PREFIXES,
      { { "transformer_blocks.#.", "transformer_blocks.#.", qwenimage_svd }, { "", "", NULL } } },
    { { "qwenimage" },
      "a Qwen-Image transformer",
      { "txt_norm.weight", "transformer_blocks.0.img_mod.1.weight" },
      XD_DIT_PREFIXES,
      { { "transformer_blocks.#.", "transformer_blocks.#.", NULL }, { "", "", NULL } } },
    { { "qwenimage21" },
      "a Qwen-Image-2.1 transformer",
      { "txt_in.text_norm.weight", "transformer_blocks.0.img_mlp.gate_layer.weight" },
      XD_DIT_PREFIXES,
      { { "transformer_blocks.#.", "transformer_blocks.#.", NULL }, { "", "", NULL } } },
    { .what = NULL },
};
