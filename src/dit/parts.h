/* parts.h - what several diffusion transformers are built of: two-layer embeddings of numbers and
 * vectors, and modulation vectors (adaLN). */
#ifndef XD_DIT_PARTS_H
#define XD_DIT_PARTS_H

#include "dit/dit.h"
#include "exec/op.h"

enum { XD_SINUSOIDS = 256 };    /* of a timestep, a guidance scale, a side or a ratio          */

typedef struct xd_mlp { xd_lin a, b; } xd_mlp;

/* "NAME.linear_1" [out,in] and "NAME.linear_2" [out,out], with biases. */
void      xd_mlp_weights(xd_decl *d, const char *name, xd_mlp *m, int64_t in, int64_t out);
xd_tensor xd_mlp_run(xd_exec *x, xd_tensor in, const xd_mlp *m, xd_act act);    /* F32         */
/* Numbers (diffusers' Timesteps of 256, cosines first, frequency shift 0) through the two layers
 * with SiLU between: [n,out] F32. */
xd_tensor xd_mlp_numbers(xd_exec *x, const double *v, int n, const xd_mlp *m);

/* k vectors of width D that modulate a block: linear(silu(emb)) as [k,D] F32, in the arena.
 * `active` is silu(emb) [1,E] in the compute type. */
xd_tensor xd_mod_rows(xd_exec *x, xd_tensor active, const xd_lin *w, int k);

/* ---- joint attention (Esser et al. 2024, arXiv:2403.03206) ---------------------------------- */

typedef struct xd_side {        /* one stream's half of a block where text and image meet       */
    xd_lin    mod;              /* [nmod D, D]                                                  */
    xd_lin    qkv, out, up, down;
    xd_tensor norm_q, norm_k;   /* [head_dim], or absent                                        */
} xd_side;

typedef struct xd_side_form {
    int64_t dim, head_dim;
    int     nmod;               /* vectors of its modulation: 6, 9, or 2 when it only gives keys  */
    int     qk_norm;            /* queries and keys are normalised                             */
    int     last;               /* gives queries, keys and values only: its rows end here        */
} xd_side_form;

/* The names that diffusers gives the image's side (context 0) and the text's (1) of a block. */
void      xd_side_weights(xd_decl *d, const xd_side_form *f, int context, xd_side *w);

typedef struct xd_qkv { xd_tensor q, k, v; } xd_qkv;    /* [n,H,head_dim] of my tokens and heads */

/* Room for the queries and keys of y [n, 3 H head_dim], a product of `w`; v is a view of y. */
xd_qkv    xd_qkv_open(xd_exec *x, xd_tensor y, const xd_lin *w, int64_t head_dim);
/* Fills rows [at, at + n) of q and k from y: normalised (RMS) when there are gains, turned by rope
 * when there are angles cos, sin [n of all, head_dim/2]. */
void      xd_qkv_fill(xd_exec *x, const xd_qkv *a, xd_tensor y, const xd_lin *w, xd_tensor norm_q,
                      xd_tensor norm_k, xd_tensor cos, xd_tensor sin, int64_t at, int64_t n);
/* h += gate * down(gelu(up(norm(h)))); mod's rows 3, 4, 5 are shift, scale and gate. */
void      xd_side_feed(xd_exec *x, xd_tensor h, const xd_side *w, xd_tensor mod);

/* The largest and the smallest that a config number may be: XD_EFORMAT with the key. */
xd_status xd_config_range(const char *key, int64_t v, int64_t min, int64_t max, xd_err *e);

#endif
