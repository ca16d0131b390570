/* dual.h - transformers of double blocks, with separate weights for text and image, and of single
 * blocks, which treat both as one sequence and compute attention and feed-forward in parallel
 *
 * Both kinds normalize with adaLN and end with gates. The modulation comes from the model: from a
 * linear layer of each block, or from vectors that are passed in. */
#ifndef XD_DIT_DUAL_H
#define XD_DIT_DUAL_H

#include "dit/layers.h"

enum { XD_DUAL_AXES = 3 };      /* position axes: image number, row, column                    */

typedef struct xd_pair { xd_adaln img, txt; } xd_pair;  /* a double block                      */

typedef struct xd_solo {        /* a single block                                              */
    xd_lin    mod;              /* [3D,D], if declared                                         */
    xd_lin    qkv, up, out;     /* `out`: input is attention and feed-forward, concatenated     */
    xd_tensor norm_q, norm_k;
} xd_solo;

/* Declare the weights. `modulated`: 1: each block has linear layers for its modulation. */
typedef struct xd_dual_form { int64_t dim, head_dim; int modulated; } xd_dual_form;
void xd_pair_weights(xd_decl *d, const xd_dual_form *f, xd_pair *w);
void xd_solo_weights(xd_decl *d, const xd_dual_form *f, xd_solo *w);

/* Inputs of a block besides its weights. */
typedef struct xd_dual_in {
    /* Rows shift, scale, gate of attention, then of the feed-forward: [6,D] F32 for the text and
     * for the image; a single block reads [3,D] in img. */
    xd_tensor txt, img;
    xd_tensor ref;              /* for reference images; absent: as img                        */
    xd_tensor cos, sin;         /* [n,head_dim/2] F32 of this rank's tokens                    */
    int64_t   head_dim;
} xd_dual_in;
/* Runs one block; h [n,D] has text rows first. */
void xd_pair_run(xd_exec *x, xd_tensor h, const xd_pair *w, const xd_dual_in *in);
void xd_solo_run(xd_exec *x, xd_tensor h, const xd_solo *w, const xd_dual_in *in);

/* Checks the widths of the position axes; an empty list becomes (16, 56, 56). */
xd_status xd_dual_axes(xd_ints *axes, int64_t head_dim, xd_err *e);
/* RoPE table of this rank's tokens [n,head_dim/2]: image tokens are at (0, row, column), tokens of
 * reference image i at (i + 1, row, column), text tokens at 0, where RoPE is the identity. `text`:
 * the pass's text if passes have different numbers of text rows, or NULL. */
xd_tensor xd_dual_angles(xd_exec *x, const void *text, const xd_ints *axes, double (*fn)(double));

/* Fills s->h: layer `text` for text rows, layer `latents` for reference and image rows. */
void      xd_dual_embed(xd_exec *x, const xd_input *in, xd_state *s, const xd_lin *text,
                        const xd_lin *latents);
/* The prediction of this rank's image rows, the last ones of h: out(norm(h) * (1 + scale) +
 * shift). */
xd_tensor xd_dual_head(xd_exec *x, xd_tensor h, xd_tensor scale, xd_tensor shift,
                       const xd_lin *out);

#endif
