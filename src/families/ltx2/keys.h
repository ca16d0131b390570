/* keys.h - declares the table with the names that LTX-2's modules have in LoRA files; a field of
 * xd_family points to the table. */
#ifndef XD_FAMILIES_LTX2_KEYS_H
#define XD_FAMILIES_LTX2_KEYS_H

#include "families/key_map.h"

extern const xd_lora_name xd_ltx2_lora_names[]; /* list that ends with a name without `from` */

#endif
