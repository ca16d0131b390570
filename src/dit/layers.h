/* layers.h - declares layers that several diffusion transformers use: two-layer embeddings of
 * scalars and vectors, modulation vectors (adaLN), joint attention and cross-attention, rotary
 * positions. */
#ifndef XD_DIT_LAYERS_H
#define XD_DIT_LAYERS_H

#include "dit/dit.h"
#include "dit/mods.h"
#include "exec/op.h"

enum { XD_SINUSOIDS = 256 }; /* number of sinusoids for a scalar (timestep, size) */

typedef struct xd_mlp { xd_lin a, b; } xd_mlp;

/* Declares the weights of two linear layers: "NAME.linear_1" [mid,in] and "NAME.linear_2"
 * [out,mid], with biases. */
void xd_mlp_weights(xd_decl *d, const char *name, xd_mlp *m, int64_t in, int64_t mid, int64_t out);
/* Applies the two linear layers to the input; the result is F32. */
xd_tensor xd_mlp_run(xd_exec *x, xd_tensor in, const xd_mlp *m, xd_act act);
/* Computes the sinusoidal embedding of n scalars as diffusers' Timesteps does (256 features,
 * cosines first, frequency shift 0), then applies the two linear layers m with SiLU between them.
 * xd_mlp_timesteps returns [n,out] F32. */
xd_tensor xd_mlp_timesteps(xd_exec *x, const double *v, int n, const xd_mlp *m);

/* Returns the mean of the rows of t [n,E], as [1,E] F32. The n rows of memory for the sums stay
 * allocated in the arena. */
xd_tensor xd_mean_row(xd_exec *x, xd_tensor t);

/* Copies this rank's rows of a stream from `all`, which has the rows of all ranks, to `own`. */
void xd_copy_own_rows(xd_exec *x, xd_stream_id s, xd_tensor own, xd_tensor all);

/* Returns table + v in F32, in the arena. `table` is a learned modulation table [k,D] or [1,k,D]. v
 * is [k,D], or one row that is added to all rows of the table. */
xd_tensor xd_mod_table(xd_exec *x, xd_tensor table, xd_tensor v);

/* ---- joint attention (Esser et al. 2024, arXiv:2403.03206) ---------------------------------- */

typedef struct xd_adaln { /* weights of a block for one stream: image or text */
    xd_lin    mod;        /* modulation layer [nmod D, D] */
    xd_lin    qkv, out, up, down;
    xd_tensor norm_q, norm_k; /* [head_dim] gains of the RMS norms of q and k, or absent */
} xd_adaln;

/* Names of the tensors of an xd_adaln in a checkpoint. */
typedef struct xd_adaln_names {
    const char *mod, *qkv[3], *out, *norm_q, *norm_k, *up, *down;
} xd_adaln_names;

typedef struct xd_adaln_form {
    int64_t               dim, head_dim;
    /* Number of modulation vectors: usually 6; 9 in a block with a second attention; 2 if the
     * stream ends in this block; 0 if there is no modulation layer. */
    int                   nmod;
    int                   qk_norm; /* 1: queries and keys are normalized */
    /* 1: the stream ends in this block, which computes only q, k and v of the stream */
    int                   last;
    const xd_adaln_names *names; /* tensor names; NULL: diffusers' usual names */
} xd_adaln_form;

/* Declares the weights of one stream under diffusers' tensor names: the image stream if `context`
 * is 0, the text stream if `context` is 1. */
void xd_adaln_weights(xd_decl *d, const xd_adaln_form *f, int context, xd_adaln *w);

/* Queries [n,H,head_dim] of this rank's tokens and heads, and keys and values [n,Hk,head_dim]. */
typedef struct xd_qkv { xd_tensor q, k, v; } xd_qkv;

/* Allocates queries and keys for y [n, (H + 2 Hk) head_dim], the output of the GEMM with `w`. The
 * values v of xd_qkv are not copied: v is a view of y. */
xd_qkv xd_qkv_open(xd_exec *x, xd_tensor y, const xd_lin *w, int64_t head_dim);
typedef struct xd_qkv_rows {
    int64_t   at, n;          /* fills rows [at, at + n) of q and k */
    xd_tensor norm_q, norm_k; /* gains of the RMS norms of q and k, or absent */
    xd_tensor cos, sin;       /* RoPE tables [all rows, head_dim/2], or absent */
    /* Above 0: RoPE rotates only the first `turned` features of a head, features i and i + turned/2
     * together, and the tables are [all rows, turned/2]. 0: RoPE rotates all features, 2i and 2i +
     * 1 together. */
    int64_t   turned;
    float     eps; /* epsilon of the RMS norm; 0 stands for 1e-6 */
} xd_qkv_rows;
/* Fills rows of the queries and keys from y, and applies the RMS norm and RoPE to these rows. */
void xd_qkv_fill(xd_exec *x, const xd_qkv *a, xd_tensor y, const xd_lin *w, const xd_qkv_rows *r);
/* Applies the feed-forward of a block to h: h += gate * down(gelu(up(norm(h)))). Rows 3, 4, 5 of
 * `mod` are shift, scale and gate. */
void xd_adaln_feed(xd_exec *x, xd_tensor h, const xd_adaln *w, xd_tensor mod);

/* ---- cross-attention to text outside the sequence -------------------------------------------- */

/* Allocates the keys and values of m text rows for all blocks of this pipeline stage,
 * [blocks,m,kv.out]. */
xd_tensor xd_text_kv_new(xd_exec *x, const xd_net *n, int64_t m, int64_t width);
/* Returns a view of the keys and values of one block, [m, kv.out]. */
xd_tensor xd_text_kv(xd_tensor room, int64_t block);
/* Computes the cross-attention of queries q [n, D of this rank's heads] to text. In each row of kv,
 * the keys are followed by the values, as the layer `w` outputs them. */
