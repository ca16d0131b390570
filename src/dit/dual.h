/* dual.h - double and single blocks of transformers. Double blocks have separate weights for text
 * and image; single blocks treat text and image as one sequence and compute attention and
 * feed-forward in parallel.
 *
 * Both kinds of blocks normalize with adaLN and multiply their results by gates. The modulation
 * comes from the model: from a linear layer of each block, or from vectors that are passed in. */
#ifndef XD_DIT_DUAL_H
#define XD_DIT_DUAL_H

#include "dit/layers.h"

enum { XD_DUAL_AXES = 3 };      /* axes of a token's position: image number, row, column       */

typedef struct xd_pair { xd_adaln img, txt; } xd_pair;  /* weights of a double block           */

typedef struct xd_solo {        /* weights of a single block                                   */
    xd_lin    mod;              /* modulation layer [3D,D], if declared                        */
    xd_lin    qkv, up, out;     /* input of `out`: attention and feed-forward, concatenated     */
    xd_tensor norm_q, norm_k;
} xd_solo;

/* Declare the weights of a double and of a single block. modulated is 1 if each block has linear
 * layers for its modulation. */
typedef struct xd_dual_form { int64_t dim, head_dim; int modulated; } xd_dual_form;
void xd_pair_weights(xd_decl *d, const xd_dual_form *f, xd_pair *w);
void xd_solo_weights(xd_decl *d, const xd_dual_form *f, xd_solo *w);

/* Inputs of a block besides its weights. */
typedef struct xd_dual_in {
    /* Modulation vectors [6,D] F32 for text and image rows: shift, scale and gate of the attention,
     * then of the feed-forward. A single block reads only [3,D] in `img`. */
    xd_tensor txt, img;
    /* Modulation vectors of reference image rows; absent: those in `img`. */
    xd_tensor ref;
    xd_tensor cos, sin;         /* [n,head_dim/2] F32 RoPE table of this rank's tokens         */
    int64_t   head_dim;
} xd_dual_in;
/* Run one double or single block on h [n,D], which has text rows first. */
void xd_pair_run(xd_exec *x, xd_tensor h, const xd_pair *w, const xd_dual_in *in);
void xd_solo_run(xd_exec *x, xd_tensor h, const xd_solo *w, const xd_dual_in *in);

/* Checks the widths of the position axes in a config. An empty list becomes (16, 56, 56). */
xd_status xd_dual_axes(xd_ints *axes, int64_t head_dim, xd_err *e);
/* Returns the RoPE table of this rank's tokens, [n,head_dim/2] values of fn (cos or sin). The
 * position of an image token is (0, row, column), that of a token of reference image i is (i + 1,
 * row, column). Text tokens are at position 0, where RoPE is the identity. text: the text of the
 * forward pass if the passes have different numbers of text rows, else NULL. */
xd_tensor xd_dual_angles(xd_exec *x, const void *text, const xd_ints *axes, double (*fn)(double));

/* Fills the hidden state s->h: the layer `text` computes text rows, the layer `latents` reference
 * and image rows. */
void      xd_dual_embed(xd_exec *x, const xd_input *in, xd_state *s, const xd_lin *text,
                        const xd_lin *latents);
/* Returns the prediction for this rank's image rows, which are the last rows of h: out(norm(h) * (1
 * + scale) + shift). */
xd_tensor xd_dual_head(xd_exec *x, xd_tensor h, xd_tensor scale, xd_tensor shift,
                       const xd_lin *out);

#endif
