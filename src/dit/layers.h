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
/* Applies the two linear layers of `m` to the input, with the activation `act` between them; the
 * result is F32. */
xd_tensor xd_mlp_run(xd_exec *x, xd_tensor in, const xd_mlp *m, xd_act act);
/* Computes the sinusoidal embedding of n scalars as diffusers' Timesteps does (256 features,
 * cosines first, frequency shift 0), then applies the two linear layers m with SiLU between them.
 * xd_mlp_timesteps returns [n,out] F32. */
xd_tensor xd_mlp_timesteps(xd_exec *x, const double *v, int n, const xd_mlp *m);

/* Returns the mean of the rows of t [n,E], as [1,E] F32. The scratch memory for the sums, n rows,
 * stays allocated in the arena. */
xd_tensor xd_mean_row(xd_exec *x, xd_tensor t);

/* Copies this rank's tokens of a stream from `all`, which contains the tokens of all ranks, to
 * `own`. */
void xd_copy_own_rows(xd_exec *x, xd_stream_id s, xd_tensor own, xd_tensor all);

/* Returns table + v in F32, in the arena. `table` is a learned modulation table [k,D] or [1,k,D].
 * The tensor v is [k,D], or one row that is added to all rows of the table. */
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
    /* Number of modulation vectors: usually 6; 9 in a block with a second attention; 2 if later
     * blocks do not use this stream; 0 if the block has no modulation layer. */
    int                   nmod;
    int                   qk_norm; /* 1: queries and keys are normalized */
    /* 1: later blocks do not use this stream, so this block computes only the stream's q, k and
     * v */
    int                   last;
    const xd_adaln_names *names; /* tensor names; NULL: diffusers' usual names */
} xd_adaln_form;

/* Declares the weights of one stream under diffusers' tensor names: the image stream if `context`
 * is 0, the text stream if `context` is 1. */
void xd_adaln_weights(xd_decl *d, const xd_adaln_form *f, int context, xd_adaln *w);

/* Queries [n,H,head_dim] of this rank's tokens and heads, and keys and values [n,Hk,head_dim]. */
typedef struct xd_qkv { xd_tensor q, k, v; } xd_qkv;

/* Allocates queries and keys for y, the output of the GEMM with `w`: n rows, each with H query
 * heads and Hk heads of keys and of values. The values are not copied: v of the result is a view of
 * y. */
xd_qkv xd_qkv_open(xd_exec *x, xd_tensor y, const xd_lin *w, int64_t head_dim);
typedef struct xd_qkv_rows {
    int64_t   at, n;          /* rows [at, at + n) of q and k are filled */
    xd_tensor norm_q, norm_k; /* gains of the RMS norms of q and k, or absent */
    xd_tensor cos, sin;       /* RoPE tables [all rows, head_dim/2], or absent */
    /* Above 0: RoPE rotates only the first `turned` features of a head, in the pairs i and i +
     * turned/2, and the tables have turned/2 columns. 0: RoPE rotates all features, in the pairs 2i
     * and 2i + 1. */
    int64_t   turned;
    float     eps; /* epsilon of the RMS norm; 0 stands for 1e-6 */
} xd_qkv_rows;
/* Fills rows of the queries and keys from y, with the RMS norm and RoPE applied. */
void xd_qkv_fill(xd_exec *x, const xd_qkv *a, xd_tensor y, const xd_lin *w, const xd_qkv_rows *r);
/* Applies the feed-forward of a block to h: h += gate * down(gelu(up(norm(h)))). Rows 3, 4 and 5 of
 * `mod` are the shift, scale and gate of the feed-forward. */
void xd_adaln_feed(xd_exec *x, xd_tensor h, const xd_adaln *w, xd_tensor mod);

/* ---- cross-attention to text outside the sequence -------------------------------------------- */

/* Allocates the keys and values of m text tokens for all blocks of this pipeline stage,
 * [blocks,m,width]. */
xd_tensor xd_text_kv_new(xd_exec *x, const xd_net *n, int64_t m, int64_t width);
/* Returns a view of the text's keys and values for block number `block` of this pipeline stage,
 * [m,width]. */
xd_tensor xd_text_kv(xd_tensor room, int64_t block);
/* Computes the cross-attention of queries q [n, D of this rank's heads] to text. In each row of kv,
 * keys are followed by values, because the layer `w` outputs them in this order. */
xd_tensor xd_attn_text(xd_exec *x, xd_tensor q, xd_tensor kv, const xd_lin *w, int64_t head_dim);

/* ---- pooled text ----------------------------------------------------------------------------- */

