/* clip_layer.h - declares the transformer block that both CLIP's text model and its vision model
 * use. */
#ifndef XD_TEXT_CLIP_LAYER_H
#define XD_TEXT_CLIP_LAYER_H

#include "exec/op.h"

typedef struct xd_clip_dims { /* sizes and settings of the block, from the config */
    int64_t dim, ff;
    int     heads;
    float   eps;
    xd_act  act;
} xd_clip_dims;

typedef struct xd_clip_layer {
    xd_tensor gain1, bias1, gain2, bias2; /* [E] gain and bias of the two layer norms */
    xd_lin    qkv, out, fc1, fc2;
} xd_clip_layer;

void xd_clip_layer_weights(xd_decl *d, const xd_clip_dims *c, xd_clip_layer *w);
/* Runs the block on n tokens of width E, h [n,E]; the result replaces h. If `rows` is above 0,
 * every `rows` consecutive tokens are one image, and attention is within an image. If `rows` is 0,
 * attention is causal over all tokens. */
void xd_clip_layer_run(xd_exec *x, const xd_clip_dims *c, const xd_clip_layer *w, xd_tensor h,
                       int64_t rows);

#endif
