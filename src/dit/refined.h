/* refined.h - declares the blocks of transformers that first process image and text separately
 * (refiner blocks) and then both as a single sequence. A block normalizes the inputs and the
 * outputs of its attention and of its feed-forward. */
#ifndef XD_DIT_REFINED_H
#define XD_DIT_REFINED_H

#include "dit/layers.h"

/* number of latent rows and of columns per token; number of axes of a token's position (text
 * length, row, column) */
enum { XD_REFINED_PATCH = 2, XD_REFINED_AXES = 3 };

typedef struct xd_refined { /* weights of a block */
    /* [4D,E]: modulation layer, whose outputs are scale and gate of the attention, then of the
     * feed-forward; a text block has no such layer */
    xd_lin    mod;
    /* the feed-forward is down(silu(a) * b), where the layer `up` computes a and b */
    xd_lin    qkv, out, up, down;
    xd_tensor norm_q, norm_k; /* [head_dim]: norms of queries and keys, or absent */
    /* [D]: norms before and after the attention, and before and after the feed-forward */
    xd_tensor norm[4];
} xd_refined;

/* Inputs of a block other than its weights and the hidden state. In models with refiner blocks, the
 * data in xd_state.local begins with an xd_refined_in. */
typedef struct xd_refined_in {
    xd_tensor emb;      /* [1,E]: input of the modulation layers */
    xd_tensor cos, sin; /* [n,head_dim/2] F32: RoPE of this rank's tokens */
    int64_t   head_dim;
    float     eps; /* epsilon of the norms over the features of a token */
} xd_refined_in;

/* Implementations of the function `forward` of xd_block. xd_refined_all runs a block on the tokens
 * of text, padding and image, xd_refined_image on the tokens of padding and image, and
 * xd_refined_text on the text tokens, without modulation. */
void xd_refined_all(xd_exec *x, const xd_net *n, const void *w, xd_state *s);
void xd_refined_image(xd_exec *x, const xd_net *n, const void *w, xd_state *s);
void xd_refined_text(xd_exec *x, const xd_net *n, const void *w, xd_state *s);

/* Applies a linear layer to this rank's image tokens `lat`, and writes the result to h. The
 * features of a token are ordered by (channel, row, column) in the latents, but the layer reads
 * them ordered by (row, column, channel). */
void xd_refined_embed(xd_exec *x, xd_tensor lat, xd_tensor h, const xd_lin *w);
/* Returns the negative of out(norm(h) * (1 + scale)) for this rank's image tokens, which are the
 * last rows of h. The networks predict the direction from noise to image, but the sampler expects
 * the direction from image to noise. `mod` computes the scale from the row `active`; `channels` is
 * the number of latent channels. */
typedef struct xd_refined_out { const xd_lin *mod, *out; } xd_refined_out;
xd_tensor xd_refined_head(xd_exec *x, xd_tensor h, xd_tensor active, const xd_refined_out *w,
                          int64_t channels);

/* How a config describes the axes of a token's position. */
typedef struct xd_refined_axes {
    const char    *key;         /* config key of the axes' widths, such as "axes_dims" */
    const int64_t *dims, *lens; /* [XD_REFINED_AXES] default widths and lengths */
    int64_t        least;       /* minimum length of the first position axis */
    int64_t        head_dim;    /* required sum of the axes' widths */
} xd_refined_axes;
/* Checks the widths and lengths of the position axes, and sets missing ones to their defaults. */
xd_status xd_refined_check_axes(xd_ints *dims, xd_ints *lens, const xd_refined_axes *a, xd_err *e);
/* If the list `l` from the config is empty, sets it to the n numbers in `usual`. */
void      xd_refined_set_list(xd_ints *l, int n, const int64_t *usual);

#endif
