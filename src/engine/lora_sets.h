/* lora_sets.h - keeps the weights of several sets of LoRA files, so that each request can select
 * its own files.
 *
 * An engine computes with one set of LoRA files at a time. Each set has its own copy of the weights
 * of the components that the set's files change. LoRA files usually change the transformer and
 * seldom a text encoder; all sets share the weights of components that their files do not change.
 * The weights of inactive sets stay loaded until there are more than XD_LORA_SETS inactive sets or
 * memory is short. */
#ifndef XD_ENGINE_LORA_SETS_H
#define XD_ENGINE_LORA_SETS_H

#include "engine/engine.h"

typedef struct xd_lora_sets xd_lora_sets;

enum { XD_LORA_SETS = 4 }; /* maximum number of inactive sets whose weights stay loaded */

/* Frees the inactive sets of LoRA files. Call xd_lora_sets_close before the model is closed. */
void xd_lora_sets_close(xd_engine *g);

#endif
