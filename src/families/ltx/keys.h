/* keys.h - declares tables with the names that LTX-Video's tensors have in original and LoRA files;
 * fields of xd_family point to the tables. */
#ifndef XD_FAMILIES_LTX_KEYS_H
#define XD_FAMILIES_LTX_KEYS_H

#include "families/key_map.h"

/* list of layouts, which ends with a layout whose `what` is NULL */
extern const xd_key_map   xd_ltx_key_maps[];
/* list of module names, which ends with a row whose `from` is NULL */
extern const xd_lora_name xd_ltx_lora_names[];

#endif
