/* encoder_layers.h - declares functions that several text encoders use. */
#ifndef XD_TEXT_ENCODER_LAYERS_H
#define XD_TEXT_ENCODER_LAYERS_H

#include "exec/op.h"

/* Finds an activation by its name in the configs of transformers (ACT2FN). Returns 0 if the name is
 * not in XD_TEXT_ACTS. */
#define XD_TEXT_ACTS "gelu, gelu_new, relu, silu, quick_gelu"
int xd_text_act(const char *name, xd_act *act);

/* Returns 1 if a size from a config is within the limit XD_TEXT_MAX. The limit is far above the
 * sizes of all known models, and small enough that the product of two sizes fits 64 bits. */
enum { XD_TEXT_MAX = 1 << 24 };
int xd_text_fits(int64_t extent);

/* Returns an error if hidden_size (`dim`) is not divisible by the number of heads, or if the head
 * size is out of range. `what` is the beginning of the error message. */
xd_status xd_text_heads(const char *what, int64_t dim, int heads, xd_err *e);

#endif
