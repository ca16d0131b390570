/* keys.h - used only in this folder: declares the tables of tensor names in files */
#ifndef XD_FAMILIES_KREA2_KEYS_H
#define XD_FAMILIES_KREA2_KEYS_H

#include "families/key_map.h"

extern const xd_key_map   xd_krea2_key_maps[];
extern const xd_lora_name xd_krea2_lora_names[];

#endif
