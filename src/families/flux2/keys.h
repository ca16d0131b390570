/* keys.h - declares the tables with the names of FLUX.2's tensors in original, ComfyUI and LoRA
 * files (fields of xd_family). */
#ifndef XD_FAMILIES_FLUX2_KEYS_H
#define XD_FAMILIES_FLUX2_KEYS_H

#include "families/key_map.h"

extern const xd_key_map   xd_flux2_key_maps[];
extern const xd_lora_name xd_flux2_lora_names[];

#endif
