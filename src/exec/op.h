/* op.h - declares the tensor operations (ops) that the code of models calls.
 *
 * Ops do nothing if the context has failed, accept tensors of zero rows, and allocate results and
 * scratch memory from the context's arena. Activations have the type x->act of the context, unless
 * stated otherwise. */
#ifndef XD_EXEC_OP_H
#define XD_EXEC_OP_H

#include "exec/exec.h"
#include "exec/weight.h"

/* Allocate tensors with undefined contents in the arena. If the context has failed, the allocated
 * tensor has the right shape, but its address p is invalid. */
xd_tensor xd_new(xd_exec *x, int64_t rows, int64_t cols);
xd_tensor xd_new_f32(xd_exec *x, int64_t rows, int64_t cols);
xd_tensor xd_new_as(xd_exec *x, xd_dtype type, int nd, const int64_t *d);

/* Copy contiguous f32 elements from host memory to a device tensor (xd_put), and back (xd_get).
 * xd_put and xd_get do nothing on a count device (which counts memory and computes nothing). */
void xd_put(xd_exec *x, xd_tensor to, const float *from);
void xd_get(xd_exec *x, float *to, xd_tensor from);
/* Fills `to` with the xd_count(to) contiguous f32 elements that fn(ctx, buf) writes to buf. fn is
 * not called on a count device (which counts memory and computes nothing), so the caller must not
 * rely on side effects of fn. */
void xd_fill(xd_exec *x, xd_tensor to, void (*fn)(void *ctx, float *buf), void *ctx);

/* Copies between tensors of any strides, and converts to the type of `out`. */
void      xd_copy_to(xd_exec *x, xd_tensor out, xd_tensor in);
/* Converts the tensor `in` to element type `type`; returns `in` itself if it already has this
 * type. */
xd_tensor xd_as(xd_exec *x, xd_tensor in, xd_dtype type);

/* Convert the vectors of attention heads to 8-bit codes, and back (xd_code). The tensors of
 * xd_encode and xd_decode_to have the shape [n,H,..] or [1,n,H,..] for n tokens and H heads, where
 * only the last stride must be 1. xd_encode returns contiguous codes of type `codes`, I8 or F8E4M3;
 * xd_encode_to writes the codes of `in` to `out`; xd_decode_to writes the decoded values of `in` to
 * `out`. */
xd_tensor xd_encode(xd_exec *x, xd_tensor in, xd_dtype codes);
void      xd_encode_to(xd_exec *x, xd_tensor out, xd_tensor in);
void      xd_decode_to(xd_exec *x, xd_tensor out, xd_tensor in);

/* Computes a linear layer: y = act(in w^T + b). xd_linear converts `in` if its type differs from
 * the weight's type. If tensor parallelism splits the layer's inputs over ranks (XD_ROW), the
 * results are summed over the ranks. */
xd_tensor xd_linear(xd_exec *x, xd_tensor in, const xd_lin *w);
xd_tensor xd_linear_f32(xd_exec *x, xd_tensor in, const xd_lin *w); /* returns an f32 tensor */
xd_tensor xd_linear_act(xd_exec *x, xd_tensor in, const xd_lin *w, xd_act act);
void      xd_linear_into(xd_exec *x, xd_tensor out, xd_tensor in, const xd_lin *w);
void      xd_linear_act_into(xd_exec *x, xd_tensor out, xd_tensor in, const xd_lin *w, xd_act act);
/* Computes a linear layer whose result is added to acc: acc += gate * (in w^T + b). `gate` is a
 * [1,C] F32 tensor, or absent, which means 1. In a transformer block, the addition may be delayed
 * until the next norm of acc (late.h), so gate must not change before that norm. */
void      xd_linear_add(xd_exec *x, xd_tensor acc, xd_tensor gate, xd_tensor in, const xd_lin *w);
/* Returns a view of output i of a fused linear layer, which computes several outputs side by
 * side. */
xd_tensor xd_seg(xd_tensor y, const xd_lin *w, int i);

/* Computes a layer norm without gain and bias, multiplies the result by 1 + scale and adds shift.
 * scale, shift: [1,C], [n,C] or absent. */
