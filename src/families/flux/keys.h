/* keys.h - declares tables with the names that FLUX.1's tensors have in original, ComfyUI and LoRA
 * files; fields of xd_family point to the tables. */
#ifndef XD_FAMILIES_FLUX_KEYS_H
#define XD_FAMILIES_FLUX_KEYS_H

#include "families/key_map.h"

/* name of FLUX.1's control networks in its layouts */
#define XD_FLUX_SIDE_NET "flux.controlnet"

extern const xd_key_map   xd_flux_key_maps[];
extern const xd_lora_name xd_flux_lora_names[];

#endif
