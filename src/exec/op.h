/* op.h - the ops that models are written in
 *
 * Ops do nothing on a failed context, accept zero rows, and allocate results and scratch from the
 * context's arena. Activations have the context's type x->act unless stated otherwise. */
#ifndef XD_EXEC_OP_H
#define XD_EXEC_OP_H

#include "exec/exec.h"
#include "exec/weight.h"

/* Allocate tensors in the arena, contents undefined. After a failure the tensor has the right
 * shape, but p is invalid. */
xd_tensor xd_new(xd_exec *x, int64_t rows, int64_t cols);
xd_tensor xd_new_f32(xd_exec *x, int64_t rows, int64_t cols);
xd_tensor xd_new_as(xd_exec *x, xd_dtype type, int nd, const int64_t *d);

/* Copies host data (f32 [n], contiguous) to a device tensor, and back. No-ops while counting. */
void xd_put(xd_exec *x, xd_tensor to, const float *from);
void xd_get(xd_exec *x, float *to, xd_tensor from);
/* Fills `to` with the output of fn(ctx, buf): f32, contiguous, xd_count(to) elements. fn is not
 * called while counting; nothing else may depend on its call. */
void xd_fill(xd_exec *x, xd_tensor to, void (*fn)(void *ctx, float *buf), void *ctx);

void xd_copy_to(xd_exec *x, xd_tensor out, xd_tensor in);       /* any strides, converts       */
xd_tensor xd_as(xd_exec *x, xd_tensor in, xd_dtype type);       /* `in` itself if it has type  */

/* y = act(in w^T + b). Converts an input of another type than the weight's. With tensor parallelism
 * a ROW layer ends with a sum over features. */
xd_tensor xd_linear(xd_exec *x, xd_tensor in, const xd_lin *w);
xd_tensor xd_linear_f32(xd_exec *x, xd_tensor in, const xd_lin *w);     /* f32 result          */
xd_tensor xd_linear_act(xd_exec *x, xd_tensor in, const xd_lin *w, xd_act act);
void      xd_linear_into(xd_exec *x, xd_tensor out, xd_tensor in, const xd_lin *w);
void      xd_linear_act_into(xd_exec *x, xd_tensor out, xd_tensor in, const xd_lin *w, xd_act act);
/* acc += gate * (in w^T + b); gate [1,C] F32 or absent ((xd_tensor){0}). In a block, the next norm
 * of acc may do the addition (late.h): gate stays as it is until then. */
void      xd_linear_add(xd_exec *x, xd_tensor acc, xd_tensor gate, xd_tensor in,
                        const xd_lin *w);
xd_tensor xd_seg(xd_tensor y, const xd_lin *w, int i);          /* i-th part of a fused output */

/* Layer norm without affine, then * (1 + scale) + shift; scale, shift [1,C], [n,C] or absent. */
xd_tensor xd_norm_mod(xd_exec *x, xd_tensor in, xd_tensor scale, xd_tensor shift, float eps);
/* Returns the norm `a` of rows that only the layers w and `also` (or NULL) read. If these layers
 * have fp8 inputs, the result is F8E4M3 with scales after its rows, and only valid as an input of
 * xd_linear and its variants. */
xd_tensor xd_norm_for(xd_exec *x, const xd_norm *a, const xd_lin *w, const xd_lin *also);
xd_tensor xd_layer_norm(xd_exec *x, xd_tensor in, xd_tensor gain, xd_tensor bias, float eps);
/* Layer norm with gain and bias, then * (1 + scale) + shift; each may be absent. out may be in. */
void      xd_norm_into(xd_exec *x, const xd_norm *a);
xd_tensor xd_rms_norm(xd_exec *x, xd_tensor in, xd_tensor gain, float eps);
/* in[i] [n,C], i < k, are rows of `width` features, split over ranks by tensor parallelism. Returns
 * factors [n,k] F32: rows that are RMS-normed over a rank's own features, times their factor, are
 * normed over all features. Collective over the ranks that split the features. */
xd_tensor xd_rms_factors(xd_exec *x, const xd_tensor *in, int k, int64_t width, float eps);

/* Norms and rotates queries or keys [n,H,D] (any strides except that of D) into `out` of that
 * shape: RMS norm over the D elements of each head with gain [D] (F32; absent: no norm), then RoPE
 * by the row's angles: cos, sin [n,D/2] F32, [1,D/2] for all rows, or absent. Pairs: elements 2i
 * and 2i+1. `also`: keys, processed in the same launch. The op sets `norm` and `rms`. */
void      xd_qk_norm_into(xd_exec *x, const xd_qknorm *a);
/* xd_qk_norm_into with a layer norm (gain and bias) in place of the RMS norm. */
void      xd_qk_layer_norm_into(xd_exec *x, const xd_qknorm *a);

void      xd_activate(xd_exec *x, xd_tensor io, xd_act act);            /* in place            */
xd_tensor xd_gated(xd_exec *x, xd_tensor a, xd_tensor b, xd_act act);   /* act(a) * b          */
void      xd_gated_into(xd_exec *x, xd_tensor out, xd_tensor a, xd_tensor b, xd_act act);
void      xd_add(xd_exec *x, xd_tensor acc, xd_tensor in);
void      xd_add_gated(xd_exec *x, xd_tensor acc, xd_tensor gate, xd_tensor in);
void      xd_axpby(xd_exec *x, xd_tensor y, float a, xd_tensor in, float b); /* y = a in + b y */