xd_tensor xd_norm_mod(xd_exec *x, xd_tensor in, xd_tensor scale, xd_tensor shift, float eps);
/* Computes the norm `a`. Only the linear layers `w` and `also` (which may be NULL) may read the
 * result. If the layers w and `also` have fp8 inputs, the result of the norm has type F8E4M3, with
 * the rows' scales stored after the last row. A result of type F8E4M3 is only valid as an input of
 * xd_linear and its variants. */
xd_tensor xd_norm_for(xd_exec *x, const xd_norm *a, const xd_lin *w, const xd_lin *also);
xd_tensor xd_layer_norm(xd_exec *x, xd_tensor in, xd_tensor gain, xd_tensor bias, float eps);
/* Computes a layer norm with gain and bias, multiplies the result by 1 + scale and adds shift.
 * Gain, bias, scale and shift of the norm may be absent. a->out may be a->in. */
void      xd_norm_into(xd_exec *x, const xd_norm *a);
xd_tensor xd_rms_norm(xd_exec *x, xd_tensor in, xd_tensor gain, float eps);
/* Returns factors that correct RMS norms of rows whose features tensor parallelism splits over
 * ranks. Each of the k tensors in[i], [n,C], contains this rank's features of n rows; the complete
 * rows have `width` features. The returned tensor, [n,k] F32, contains a factor for each row of
 * each tensor. Multiply a row that was normed over only this rank's features by its factor to get
 * the row normed over all features. The call is collective over the ranks that split the
 * features. */
xd_tensor xd_rms_factors(xd_exec *x, const xd_tensor *in, int k, int64_t width, float eps);

/* Norms and rotates queries or keys [n,H,D] (any strides, but the stride of D is 1) into `out` of
 * the same shape. xd_qk_norm_into first applies an RMS norm over the D elements of each head, with
 * gain [D] (F32; absent: no norm). xd_qk_norm_into then applies RoPE with the cosines and sines of
 * the row's angles, which rotates the pairs of elements 2i and 2i+1. cos and sin are F32 tensors
 * [n,D/2], or [1,D/2] if all rows have the same angles; absent: no RoPE. a->also may have keys,
 * which are processed in the same kernel launch as the queries. xd_qk_norm_into sets a->norm and
 * a->rms. */
void xd_qk_norm_into(xd_exec *x, const xd_qknorm *a);
/* Norms and rotates queries or keys as xd_qk_norm_into does, but with a layer norm with gain and
 * bias instead of the RMS norm. */
void xd_qk_layer_norm_into(xd_exec *x, const xd_qknorm *a);

/* Applies the activation function act to io in place. */
void      xd_activate(xd_exec *x, xd_tensor io, xd_act act);
/* returns act(a) * b, where act is an activation function */
xd_tensor xd_gated(xd_exec *x, xd_tensor a, xd_tensor b, xd_act act);
/* Computes act(a) * b for rows that only the linear layer w may read, because the result may have
 * type F8E4M3, as for xd_norm_for. */
xd_tensor xd_gated_for(xd_exec *x, xd_tensor a, xd_tensor b, xd_act act, const xd_lin *w);
void      xd_gated_into(xd_exec *x, xd_tensor out, xd_tensor a, xd_tensor b, xd_act act);
void      xd_add(xd_exec *x, xd_tensor acc, xd_tensor in);
void      xd_add_gated(xd_exec *x, xd_tensor acc, xd_tensor gate, xd_tensor in);
/* computes y = a * in + b * y */
void      xd_axpby(xd_exec *x, xd_tensor y, float a, xd_tensor in, float b);

/* Computes the attention of this rank's tokens over all ranks' tokens. q [B*n,H,D] and k, v
 * [B*n,Hk,D] belong to this rank's tokens; the result is [B*n,H,D]. scale: factor of the scores; if
 * it is not positive, the factor is 1/sqrt(D). All ranks that split the tokens of this forward pass
 * and pipeline stage must call xd_attn. */
xd_tensor xd_attn(xd_exec *x, xd_tensor q, xd_tensor k, xd_tensor v, float scale);
/* Computes attention as xd_attn does, and writes the result to `out` [B*n,H,D], which has type F32
 * or x->act and any row stride. */
void xd_attn_into(xd_exec *x, xd_tensor out, xd_tensor q, xd_tensor k, xd_tensor v, float scale);
/* Computes attention as xd_attn does, over the tokens and over m prefix tokens before them. Every
 * rank holds the keys and values of all prefix tokens, [m,Hk,D], with the heads of k and v.
 * xd_attn_after requires B = 1 and xd_dit_info.prefix. */
