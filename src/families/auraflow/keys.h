/* keys.h - declares tables with the names that AuraFlow's tensors have in original, ComfyUI and
 * LoRA files; fields of xd_family point to the tables. */
#ifndef XD_FAMILIES_AURAFLOW_KEYS_H
#define XD_FAMILIES_AURAFLOW_KEYS_H

#include "families/key_map.h"

extern const xd_key_map   xd_auraflow_key_maps[];
extern const xd_lora_name xd_auraflow_lora_names[];

#endif
