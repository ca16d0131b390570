/* lora_sets.h - LoRA files for single requests of an engine
 *
 * An engine computes with one set of LoRA files at a time. A set has weights of its own of the
 * components that its files change: the transformer, seldom a text encoder. Other components, and
 * those of a set that changes nothing, are common to all sets. The weights of a set stay loaded,
 * set aside, until their number or the memory asks for room. */
#ifndef XD_ENGINE_LORA_SETS_H
#define XD_ENGINE_LORA_SETS_H

#include "engine/engine.h"

typedef struct xd_lora_sets xd_lora_sets;

enum { XD_LORA_SETS = 4 };      /* that keep weights and are not in use                        */

/* Frees what is set aside; before the model is closed. */
void xd_lora_sets_close(xd_engine *g);

#endif
