/* keys.c - names of tensors in single files of Qwen-Image, which are those of diffusers, also in
 * ComfyUI's files (qwen_image_bf16.safetensors) */
#include "families/qwenimage/keys.h"

#include <stddef.h>

const xd_key_map xd_qwenimage_key_maps[] = {
    { { "qwenimage" }, "a Qwen-Image transformer",
      { "txt_norm.weight", "transformer_blocks.0.img_mod.1.weight" }, XD_DIT_PREFIXES,
      { { "transformer_blocks.#.", "transformer_blocks.#.", NULL }, { "", "", NULL } } },
    { .what = NULL },
};