xd_tensor xd_attn_after(xd_exec *x, xd_kv prefix, xd_tensor q, xd_tensor k, xd_tensor v,
                        float scale);
/* Computes attention as xd_attn does, but only among the tokens of some streams, such as text or
 * image. `streams` is a set of XD_STREAM bits; q, k and v contain only the tokens of these
 * streams. */
xd_tensor xd_attn_of(xd_exec *x, unsigned streams, xd_tensor q, xd_tensor k, xd_tensor v,
                     float scale);
/* Computes attention as xd_attn does, with the usual scale, but tokens of stream `from` attend only
 * to tokens of stream `to`. q contains this rank's tokens of stream `from`; k and v contain this
 * rank's tokens of stream `to`. */
xd_tensor xd_attn_between(xd_exec *x, xd_stream_id from, xd_stream_id to, xd_tensor q, xd_tensor k,
                          xd_tensor v);
/* Computes attention as xd_attn does, but each token only attends to the image tokens of its own
 * group. xd_attn_grouped accepts only image tokens, and requires that xd_dit_info.grouped is
 * set. */
xd_tensor xd_attn_grouped(xd_exec *x, xd_group group, xd_tensor q, xd_tensor k, xd_tensor v,
                          float scale);
/* Computes attention over keys and values that every rank holds completely (cross-attention), so no
 * messages are sent. `bias` is added to the scores: [H,n,m] F32 for n queries and m keys, with any
 * strides, or absent. */
xd_tensor xd_attn_over(xd_exec *x, xd_tensor q, xd_tensor k, xd_tensor v, xd_tensor bias,
                       float scale);
/* Computes attention as xd_attn_over does without bias, but each query only attends to keys up to
 * the query's own position. */
xd_tensor xd_attn_causal(xd_exec *x, xd_tensor q, xd_tensor k, xd_tensor v, float scale);
/* Computes attention as xd_attn_over does, with the mask and soft cap of xd_attn_args. The result
 * is written to `out` [n,H,D], which has type F32 or x->act and any row stride. */
typedef struct xd_attn_how {
    float   scale;   /* factor of the scores; if it is not positive, the factor is 1/sqrt(D) */
    float   softcap; /* soft cap of the scores (xd_attn_args) */
    int64_t window;
    int     causal;
} xd_attn_how;
void xd_attn_over_into(xd_exec *x, xd_tensor out, xd_tensor q, xd_tensor k, xd_tensor v,
                       const xd_attn_how *how);

/* Computes linear attention with the kernel function relu (xd_linattn), of this rank's tokens over
 * all ranks' tokens. q, k, v and the result are [n,H,D]. All ranks that split the tokens must call
 * xd_attn_linear. A transformer that calls xd_attn_linear sets xd_dit_info.linear. */
xd_tensor xd_attn_linear(xd_exec *x, xd_tensor q, xd_tensor k, xd_tensor v);
/* Computes linear attention with RoPE (see xd_linattn); the tables `cos` and `sin` [n,D/2] contain
 * a row for each of this rank's tokens. */
xd_tensor xd_attn_linear_turned(xd_exec *x, xd_tensor q, xd_tensor k, xd_tensor v, xd_tensor cos,
                                xd_tensor sin);
/* Computes a convolution of an image, or of each frame of a video, whose pixels are the image
 * tokens. The kernel has an odd number of rows and columns, at most 3, and the image is padded with
 * zeros. `in` [n,C] and the result [n,C'] contain this rank's tokens. xd_conv_tokens is collective
 * over the ranks that split the tokens. With PipeFusion, tokens in other patches contribute the
 * values that were last computed for them. xd_dit_info.conv_dim must be set. */
xd_tensor xd_conv_tokens(xd_exec *x, xd_tensor in, const xd_cnv *w);
/* Computes a convolution with a kernel of 3 frames, over the image tokens at the same row and
 * column in consecutive frames of a video. The video is padded with a frame of zeros before the
 * first and after the last frame. All ranks that split the tokens must call xd_conv_frames.
 * xd_dit_info.frames_dim must be set. */
xd_tensor xd_conv_frames(xd_exec *x, xd_tensor in, const xd_cnv *w);

