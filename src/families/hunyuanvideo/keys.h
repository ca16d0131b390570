/* keys.h - declares tables with the names that HunyuanVideo's tensors have in files of the original
 * code and in LoRA files; fields of xd_family point to the tables. */
#ifndef XD_FAMILIES_HUNYUANVIDEO_KEYS_H
#define XD_FAMILIES_HUNYUANVIDEO_KEYS_H

#include "families/key_map.h"

extern const xd_key_map   xd_hunyuanvideo_key_maps[]; /* list that ends with a map without `what` */
/* list that ends with a name without `from` */
extern const xd_lora_name xd_hunyuanvideo_lora_names[];

#endif