/* Attention of this rank's tokens over all ranks' tokens (scale <= 0: 1/sqrt(D)). q [B*n,H,D] and
 * k, v [B*n,Hk,D] are this rank's; the result is [B*n,H,D]. Collective over the ranks with tokens
 * of this pass and stage. */
xd_tensor xd_attn(xd_exec *x, xd_tensor q, xd_tensor k, xd_tensor v, float scale);
/* xd_attn into out [B*n,H,D], F32 or x->act, any row stride. */
void      xd_attn_into(xd_exec *x, xd_tensor out, xd_tensor q, xd_tensor k, xd_tensor v,
                       float scale);
/* xd_attn among the tokens of some streams (set of XD_STREAM): q, k, v have their rows. */
xd_tensor xd_attn_of(xd_exec *x, unsigned streams, xd_tensor q, xd_tensor k, xd_tensor v,
                     float scale);
/* Attention over keys that every rank has completely (cross-attention), without messages.
 * bias [H,n,m] F32 (any strides) or absent. */
xd_tensor xd_attn_over(xd_exec *x, xd_tensor q, xd_tensor k, xd_tensor v, xd_tensor bias,
                       float scale);
/* xd_attn_over without bias; each query attends to keys up to its own position. */
xd_tensor xd_attn_causal(xd_exec *x, xd_tensor q, xd_tensor k, xd_tensor v, float scale);
/* xd_attn_over into out [n,H,D] (F32 or x->act, any row stride), with the mask and soft cap of
 * xd_attn_args. */
typedef struct xd_attn_how {
    float   scale;              /* <= 0: 1/sqrt(D)                                             */
    float   softcap;            /* as in xd_attn_args                                          */
    int64_t window;
    int     causal;
} xd_attn_how;
void      xd_attn_over_into(xd_exec *x, xd_tensor out, xd_tensor q, xd_tensor k, xd_tensor v,
                            const xd_attn_how *how);

xd_tensor xd_lookup_rows(xd_exec *x, xd_tensor table, const int32_t *ids, int64_t n,
                         xd_dtype type);
/* Rows of a table of positions, F32 [n,C]: row i is row place(ctx, i) of the table. Looked up only
 * once if x has tables (exec/tables.h). */
xd_tensor xd_lookup_places(xd_exec *x, xd_tensor table, int64_t n,
                           int64_t (*place)(const void *ctx, int64_t i), const void *ctx);

/* Images, channels last [T,H,W,C]: this rank's rows. The _into forms write to `out`, which has the
 * shape of the result and type F32 or x->act. A convolution's residual may be `out`, and a norm's
 * `in` may be `out`. */
typedef struct xd_conv_options {
    int        stride;          /* stride of rows and columns; 0: 1                            */
    const int *lo, *hi;         /* [3]: padding before and after frames, rows, columns; NULL: 0 */
    xd_tensor  residual;        /* added to the result; or absent                              */
} xd_conv_options;
void      xd_conv2d_into(xd_exec *x, xd_tensor out, xd_tensor in, const xd_cnv *w,
                         const xd_conv_options *o);
/* Convolution over frames: kernel [kt,kh,kw], stride 1; `in` has kt - 1 more frames than `out`.
 * Rows and columns are padded to keep their number. */
void      xd_conv3d_into(xd_exec *x, xd_tensor out, xd_tensor in, const xd_cnv *w,
                         xd_tensor residual);
/* Convolution of rows that are all in `in`, without messages. */
void      xd_conv_rows_into(xd_exec *x, xd_tensor out, xd_tensor in, const xd_cnv *w,
                            const xd_conv_options *o);
/* Halo rows for such a convolution: at most `lo` rows above this rank's rows and `hi` below, fewer
 * at the image's edges. Collective over the ranks that split the image's rows. */
typedef struct xd_halo { xd_tensor above, below; } xd_halo;
xd_halo   xd_halo_of(xd_exec *x, xd_tensor in, int lo, int hi);
/* Group norm in two steps, for an image that is normalized in parts: first the sums over all of
 * `in` [T,H,W,C] (and over the ranks that split its rows), then any part. scale, shift [t,h,w,C]
 * F32, or both absent: norm * scale + shift before silu; each of their cells is used for T/t x H/h
 * x W/w cells of `in`. The op sets `sums`, `groups` and `count` of the arguments. */
typedef struct xd_gsum { xd_tensor sums; int groups; double count; } xd_gsum;
xd_gsum   xd_group_sums(xd_exec *x, xd_tensor in, int groups);
void      xd_group_apply_into(xd_exec *x, const xd_gsum *s, const xd_gnorm *a);
/* The sums of an image [1,H,W,C] whose rows are computed a few at a time. xd_group_rows: partial
 * sums [n,G,2] F64 of n rows of this rank. xd_group_close: the sums of all rows; s has the memory
 * [G,2] F64 and the number of groups. */
void      xd_group_rows(xd_exec *x, xd_tensor partial, xd_tensor in);
void      xd_group_close(xd_exec *x, xd_gsum *s, xd_tensor partial, xd_tensor of);
xd_tensor xd_enlarge(xd_exec *x, xd_tensor in, int t, int h, int w);

/* Sinusoidal embedding of n scalars (Vaswani et al. 2017, as diffusers' Timesteps): dim values
 * each, cosines first if flip, frequency divisor (dim/2 - shift). F32 [n,dim]. */
xd_tensor xd_time_embed(xd_exec *x, const double *t, int n, int64_t dim, int flip, double shift);
/* Computes the values of one scalar in host memory, for xd_fill. */
void      xd_time_row(float *row, double t, int64_t dim, int flip, double shift);

#endif
