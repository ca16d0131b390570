/* keys.h - declares the tables with the names of Qwen-Image's tensors in original, ComfyUI and LoRA
 * files (fields of xd_family). */
#ifndef XD_FAMILIES_QWENIMAGE_KEYS_H
#define XD_FAMILIES_QWENIMAGE_KEYS_H

#include "families/key_map.h"

extern const xd_key_map xd_qwenimage_key_maps[];

#endif
