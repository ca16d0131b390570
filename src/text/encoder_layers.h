/* encoder_layers.h - what several text encoders have in common */
#ifndef XD_TEXT_ENCODER_LAYERS_H
#define XD_TEXT_ENCODER_LAYERS_H

#include "exec/op.h"

/* An activation by its name in transformers' configs (ACT2FN); 0: it is none of XD_TEXT_ACTS. */
#define XD_TEXT_ACTS "gelu, gelu_new, relu, silu, quick_gelu"
int xd_text_act(const char *name, xd_act *act);

/* Is it an extent that a model may have? Far above any, and products of two fit 64 bits. */
enum { XD_TEXT_MOST = 1 << 24 };
int xd_text_fits(int64_t extent);

/* Refuses heads that do not divide hidden_size or are too narrow or wide; `what` begins the sentence. */
xd_status xd_text_heads(const char *what, int64_t dim, int heads, xd_err *e);

#endif
