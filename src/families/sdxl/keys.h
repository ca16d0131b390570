/* keys.h - used only in this folder: declares the names of the U-Net's tensors in weight files and
 * of its modules in LoRA files */
#ifndef XD_FAMILIES_SDXL_KEYS_H
#define XD_FAMILIES_SDXL_KEYS_H

#include "families/key_map.h"

extern const xd_key_map   xd_sdxl_key_maps[];
extern const xd_lora_name xd_sdxl_lora_names[];

#endif