/* Weights of an attention layer with a single query, which pools text tokens to one vector. */
typedef struct xd_pool {
    xd_lin    q, kv, out; /* `kv` is a layer that outputs the keys, then the values */
    /* [1 + n,E]: position embeddings of the tokens' mean and of the n tokens, or absent */
    xd_tensor places;
} xd_pool;
/* Pools n rows of width E to one row by attention: the query is the mean of the rows, and keys and
 * values are computed from the mean and all rows. xd_pool_run returns [1, out] F32. */
xd_tensor xd_pool_run(xd_exec *x, const xd_pool *w, xd_tensor rows, int heads);

/* ---- rotary positions over a grid ------------------------------------------------------------ */

/* Positions of the n tokens along one axis of a grid. If `count` is 1, the positions are 0, 1, 2
 * and so on. If `count` is 0, the positions go from start to stop in equal steps, computed in f32
 * like torch.linspace. */
typedef struct xd_grid_side {
    int64_t n;
    float   start, stop;
    int     count;
} xd_grid_side;

float xd_grid_at(const xd_grid_side *a, int64_t i);
/* Computes the ranges of row and column positions for an image of h x w tokens. The ranges cover
 * the largest central rectangle of the training grid (th x tw tokens) with the aspect ratio of the
 * image, as diffusers' get_resize_crop_region_for_grid does. */
void  xd_grid_crop(int64_t th, int64_t tw, int64_t h, int64_t w, xd_grid_side *rows,
                   xd_grid_side *cols);
/* Writes the RoPE frequencies of the pairs of features of one position axis, which has `width`
 * features. Theta of the RoPE frequencies is 10000, and the frequencies are computed in f32. */
void  xd_rope_frequencies(float *freq, int64_t width);
/* Argument of a function `fill` that writes a RoPE table. xd_rope_table returns a table of cosines
 * (fn is cos) or sines (fn is sin), F32 [rows, half], which the function `fill` has written. */
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
/* Writes the cosines or sines (`fn`) of the RoPE angles of one axis at position `pos`.
 * xd_rope_angles returns the address after the written elements. */
float    *xd_rope_angles(float *row, int64_t width, const float *freq, float pos,
                         double (*fn)(double));

/* Writes the RoPE bases of all pairs of features, axis by axis: theta^(k / width) for an axis of
 * `width` features, where k is the index of the pair's first feature. xd_rope_axes computes in f64,
 * as diffusers does. */
void   xd_rope_axes(double *base, double theta, const xd_ints *widths);
/* Writes the cosines or sines (`fn`) of the RoPE angles of one token, which are pos[axis] / base.
 * xd_rope_token returns the address after the written elements. */
float *xd_rope_token(float *row, const double *base, const xd_ints *widths, const int64_t *pos,
                     double (*fn)(double));

/* Writes the RoPE table of this rank's video tokens: axes[0], axes[1] and axes[2] features of a
 * head rotate by the frame, the row and the column. xd_rope_video is a function `fill` for
 * xd_rope_table. */
void xd_rope_video(const xd_rope *t, float *buf, double theta, const xd_ints *axes);

/* Concatenates the latents in->lat and the extra channels in->extra along the features. */
xd_tensor xd_join_channels(xd_exec *x, const xd_input *in);
/* Reorders y, the output of the last layer for n tokens, [n, cells, C or more], to the element
 * order of the latents: `out` [n,C,cells] F32. `cells` is the number of latent positions of a
 * token. */
void      xd_by_channel(xd_exec *x, xd_tensor out, xd_tensor y, int64_t ch);
/* Computes the output of a network for n tokens from the hidden state h [n,D]: a layer norm
 * (epsilon 1e-6) with scale and shift, the last layer w, and the reordering of xd_by_channel. */
xd_tensor xd_patch_head(xd_exec *x, xd_tensor h, xd_tensor scale, xd_tensor shift, const xd_lin *w,
                        int64_t ch, int64_t cells);
/* Returns SiLU of the sum of the embeddings of the timestep, of 1000 times the guidance scale (if
 * `guidance` is not NULL), and of the pooled text: [1,D] F32, the input of modulation layers. */
xd_tensor xd_pooled_row(xd_exec *x, const xd_input *in, const xd_mlp *time, const xd_mlp *guidance,
                        const xd_mlp *pooled);

/* A value from a transformer's config, its key, and its limits. */
typedef struct xd_config_range {
    const char *key;
    int64_t     v, min, max;
} xd_config_range;
/* Checks n values of a config. If a value is outside its range [min, max], returns XD_EFORMAT and
 * an error that names the value's key. */
xd_status xd_check_ranges(const xd_config_range *r, size_t n, xd_err *e);
/* Check that a config value, a word or a number, equals the only supported value. */
xd_status xd_check_word(const char *key, const char *value, const char *only, xd_err *e);
xd_status xd_check_number(const char *key, int64_t value, int64_t only, xd_err *e);

#endif