xd_tensor xd_lookup_rows(xd_exec *x, xd_tensor table, const int32_t *ids, int64_t n, xd_dtype type);
/* Looks up n rows of a table of position embeddings, F32 [n,C]: row i of the result is row
 * place(ctx, i) of the table. If the context x caches tables (exec/tables.h), the rows are looked
 * up only once per request. */
xd_tensor xd_lookup_places(xd_exec *x, xd_tensor table, int64_t n,
                           int64_t (*place)(const void *ctx, int64_t i), const void *ctx);

/* The functions from here to xd_enlarge compute on images. An image is a tensor [T,H,W,C], channels
 * last; H counts only the pixel rows of this rank. Functions whose names end in _into write to
 * `out`, which has the shape of the result and type F32 or x->act. The residual of a convolution
 * and the input of a norm may be the tensor `out` itself. */
typedef struct xd_conv_options {
    int        stride; /* stride along rows and columns; 0 means 1 */
    /* [3]: padding before (lo) and after (hi) the frames, rows and columns; NULL: 0 */
    const int *lo, *hi;
    xd_tensor  residual; /* a tensor that is added to the result, or absent */
} xd_conv_options;
void xd_conv2d_into(xd_exec *x, xd_tensor out, xd_tensor in, const xd_cnv *w,
                    const xd_conv_options *o);
/* Computes a 3D convolution with a kernel of kt frames and stride 1; `in` has kt - 1 more frames
 * than `out`. Frames of `in` are padded at their edges, so that frames of `out` have as many rows
 * and columns as frames of `in`. */
void xd_conv3d_into(xd_exec *x, xd_tensor out, xd_tensor in, const xd_cnv *w, xd_tensor residual);
/* Computes a convolution without messages between ranks. The tensor `in` must contain all rows that
 * xd_conv_rows_into reads. */
void xd_conv_rows_into(xd_exec *x, xd_tensor out, xd_tensor in, const xd_cnv *w,
                       const xd_conv_options *o);
/* Gets halo rows for xd_conv_rows_into from other ranks: at most `lo` rows above this rank's rows
 * and `hi` rows below them, fewer at the image's edges. xd_halo_of is collective over the ranks
 * that split the image's rows. */
typedef struct xd_halo { xd_tensor above, below; } xd_halo;
xd_halo xd_halo_of(xd_exec *x, xd_tensor in, int lo, int hi);
/* Compute a group norm in two steps, for an image that is normalized region by region.
 * xd_group_sums computes the sums over all of `in` [T,H,W,C] and over the ranks that split its
 * rows; xd_group_apply_into then normalizes any region. If a->scale and a->shift, [t,h,w,C] F32,
 * are not absent, the norm is multiplied by a->scale, and a->shift is added, before silu. Each
 * position of a->scale and a->shift is used for T/t frames, H/h rows and W/w columns of `in`.
 * xd_group_apply_into sets a->sums, a->groups and a->count itself. */
typedef struct xd_gsum {
    xd_tensor sums;
    int       groups;
    double    count;
} xd_gsum;
xd_gsum   xd_group_sums(xd_exec *x, xd_tensor in, int groups);
void      xd_group_apply_into(xd_exec *x, const xd_gsum *s, const xd_gnorm *a);
/* Compute the sums of a group norm over G groups for an image [1,H,W,C] whose rows are computed a
 * few at a time. xd_group_rows writes the partial sums of n of this rank's pixel rows to `partial`,
 * [n,G,2] F64. xd_group_close adds the partial sums over all rows of all ranks to s->sums, [G,2]
 * F64. The caller of xd_group_close must set s->groups first. */
void      xd_group_rows(xd_exec *x, xd_tensor partial, xd_tensor in);
void      xd_group_close(xd_exec *x, xd_gsum *s, xd_tensor partial, xd_tensor of);
xd_tensor xd_enlarge(xd_exec *x, xd_tensor in, int t, int h, int w);

/* Returns the sinusoidal embedding of n scalars, F32 [n,dim], as diffusers' Timesteps (Vaswani et
 * al. 2017). If `flip` is 1, cosines come before sines. `shift` is diffusers' downscale_freq_shift:
 * frequency k is 10000^(-k / (dim/2 - shift)). */
xd_tensor xd_time_embed(xd_exec *x, const double *t, int n, int64_t dim, int flip, double shift);
/* Computes the sinusoidal embedding of one scalar in host memory, for xd_fill. */
void      xd_time_row(float *row, double t, int64_t dim, int flip, double shift);

#endif
