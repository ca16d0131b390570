/* keys.h - declares tables with the names that Qwen-Image's tensors have in original, ComfyUI and
 * LoRA files; fields of xd_family point to the tables. */
#ifndef XD_FAMILIES_QWENIMAGE_KEYS_H
#define XD_FAMILIES_QWENIMAGE_KEYS_H

#include "families/key_map.h"

extern const xd_key_map   xd_qwenimage_key_maps[];
extern const xd_lora_name xd_qwenimage_lora_names[];

#endif