xd_tensor xd_attn_text(xd_exec *x, xd_tensor q, xd_tensor kv, const xd_lin *w, int64_t head_dim);

/* ---- pooled text ----------------------------------------------------------------------------- */

/* Weights of an attention with one query, which pools rows of text. */
typedef struct xd_pool {
    xd_lin    q, kv, out; /* layer whose outputs are the keys, then the values */
    xd_tensor places; /* [1 + n,E]: position embeddings of the mean and of the rows, or absent */
} xd_pool;
/* Pools the rows [n,E] by an attention. The query is the mean of the rows; keys and values are
 * computed from the mean and all rows. xd_pool_run returns [1, out] F32. */
xd_tensor xd_pool_run(xd_exec *x, const xd_pool *w, xd_tensor rows, int heads);

/* ---- rotary positions over a grid ------------------------------------------------------------ */

/* Positions along one side of a grid of n tokens. If `count` is 1, the positions are 0, 1, 2 and so
 * on. Otherwise, the positions go from start to stop in equal steps, computed in f32 like
 * torch.linspace. */
typedef struct xd_grid_side {
    int64_t n;
    float   start, stop;
    int     count;
} xd_grid_side;

float xd_grid_at(const xd_grid_side *a, int64_t i);
/* Computes the ranges of row and column positions for a grid of h x w tokens. The ranges cover the
 * largest central part of the training grid th x tw that has the aspect ratio of h x w (diffusers'
 * get_resize_crop_region_for_grid). */
void  xd_grid_crop(int64_t th, int64_t tw, int64_t h, int64_t w, xd_grid_side *rows,
                   xd_grid_side *cols);
/* Writes the RoPE frequencies of the pairs of features of one position axis, which has `width`
 * features. Theta of the RoPE frequencies is 10000, and the frequencies are computed in f32. */
void  xd_rope_frequencies(float *freq, int64_t width);
/* Argument of the functions `fill`, which write the rows of RoPE tables. xd_rope_table returns a
 * table of cosines or sines, F32 [rows, half]. The function `fill` writes the rows of the table; fn
 * is cos or sin. */
typedef struct xd_rope {
    const xd_exec *x;
    const void    *cfg; /* config of the model, which the function `fill` reads */
    double         (*fn)(double);
} xd_rope;
/* Makes a RoPE table as xd_rope_table does, but for positions that also depend on the text. */
xd_tensor xd_rope_table_of(xd_exec *x, const void *text, int64_t rows, int64_t half,
                           void (*fill)(void *turn, float *to), const void *cfg,
                           double (*fn)(double));
xd_tensor xd_rope_table(xd_exec *x, int64_t rows, int64_t half, void (*fill)(void *turn, float *to),
                        const void *cfg, double (*fn)(double));
/* Writes fn (cos or sin) of the RoPE angles of one axis at position `pos`. xd_rope_angles returns
 * the address after the written elements. */
float    *xd_rope_angles(float *row, int64_t width, const float *freq, float pos,
                         double (*fn)(double));

/* Writes theta^(k / width) for all pairs of features, axis by axis; k is the index of a pair's
 * first feature. The values theta^(k / width) are the RoPE bases for several axes with separate
 * widths. xd_rope_axes computes in f64, as diffusers does. */
void   xd_rope_axes(double *base, double theta, const xd_ints *widths);
/* Writes fn (cos or sin) of the RoPE angles of one token, which are pos[axis] / base. xd_rope_token
 * returns the address after the written elements. */
float *xd_rope_token(float *row, const double *base, const xd_ints *widths, const int64_t *pos,
                     double (*fn)(double));

/* Writes the RoPE angles of this rank's video tokens: axes[i] features of a head rotate by frame,
 * row and column. xd_rope_video is a function `fill` for xd_rope_table. */
void xd_rope_video(const xd_rope *t, float *buf, double theta, const xd_ints *axes);

/* Concatenates the latents of the input and its extra channels along the features. */
xd_tensor xd_join_channels(xd_exec *x, const xd_input *in);
/* Transposes y [n, cells, C or more], the output of the last layer, to `out` [n,C,cells] F32, which
 * has the element order of the latents. */
void      xd_by_channel(xd_exec *x, xd_tensor out, xd_tensor y, int64_t ch);
/* Computes the output [n, ch cells] of a network from the hidden state h [n,D]: a layer norm
 * (epsilon 1e-6) with scale and shift, the last layer w, and xd_by_channel. */
xd_tensor xd_patch_head(xd_exec *x, xd_tensor h, xd_tensor scale, xd_tensor shift, const xd_lin *w,
                        int64_t ch, int64_t cells);
/* Returns SiLU of the sum of the embeddings of the timestep, of 1000 times the guidance scale (if
 * `guidance` is not NULL), and of the pooled text: [1,D] F32, the input of modulation layers. */
xd_tensor xd_pooled_row(xd_exec *x, const xd_input *in, const xd_mlp *time, const xd_mlp *guidance,
                        const xd_mlp *pooled);

/* A value from a transformer's config, with the name of its key and the limits of the value. */
typedef struct xd_config_range {
    const char *key;
    int64_t     v, min, max;
} xd_config_range;
/* Checks n values of a config. If a value is outside its range [min, max], returns XD_EFORMAT and
 * an error that names the value's key. */
xd_status xd_check_ranges(const xd_config_range *r, size_t n, xd_err *e);
/* Functions that check that a config value, which is a word or a number, has the only supported
 * value. */
xd_status xd_check_word(const char *key, const char *value, const char *only, xd_err *e);
xd_status xd_check_number(const char *key, int64_t value, int64_t only, xd_err *e);

#endif
