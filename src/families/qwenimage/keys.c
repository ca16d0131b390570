/* keys.c - lists the names of tensors in single files of Qwen-Image, and the names of modules in
 * LoRA files that were trained on these files.
 *
 * Original files have diffusers' names; ComfyUI's files (qwen_image_bf16.safetensors) have the same
 * names. In files of Qwen-Image-2.1 (qwen_image_2.1_bf16.safetensors) the feed-forward's gate and
 * input are one tensor. */
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

/* Tensor names in ComfyUI's and GGUF files of Qwen-Image-2.1. */
static const xd_stem qwenimage21_joint[] = {
    XD_STEM("attn.to_q", "attn.to_q"),
    XD_STEM("attn.to_k", "attn.to_k"),
    XD_STEM("attn.to_v", "attn.to_v"),
    XD_STEM("attn.to_out.0", "attn.to_out.0"),
    XD_STEM("attn.norm_q", "attn.norm_q"),
    XD_STEM("attn.norm_k", "attn.norm_k"),
    XD_STEM_ROWS("img_mlp.gate_layer", "img_mlp.gate_up", 0, 1, 2),
    XD_STEM_ROWS("img_mlp.proj", "img_mlp.gate_up", 1, 1, 2),
    XD_STEM("img_mlp.out", "img_mlp.out"),
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
      "a Qwen-Image-2.1 transformer of ComfyUI",
      { "txt_in.text_norm.weight", "transformer_blocks.0.img_mlp.gate_up.weight" },
      XD_DIT_PREFIXES,
      { { "transformer_blocks.#.", "transformer_blocks.#.", qwenimage21_joint },
        { "", "", NULL } } },
    { { "qwenimage21" },
      "a Qwen-Image-2.1 transformer",
      { "txt_in.text_norm.weight", "transformer_blocks.0.img_mlp.gate_layer.weight" },
      XD_DIT_PREFIXES,
      { { "transformer_blocks.#.", "transformer_blocks.#.", NULL }, { "", "", NULL } } },
    { .what = NULL },
};

/* ---- modules of LoRA files ---------------------------------------------------------------- */

const xd_lora_name xd_qwenimage_lora_names[] = {
    { "transformer_blocks_#_img_mlp_gate_up",
      "transformer_blocks_#_img_mlp_gate_layer transformer_blocks_#_img_mlp_proj" },
    { NULL, NULL },
};
