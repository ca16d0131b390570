/* common.h - declares what the transformers of HunyuanVideo and HunyuanVideo-1.5 have in common:
 * the blocks that refine the text (the refiner), and the positions of tokens. */
#ifndef XD_FAMILIES_HUNYUANVIDEO_COMMON_H
#define XD_FAMILIES_HUNYUANVIDEO_COMMON_H

#include "dit/dual.h"

/* Prefix of the tensor names of a text refiner block. */
#define XD_HUNYUANVIDEO_REFINER "context_embedder.token_refiner.refiner_blocks.%d"

typedef struct xd_hunyuanvideo_refiner { /* weights of a text refiner block */
    xd_tensor gain1, bias1, gain2, bias2;
    xd_lin    qkv, out, up, down;
    xd_lin    mod; /* [2D,D]: gates of the attention and of the feed-forward */
} xd_hunyuanvideo_refiner;

typedef struct xd_hunyuanvideo_text { /* weights that embed the text and compute the gates of the
                                       * text refiner */
    xd_lin in;
    xd_mlp time, mean;
} xd_hunyuanvideo_text;

/* Declares the weights of a text refiner block. If `split` is 1, tensor parallelism splits the
 * weights of the text refiner block. */
void      xd_hunyuanvideo_refiner_weights(xd_decl *d, const xd_dual_cfg *c, int split,
                                          xd_hunyuanvideo_refiner *w);
void      xd_hunyuanvideo_text_weights(xd_decl *d, const xd_dual_cfg *c, xd_hunyuanvideo_text *w);
/* Returns the vector from which the text refiner's gates are computed: silu of the sum of the
 * timestep's embedding and the embedding of the text tokens' mean. */
xd_tensor xd_hunyuanvideo_gates(xd_exec *x, const xd_hunyuanvideo_text *w, double t,
                                xd_tensor rows);
/* Runs a text refiner block on the text tokens h. If `whole` is 1, h contains all text tokens;
 * otherwise h contains this rank's text tokens, and ranks exchange keys and values. */
void      xd_hunyuanvideo_refine(xd_exec *x, const xd_hunyuanvideo_refiner *w, xd_tensor h,
                                 xd_tensor gates, int64_t head_dim, int whole);

/* Config values that both transformers have in common; the config struct of each transformer begins
 * with them. */
typedef struct xd_hunyuanvideo_cfg {
    xd_dual_cfg dual;
    double      theta; /* base of RoPE's frequencies (rope_theta) */
} xd_hunyuanvideo_cfg;

/* Makes the RoPE table of this rank's tokens, [n,head_dim/2] values of fn (cos or sin). Text tokens
 * have angle 0; the position of a video token is (frame, row, column). text: the text of this
 * forward pass. */
xd_tensor xd_hunyuanvideo_angles(xd_exec *x, const void *text, const xd_hunyuanvideo_cfg *c,
                                 double (*fn)(double));
/* Runs a double block. active: the input row of its modulation layers. */
void      xd_hunyuanvideo_pair(xd_exec *x, xd_tensor h, const xd_pair *w, xd_tensor active,
                               xd_dual_in in);

/* Replaces a size in pixels by that size of HunyuanVideo-1.5 whose aspect ratio is nearest. The
 * sides of the new size are multiples of 16 pixels, and its area is about target x target. */
void xd_hunyuanvideo_bucket(int64_t target, int64_t *height, int64_t *width);

#endif
