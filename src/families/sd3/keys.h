/* keys.h - declares tables with the names that Stable Diffusion 3's tensors have in original,
 * ComfyUI and LoRA files; fields of xd_family point to the tables. */
#ifndef XD_FAMILIES_SD3_KEYS_H
#define XD_FAMILIES_SD3_KEYS_H

#include "families/key_map.h"

extern const xd_key_map   xd_sd3_key_maps[];
extern const xd_lora_name xd_sd3_lora_names[];

#endif
