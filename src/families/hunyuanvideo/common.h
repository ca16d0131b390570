/* common.h - declares the parts that the transformers of HunyuanVideo and HunyuanVideo-1.5 share:
 * the blocks that refine the text, and the positions of tokens. */
#ifndef XD_FAMILIES_HUNYUANVIDEO_COMMON_H
#define XD_FAMILIES_HUNYUANVIDEO_COMMON_H

#include "dit/dual.h"

/* Prefix of the tensor names of a block of the refiner. */
#define XD_HUNYUANVIDEO_REFINER "context_embedder.token_refiner.refiner_blocks.%d"

typedef struct xd_hunyuanvideo_refiner { /* weights of a block of the refiner */
    xd_tensor gain1, bias1, gain2, bias2;
    xd_lin    qkv, out, up, down;
    xd_lin    mod; /* [2D,D]: gates of the attention and of the feed-forward */
} xd_hunyuanvideo_refiner;

typedef struct xd_hunyuanvideo_text { /* weights that enter the text and compute the gates */
    xd_lin in;
    xd_mlp time, mean;
} xd_hunyuanvideo_text;

/* Declares the weights of a block of the refiner. If `split` is 1, tensor parallelism splits the
 * weights of the refiner's block. */
void      xd_hunyuanvideo_refiner_weights(xd_decl *d, const xd_dual_cfg *c, int split,
                                          xd_hunyuanvideo_refiner *w);
void      xd_hunyuanvideo_text_weights(xd_decl *d, const xd_dual_cfg *c, xd_hunyuanvideo_text *w);
/* Returns the row from which the refiner's gates are computed: silu of the sum of the embeddings of
 * the timestep and of the mean of the text rows. */
xd_tensor xd_hunyuanvideo_gates(xd_exec *x, const xd_hunyuanvideo_text *w, double t,
                                xd_tensor rows);
/* Runs a block of the refiner on the text rows h. If `whole` is 1, h has all text rows; otherwise h
 * has this rank's text rows, and ranks exchange keys and values. */
void      xd_hunyuanvideo_refine(xd_exec *x, const xd_hunyuanvideo_refiner *w, xd_tensor h,
                                 xd_tensor gates, int64_t head_dim, int whole);

/* Part of the config that the transformers share; the config struct of each transformer begins with
 * it. */
typedef struct xd_hunyuanvideo_cfg {
    xd_dual_cfg dual;
    double      theta; /* base of RoPE's frequencies (rope_theta) */
} xd_hunyuanvideo_cfg;

/* Makes the RoPE table of this rank's tokens, [n,head_dim/2] values of fn (cos or sin). Text rows
 * have angle 0; the position of a video token is (frame, row, column). text: the text of this
 * forward pass. */
xd_tensor xd_hunyuanvideo_angles(xd_exec *x, const void *text, const xd_hunyuanvideo_cfg *c,
                                 double (*fn)(double));
/* Runs a double block. active: the input row of its modulation layers. */
void      xd_hunyuanvideo_pair(xd_exec *x, xd_tensor h, const xd_pair *w, xd_tensor active,
                               xd_dual_in in);

/* Replaces a size in pixels by the size of HunyuanVideo-1.5 with the nearest aspect ratio. The
 * resulting size has multiples of 16 pixels on its sides and an area of about target x target. */
void xd_hunyuanvideo_bucket(int64_t target, int64_t *height, int64_t *width);

#endif
