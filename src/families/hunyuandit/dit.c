/* dit.c - runs the transformer of Hunyuan-DiT (Li et al. 2024, arXiv:2405.08748) like diffusers'
 * HunyuanDiT2DModel, and its side networks like diffusers' HunyuanDiT2DControlNetModel.
 *
 * The blocks form a U: block i of the second half first combines (skip_linear) the hidden state
 * with the output of block n - 1 - i, which is in the first half. The embedding of the timestep and
 * of the pooled text only shifts the first norm of a block. Both self-attention and cross-attention
 * normalize their queries and keys. Self-attention applies RoPE to the queries and the keys,
 * cross-attention only to the queries. The text rows are first BERT's, then mT5's. In both, padding
 * rows are replaced by learned rows from the checkpoint.
 *
 * A side network (ControlNet) has one block for each long skip. Its hidden state starts as the
 * embedding of the latents plus a layer of the embedding of the control image's latents. The output
 * of its block i, after a layer of its own, is added to the long skip from block i of the
 * transformer. A side network never reads the transformer's hidden state, so its block i runs
 * directly after the transformer's block i, and all states pass through the pipeline stages
 * together. A side network has its own embedding of the timestep and its own projection of the
 * text. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "dit/layers.h"
#include "dit/sides.h"

static const float qk_eps = 1e-6f, final_eps = 1e-6f;
static const float eps = 1e-6f; /* epsilon of the blocks' norms; not in the config */

enum {
    POOL_HEADS = 8, /* number of heads of the attention that pools mT5's rows */
    /* number of size values: original and target height and width, crop top, crop left */
    SIZES = 6,
    /* RoPE maps the grid of an image of any size to the grid of an image of 512 x 512 pixels, with
     * 8 x 8 pixels per cell */
    SIDE = 512,
    CELL = 8,
    /* number of rows of h and skip that are concatenated at a time (1.4 MB) */
    BAND = 64,
};

typedef struct cfg {
    int64_t head_dim, in_ch, patch, sample, hidden, cross, cross_t5, pooled, text_len, text_len_t5;
    int     heads, nlayers, sigma, styled;
    double  ratio; /* mlp_ratio of the config */
    char    act_fn[XD_FIELD_TEXT], norm[XD_FIELD_TEXT];
    xd_act  act;
    /* D = heads * head_dim, the width of a token; width of the feed-forward */
    int64_t dim, ff;
} cfg;

/* The config of the transformer with its side networks. In the config of a side network, `nlayers`
 * is transformer_num_layers, the number of blocks of the transformer. */
typedef struct whole_cfg {
    cfg      main;
    int      nsides;
    cfg      side[XD_MAXSIDES];
    xd_sides order; /* the order of the blocks of all networks */
} whole_cfg;

#define AT(m) offsetof(cfg, m)
/* Config keys that the transformer and its side networks have. */
#define COMMON_FIELDS                                            \
    { "num_attention_heads", AT(heads), 'i', 16, NULL },         \
    { "attention_head_dim", AT(head_dim), 'l', 88, NULL },       \
    { "in_channels", AT(in_ch), 'l', 0, NULL },                  \
    { "patch_size", AT(patch), 'l', 0, NULL },                   \
    { "activation_fn", AT(act_fn), 's', 0, "gelu-approximate" }, \
    { "sample_size", AT(sample), 'l', 32, NULL },                \
    { "hidden_size", AT(hidden), 'l', 1152, NULL },              \
    { "mlp_ratio", AT(ratio), 'd', 4.0, NULL },                  \
    { "cross_attention_dim", AT(cross), 'l', 1024, NULL },       \
    { "cross_attention_dim_t5", AT(cross_t5), 'l', 2048, NULL }, \
    { "pooled_projection_dim", AT(pooled), 'l', 1024, NULL },    \
    { "text_len", AT(text_len), 'l', 77, NULL },                 \
    { "text_len_t5", AT(text_len_t5), 'l', 256, NULL },          \
    { "use_style_cond_and_image_meta_size", AT(styled), 'b', 1, NULL }

static const xd_field fields[] = {
    COMMON_FIELDS,
    { "num_layers", AT(nlayers), 'i', 28, NULL },
    { "learn_sigma", AT(sigma), 'b', 1, NULL },
    { "norm_type", AT(norm), 's', 0, "layer_norm" },
    { XD_SIDES_KEY, 0, '-', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

/* The config keys of a side network. */
static const xd_field side_fields[] = {
    COMMON_FIELDS,
    { "transformer_num_layers", AT(nlayers), 'i', 40, NULL },
    { "conditioning_channels", 0, '-', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

typedef struct affine { xd_tensor gain, bias; } affine;

typedef struct blk {
    affine skip_norm, norm1, norm2, norm3; /* skip_norm has width 2D, the other norms D */
    /* [D, 2D]: skip_linear, only in blocks of the second half */
    xd_lin skip;
    xd_lin shift; /* [D, D]: computes the shift of the first norm */
    xd_lin qkv, out, q, kv, cross, up, down;
    affine norm_q, norm_k, cross_q, cross_k; /* [head_dim]: norms of queries and keys */
} blk;

typedef struct glob {
    xd_lin    patch; /* [D, C p^2]: patch embedding */
    xd_mlp    time, text, extra;
    /* [text_len + text_len_t5, cross]: learned rows that replace padding */
    xd_tensor padding;
    xd_tensor style; /* [1,D]: embedding of the image style */
    xd_pool   pool;  /* attention that pools mT5's rows, including those of padding */
    xd_lin    mod;   /* [2D, D]: modulation of the final norm */
    xd_lin    out;   /* [p^2 Cout, D]: output projection */
} glob;

typedef struct side_blk {
    blk    b;
    xd_lin out; /* layer from the side network's hidden state to what is added to a long skip */
} side_blk;

typedef struct whole_glob {
    glob   main, side[XD_MAXSIDES]; /* the side networks have no final norm and no output layer */
    xd_lin control[XD_MAXSIDES];    /* [D, D]: layer after the embedding of the control image */
} whole_glob;

typedef struct local {
    xd_tensor active;   /* [1,D]: silu of the embedding of timestep and `extra` */
    xd_tensor cos, sin; /* [n, head_dim/2] F32: RoPE of this rank's tokens */
} local;

typedef struct whole_local {
    local     main;
    xd_tensor active[XD_MAXSIDES]; /* `active` of the side networks */
    xd_tensor scales;              /* [sides,D] F32: factors of what the side networks compute */
    /* 1: the factor of the side network is not 0, so that its blocks run in this forward pass */
    int       on[XD_MAXSIDES];
} whole_local;

typedef struct kept {
    /* [blocks of this stage, m, 2 x this rank's part of D]: keys and values of the text */
    xd_tensor kv;
    xd_tensor extra; /* [1,D] F32: embedding of pooled text, size and style */
} kept;

typedef struct whole_kept {
    kept      main; /* main.kv also has the keys and values for the blocks of the side networks */
    xd_tensor extra[XD_MAXSIDES]; /* `extra` of the side networks */
} whole_kept;

/* ---- configuration ------------------------------------------------------------------------ */

static xd_status check_kind(cfg *c, xd_err *e)
{
    if (strcmp(c->norm, "layer_norm") != 0)
        return xd_fail(e, XD_EUNSUPPORTED, "transformer: norm_type '%s' is not 'layer_norm'",
                       c->norm);
    if (strcmp(c->act_fn, "gelu-approximate") != 0 && strcmp(c->act_fn, "gelu") != 0)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: activation_fn '%s' is not 'gelu-approximate' or 'gelu'",
                       c->act_fn);
    c->act = strcmp(c->act_fn, "gelu") == 0 ? XD_GELU_ERF : XD_GELU_TANH;
    if (c->hidden != c->dim)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: hidden_size %lld is not the width %lld "
                       "(num_attention_heads %d x attention_head_dim %lld)",
                       (long long)c->hidden, (long long)c->dim, c->heads, (long long)c->head_dim);
    if (c->nlayers % 2)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: num_layers %d is odd: blocks of the second "
                       "half take the outputs of as many of the first",
                       c->nlayers);
    if (c->head_dim % 4)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: attention_head_dim %lld is not a multiple of "
                       "4, which RoPE over two axes needs",
                       (long long)c->head_dim);
    if (c->cross_t5 % POOL_HEADS || c->cross_t5 / POOL_HEADS > 512)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: cross_attention_dim_t5 %lld does not divide "
                       "into %d heads of at most 512",
                       (long long)c->cross_t5, POOL_HEADS);
    return XD_OK;
}

static xd_status check_config(void *c_, xd_err *e)
{
    cfg                  *c = c_;
    const xd_config_range r[] = {
        { "num_attention_heads", c->heads, 1, 4096 },
        { "attention_head_dim", c->head_dim, 8, 512 },
        { "in_channels", c->in_ch, 1, 65536 },
        { "num_layers", c->nlayers, 2, 10000 },
        { "patch_size", c->patch, 1, SIDE / CELL },
        { "sample_size", c->sample, c->patch, 1 << 20 },
        { "cross_attention_dim", c->cross, 1, 1 << 20 },
        { "cross_attention_dim_t5", c->cross_t5, 1, 1 << 20 },
        { "pooled_projection_dim", c->pooled, 1, 1 << 20 },
        { "text_len", c->text_len, 1, 1 << 16 },
        { "text_len_t5", c->text_len_t5, 1, 1 << 16 },
    };
    if (xd_check_ranges(r, sizeof r / sizeof r[0], e) != XD_OK)
        return XD_EFORMAT;
    c->dim = c->heads * c->head_dim;
    if (!(c->ratio > 0 && c->ratio <= 1024 && (double)c->dim * c->ratio >= 1))
        return xd_fail(e, XD_EFORMAT, "transformer: mlp_ratio %g leaves a feed-forward of no width",
                       c->ratio);
    c->ff = (int64_t)((double)c->dim * c->ratio);
    return check_kind(c, e);
}

static int nlayers(const void *c)
{
    return ((const cfg *)c)->nlayers;
}

/* Returns the block whose output a block of the second half reads as a long skip. The middle block,
 * n/2, reads no skip. The outputs of the middle block and of the block before it are not read as a
 * skip by any block. */
static int skip_from(const void *c, int layer)
{
    int n = nlayers(c);
    return layer > n / 2 ? n - 1 - layer : -1;
}

static void info(const void *c_, xd_dit_info *out)
{
    const cfg *c = c_;
    *out = (xd_dit_info){
        .nlayers = c->nlayers,
        .heads = c->heads,
        .head_dim = (int)c->head_dim,
        .patch = { 1, (int)c->patch, (int)c->patch },
        .dim = c->dim,
        .lat_ch = c->in_ch,
        .sample = { 1, c->sample, c->sample },
        .text_dim = c->cross > c->cross_t5 ? c->cross : c->cross_t5,
        .text_rows = c->text_len + c->text_len_t5,
        .text_cols = { c->cross, c->cross_t5 },
        .micro = c->styled,
        .sites = 1,
        .local_size = sizeof(local),
        .kept_size = sizeof(kept),
    };
}

/* ---- weights ------------------------------------------------------------------------------ */

static void skip_weights(xd_decl *d, const void *c_, blk *w)
{
    const cfg *c = c_;
    xd_w_affine(d, "skip_norm", &w->skip_norm.gain, &w->skip_norm.bias, 2 * c->dim);
    xd_w_linear(d, &w->skip, "skip_linear",
                &(xd_linear_spec){ .in = 2 * c->dim, .out = c->dim, .bias = 1 });
}

static int64_t active_width(const void *c)
{
    return ((const cfg *)c)->dim;
}

static void blk_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    static const char *const qkv[] = { "to_q", "to_k", "to_v" }, *const kv[] = { "to_k", "to_v" };
    const cfg *c = c_;
    blk       *w = w_;
    int64_t    D = c->dim, hd = c->head_dim;
    if (skip_from(c, layer) >= 0)
        skip_weights(d, c, w);
    xd_w_affine(d, "norm1.norm", &w->norm1.gain, &w->norm1.bias, D);
    xd_w_linear(d, &w->shift, "norm1.linear",
                &(xd_linear_spec){ .in = D, .out = D, .bias = 1, .few = 1 });
    xd_w_enter(d, "attn1");
    xd_w_affine(d, "norm_q", &w->norm_q.gain, &w->norm_q.bias, hd);
    xd_w_affine(d, "norm_k", &w->norm_k.gain, &w->norm_k.bias, hd);
    xd_w_fused(d, &w->qkv,
               &(xd_fused_spec){ .n = 3,
                                 .names = qkv,
                                 .in = D,
                                 .out = { D, D, D },
                                 .split = XD_COL,
                                 .unit = hd,
                                 .bias = 1 });
    xd_w_linear(d, &w->out, "to_out.0",
                &(xd_linear_spec){ .in = D, .out = D, .split = XD_ROW, .unit = hd, .bias = 1 });
    xd_w_leave(d);
    xd_w_affine(d, "norm2", &w->norm2.gain, &w->norm2.bias, D);
    xd_w_enter(d, "attn2");
    xd_w_affine(d, "norm_q", &w->cross_q.gain, &w->cross_q.bias, hd);
    xd_w_affine(d, "norm_k", &w->cross_k.gain, &w->cross_k.bias, hd);
    xd_w_linear(d, &w->q, "to_q",
                &(xd_linear_spec){ .in = D, .out = D, .split = XD_COL, .unit = hd, .bias = 1 });
    xd_w_fused(d, &w->kv,
               &(xd_fused_spec){ .n = 2,
                                 .names = kv,
                                 .in = c->cross,
                                 .out = { D, D },
                                 .split = XD_COL,
                                 .unit = hd,
                                 .bias = 1 });
    xd_w_linear(d, &w->cross, "to_out.0",
                &(xd_linear_spec){ .in = D, .out = D, .split = XD_ROW, .unit = hd, .bias = 1 });
    xd_w_leave(d);
    xd_w_affine(d, "norm3", &w->norm3.gain, &w->norm3.bias, D);
    xd_w_linear(d, &w->up, "ff.net.0.proj",
                &(xd_linear_spec){ .in = D, .out = c->ff, .split = XD_COL, .bias = 1 });
    xd_w_linear(d, &w->down, "ff.net.2",
                &(xd_linear_spec){ .in = c->ff, .out = D, .split = XD_ROW, .bias = 1 });
}

static void pool_weights(xd_decl *d, const cfg *c, glob *g)
{
    static const char *const kv[] = { "k_proj", "v_proj" };
    int64_t                  E = c->cross_t5;
    xd_w_enter(d, "pooler");
    xd_w_vec(d, &g->pool.places, "positional_embedding", 2, (int64_t[]){ 1 + c->text_len_t5, E });
    xd_w_linear(d, &g->pool.q, "q_proj", &(xd_linear_spec){ .in = E, .out = E, .bias = 1 });
    xd_w_fused(d, &g->pool.kv,
               &(xd_fused_spec){ .n = 2, .names = kv, .in = E, .out = { E, E }, .bias = 1 });
    xd_w_linear(d, &g->pool.out, "c_proj",
                &(xd_linear_spec){ .in = E, .out = c->pooled, .bias = 1 });
    xd_w_leave(d);
}

/* Declares the weights that the transformer and a side network have in common. */
static void input_weights(xd_decl *d, const cfg *c, glob *g)
{
    int64_t D = c->dim, p = c->patch;
    xd_w_linear_as(d, &g->patch, "pos_embed.proj", 4, (int64_t[]){ D, c->in_ch, p, p }, 1);
    xd_mlp_weights(d, "text_embedder", &g->text, c->cross_t5, 4 * c->cross_t5, c->cross);
    xd_w_vec(d, &g->padding, "text_embedding_padding", 2,
             (int64_t[]){ c->text_len + c->text_len_t5, c->cross });
    xd_w_enter(d, "time_extra_emb");
    xd_mlp_weights(d, "timestep_embedder", &g->time, XD_SINUSOIDS, D, D);
    pool_weights(d, c, g);
    if (c->styled)
        xd_w_vec(d, &g->style, "style_embedder.weight", 2, (int64_t[]){ 1, D });
    xd_mlp_weights(d, "extra_embedder", &g->extra,
                   c->pooled + (c->styled ? SIZES * XD_SINUSOIDS + D : 0), 4 * D, D);
    xd_w_leave(d);
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    int64_t    D = c->dim, p = c->patch;
    input_weights(d, c, g);
    xd_w_linear(d, &g->mod, "norm_out.linear",
                &(xd_linear_spec){ .in = D, .out = 2 * D, .bias = 1 });
    xd_w_linear(
        d, &g->out, "proj_out",
        &(xd_linear_spec){ .in = D, .out = p * p * c->in_ch * (1 + !!c->sigma), .bias = 1 });
}

/* ---- text --------------------------------------------------------------------------------- */

/* Writes to `out` the part of the embedding that does not depend on the timestep. This part is the
 * embedding of the pooled text and, in the first versions of the model, also of size and style. The
 * original size is the pipeline's default, and the crop offsets are 0. */
static void extra_into(xd_exec *x, const cfg *c, const glob *g, const xd_input *in, xd_tensor rows,
                       xd_tensor out)
{
    double    size[SIZES] = { in->original[0] > 0 ? in->original[0] : 1024,
                              in->original[1] > 0 ? in->original[1] : 1024,
                              in->size[0],
                              in->size[1],
                              in->crop[0],
                              in->crop[1] };
    int64_t   P = c->pooled, W = SIZES * XD_SINUSOIDS;
    xd_tensor all = xd_new_f32(x, 1, g->extra.a.w.in);
    xd_copy_to(x, xd_cols(all, 0, P), xd_pool_run(x, &g->pool, rows, POOL_HEADS));
    if (c->styled) {
        xd_tensor s = xd_time_embed(x, size, SIZES, XD_SINUSOIDS, 1, 0);
        xd_copy_to(x, xd_cols(all, P, W), xd_reshape(s, 2, (int64_t[]){ 1, W }));
        xd_copy_to(x, xd_cols(all, P + W, c->dim), g->style);
    }
    xd_copy_to(x, out, xd_mlp_run(x, all, &g->extra, XD_SILU));
}

/* Returns the text rows for cross-attention, in the compute type. First come the rows of BERT, then
 * the rows of mT5, which are projected to the width of BERT's rows. */
static xd_tensor text_rows(xd_exec *x, const cfg *c, const glob *g, const xd_cond *text)
{
    int64_t   bert = text->real[0], t5 = text->real[1];
    xd_tensor out = xd_new_f32(x, g->padding.d[0], c->cross);
    xd_copy_to(x, out, g->padding);
    xd_copy_to(x, xd_rows(out, 0, bert), xd_cols(xd_rows(text->tok, 0, bert), 0, c->cross));
    xd_tensor in = xd_cols(xd_rows(text->tok, c->text_len, t5), 0, c->cross_t5);
    xd_copy_to(x, xd_rows(out, c->text_len, t5), xd_mlp_run(x, in, &g->text, XD_SILU));
    return xd_as(x, out, x->act);
}

static int text_fits(xd_exec *x, const cfg *c, const xd_cond *text)
{
    int64_t most[2] = { c->text_len, c->text_len_t5 };
    return xd_check(x,
                    text->tok.d[0] == most[0] + most[1] && text->real[0] <= most[0] &&
                        text->real[1] <= most[1],
                    "%lld rows of text, %lld and %lld of them real, came for %lld and %lld",
                    (long long)text->tok.d[0], (long long)text->real[0], (long long)text->real[1],
                    (long long)most[0], (long long)most[1]);
}

/* Returns the rows of mT5, including those of padding. */
static xd_tensor t5_rows(const cfg *c, const xd_cond *text)
{
    return xd_cols(xd_rows(text->tok, c->text_len, c->text_len_t5), 0, c->cross_t5);
}

/* Computes `kv`, the keys and values of a block, from the text rows t. */
static void fill_kv(xd_exec *x, const cfg *c, const blk *w, xd_tensor kv, xd_tensor t)
{
    xd_tensor keys = xd_heads(xd_seg(kv, &w->kv, 0), c->head_dim);
    xd_linear_into(x, kv, t, &w->kv);
    xd_qk_layer_norm_into(x, &(xd_qknorm){ .out = keys,
                                           .in = keys,
                                           .gain = w->cross_k.gain,
                                           .bias = w->cross_k.bias,
                                           .eps = qk_eps });
}

static void keep_text(xd_exec *x, const xd_net *n, const xd_cond *text, void *kept_)
{
    kept *k = kept_;
    k->kv = xd_text_kv_new(x, n, text->tok.d[0],
                           n->last > n->first ? ((const blk *)n->layer[n->first])->kv.w.out : 0);
    k->extra = xd_new_f32(x, 1, ((const cfg *)n->cfg)->dim);
}

/* ---- conditioning ------------------------------------------------------------------------- */

/* Fills the RoPE angles of image tokens. In each head, the first half of the features encodes the
 * token's column, the second half its row. */
static void fill_angles(void *ctx, float *buf)
{
    const xd_rope *t = ctx;
    const cfg     *c = t->cfg;
    int64_t        H = t->x->lay->grid[1], W = t->x->lay->grid[2], half = c->head_dim / 2;
    int64_t        base = SIDE / CELL / c->patch;
    xd_grid_side   rows, cols;
    /* one value per pair of features; a head has at most 512 features */
    float          freq[128];
    xd_grid_crop(base, base, H, W, &rows, &cols);
    xd_rope_frequencies(freq, half);
    for (int64_t i = 0; i < xd_n(t->x, XD_IMG); i++) {
        int64_t at = xd_where(t->x, XD_IMG, i);
        buf = xd_rope_angles(buf, half, freq, xd_grid_at(&cols, at % W), t->fn);
        buf = xd_rope_angles(buf, half, freq, xd_grid_at(&rows, at / W % H), t->fn);
    }
}

static xd_tensor active_of(xd_exec *x, const glob *g, const xd_input *in, xd_tensor extra)
{
    xd_tensor emb = xd_mlp_timesteps(x, &in->t, 1, &g->time);
    xd_add(x, emb, extra);
    return xd_gated(x, emb, (xd_tensor){ 0 }, XD_SILU);
}

static xd_tensor active(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept_)
{
    return active_of(x, n->glob, in, ((const kept *)kept_)->extra);
}

static void cond(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const cfg *c = n->cfg;
    local     *l = s->local;
    l->active = xd_mods_input(x, n, in, s->kept, active);
    l->cos = xd_rope_table(x, xd_n(x, XD_IMG), c->head_dim / 2, fill_angles, c, cos);
    l->sin = xd_rope_table(x, xd_n(x, XD_IMG), c->head_dim / 2, fill_angles, c, sin);
}

static void embed(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    int64_t     rows = xd_n(x, XD_IMG);
    if (xd_check(x, in->lat.d[0] == rows && s->h.d[0] == rows,
                 "%lld image tokens do not match %lld rows of state and %lld of latents",
                 (long long)rows, (long long)s->h.d[0], (long long)in->lat.d[0]))
        xd_linear_into(x, xd_dit_state(s, ((const cfg *)n->cfg)->dim, 0), in->lat, &g->patch);
}

/* ---- running ------------------------------------------------------------------------------ */

/* Computes h = skip_linear(norm([h, skip])). The norm covers the features of h and of skip, so h
 * and skip are concatenated first, BAND rows at a time. */
static void join_skip(xd_exec *x, const blk *w, xd_tensor h, xd_tensor skip)
{
    int64_t   D = h.d[1];
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor y = xd_new(x, h.d[0], 2 * D),
              both = xd_new_f32(x, h.d[0] < BAND ? h.d[0] : BAND, 2 * D);
    for (int64_t at = 0; at < h.d[0]; at += BAND) {
        int64_t   n = h.d[0] - at < BAND ? h.d[0] - at : BAND;
        xd_tensor t = xd_rows(both, 0, n);
        xd_copy_to(x, xd_cols(t, 0, D), xd_rows(h, at, n));
        xd_copy_to(x, xd_cols(t, D, D), xd_rows(skip, at, n));
        xd_norm_into(x, &(xd_norm){ .out = xd_rows(y, at, n),
                                    .in = t,
                                    .gain = w->skip_norm.gain,
                                    .bias = w->skip_norm.bias,
                                    .eps = eps });
    }
    xd_linear_into(x, h, y, &w->skip);
    xd_arena_rewind(x->tmp, mark);
}

static xd_tensor norm_rows(xd_exec *x, xd_tensor h, const affine *a, xd_tensor shift)
{
    xd_tensor y = xd_new(x, h.d[0], h.d[1]);
    xd_norm_into(
        x, &(xd_norm){
               .out = y, .in = h, .gain = a->gain, .bias = a->bias, .shift = shift, .eps = eps });
    return y;
}

/* Normalizes the queries and, if present, the keys, then applies RoPE; the results are written over
 * the queries and keys. */
static void norm_and_rope(xd_exec *x, const local *l, xd_tensor q, const affine *a, xd_tensor k,
                          const affine *b)
{
    xd_qk_layer_norm_into(
        x, &(xd_qknorm){ .out = q,
                         .in = q,
                         .gain = a->gain,
                         .bias = a->bias,
                         .also = { .out = k, .in = k, .gain = b->gain, .bias = b->bias },
                         .cos = l->cos,
                         .sin = l->sin,
                         .eps = qk_eps });
}

/* Runs a block of the transformer or of a side network on the hidden state h. active: see
 * local.active. */
static void run_block(xd_exec *x, const xd_net *n, const blk *w, xd_state *s, xd_tensor h,
                      xd_tensor active)
{
    const cfg   *c = n->cfg;
    const local *l = s->local;
    const kept  *text = s->kept;
    xd_tensor    none = { 0 };
    int64_t      hd = c->head_dim;
    size_t       mark = xd_arena_mark(x->tmp);
    xd_tensor    y =
        xd_linear(x, norm_rows(x, h, &w->norm1, xd_mod_rows(x, active, &w->shift, 1)), &w->qkv);
    xd_tensor q = xd_heads(xd_seg(y, &w->qkv, 0), hd), k = xd_heads(xd_seg(y, &w->qkv, 1), hd);
    norm_and_rope(x, l, q, &w->norm_q, k, &w->norm_k);
    xd_tensor o = xd_attn(x, q, k, xd_heads(xd_seg(y, &w->qkv, 2), hd), 0);
    xd_linear_add(x, h, none, xd_flat(o), &w->out);
    xd_arena_rewind(x->tmp, mark);

    q = xd_linear(x, norm_rows(x, h, &w->norm2, none), &w->q);
    norm_and_rope(x, l, xd_heads(q, hd), &w->cross_q, none, &(affine){ 0 });
    o = xd_attn_text(x, q, xd_text_kv(text->kv, x->layer - n->first), &w->kv, hd);
    xd_linear_add(x, h, none, o, &w->cross);
    xd_arena_rewind(x->tmp, mark);

    xd_linear_add(x, h, none, xd_linear_act(x, norm_rows(x, h, &w->norm3, none), &w->up, c->act),
                  &w->down);
}

static void forward(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const blk   *w = w_;
    const local *l = s->local;
    xd_tensor    h = xd_dit_state(s, ((const cfg *)n->cfg)->dim, 0);
    if (s->skip.nd)
        join_skip(x, w, h, s->skip);
    run_block(x, n, w, s, h, l->active);
}

/* Computes the network's output. The final modulation has two rows: scale, then shift. The output
 * layer predicts noise and variance; the variance is dropped. */
static xd_tensor head(xd_exec *x, const xd_net *n, xd_state *s)
{
    const glob  *g = n->glob;
    const cfg   *c = n->cfg;
    const local *l = s->local;
    xd_tensor    h = xd_dit_state(s, c->dim, 0);
    xd_tensor    out = xd_new_f32(x, h.d[0], c->in_ch * c->patch * c->patch);
    size_t       mark = xd_arena_mark(x->tmp);
    xd_tensor    m = xd_mod_rows(x, l->active, &g->mod, 2);
    xd_tensor    a = xd_norm_mod(x, h, xd_rows(m, 0, 1), xd_rows(m, 1, 1), final_eps);
    xd_by_channel(x, out, xd_linear_f32(x, a, &g->out), c->in_ch);
    xd_arena_rewind(x->tmp, mark);
    return out;
}

/* ---- side networks ------------------------------------------------------------------------ */

/* The blocks of the transformer that are followed by a block of each side network. */
static int followed(const cfg *c)
{
    return c->nlayers / 2 - 1;
}

/* Implements `before` of xd_sides_order: block i of a side network runs directly after block i of
 * the transformer. */
static int blocks_before(const void *c, int i, int layer)
{
    int n = followed(c);
    (void)i;
    return layer < n ? layer : n;
}

/* Returns the index of the side network that block `layer` belongs to, or -1 for a block of the
 * transformer. Sets *at to the block's index in its own network. */
static int side_of(const whole_cfg *c, int layer, int *at)
{
    *at = c->order.at[layer];
    return c->order.net[layer];
}

/* Checks that the sizes of a side network are those of the transformer. */
static xd_status check_side(const cfg *c, const cfg *side, int i, xd_err *e)
{
    const xd_side_number v[] = {
        { "transformer_num_layers", side->nlayers, c->nlayers },
        { "num_attention_heads", side->heads, c->heads },
        { "attention_head_dim", (double)side->head_dim, (double)c->head_dim },
        { "hidden_size", (double)side->hidden, (double)c->hidden },
        { "in_channels", (double)side->in_ch, (double)c->in_ch },
        { "patch_size", (double)side->patch, (double)c->patch },
        { "mlp_ratio", side->ratio, c->ratio },
        { "cross_attention_dim", (double)side->cross, (double)c->cross },
        { "cross_attention_dim_t5", (double)side->cross_t5, (double)c->cross_t5 },
        { "pooled_projection_dim", (double)side->pooled, (double)c->pooled },
        { "text_len", (double)side->text_len, (double)c->text_len },
        { "text_len_t5", (double)side->text_len_t5, (double)c->text_len_t5 },
    };
    if (xd_sides_check(v, sizeof v / sizeof *v, i, e) != XD_OK)
        return XD_EFORMAT;
    if (strcmp(side->act_fn, c->act_fn) != 0)
        return xd_fail(e, XD_EFORMAT,
                       "controlnet %d does not fit the transformer: its activation_fn is '%s', not "
                       "'%s'",
                       i, side->act_fn, c->act_fn);
    return XD_OK;
}

static xd_status read_sides(void *c_, const xd_json *obj, const char *what, xd_err *e)
{
    whole_cfg     *c = c_;
    const xd_json *list = xd_json_get(obj, XD_SIDES_KEY);
    xd_status      s = XD_OK;
    for (int i = 0; s == XD_OK && i < xd_json_size(list) && i < XD_MAXSIDES; i++, c->nsides++)
        s = xd_fields_read(side_fields, &c->side[i], xd_json_at(list, i), what, e);
    return s;
}

static xd_status check_whole(void *c_, xd_err *e)
{
    whole_cfg *c = c_;
    xd_status  s = check_config(&c->main, e);
    for (int i = 0; s == XD_OK && i < c->nsides; i++) {
        s = check_side(&c->main, &c->side[i], i, e);
        c->side[i].act = c->main.act;
        c->side[i].dim = c->main.dim;
        c->side[i].ff = c->main.ff;
    }
    return s == XD_OK ? xd_sides_order(&c->order, c->main.nlayers, c->nsides, blocks_before, c, e)
                      : s;
}

static int whole_nlayers(const void *c)
{
    return ((const whole_cfg *)c)->order.nblocks;
}

static int whole_skip_from(const void *c_, int layer)
{
    const whole_cfg *c = c_;
    int              at, side = side_of(c, layer, &at), from = side < 0 ? skip_from(c, at) : -1;
    return from < 0 ? -1 : from * (1 + c->nsides);
}

static void whole_info(const void *c_, xd_dit_info *out)
{
    const whole_cfg *c = c_;
    info(&c->main, out);
    out->nlayers = whole_nlayers(c);
    out->states = 1 + c->nsides;
    out->sides = out->hints = c->nsides;
    out->extra_ch = c->nsides * c->main.in_ch;
    out->local_size = sizeof(whole_local);
    out->kept_size = sizeof(whole_kept);
    for (int i = 0; i < c->nsides; i++)
        out->micro |= c->side[i].styled;
}

static void whole_weights(xd_decl *d, const void *c_, void *g_)
{
    const whole_cfg *c = c_;
    whole_glob      *g = g_;
    int64_t          D = c->main.dim;
    weights(d, &c->main, &g->main);
    for (int i = 0; i < c->nsides; i++) {
        xd_w_enter(d, "controlnet.%d", i);
        input_weights(d, &c->side[i], &g->side[i]);
        xd_w_linear(d, &g->control[i], "input_block",
                    &(xd_linear_spec){ .in = D, .out = D, .bias = 1 });
        xd_w_leave(d);
    }
}

static int64_t whole_mod_width(const void *c_, int layer)
{
    const whole_cfg *c = c_;
    int              at;
    return side_of(c, layer, &at) < 0 ? c->main.dim : 0;
}

static void whole_blk_weights(xd_decl *d, const void *c_, int layer, void *w)
{
    const whole_cfg *c = c_;
    int              at;
    side_of(c, layer, &at);
    blk_weights(d, &c->main, at, w);
}

/* Declares the weights of a block of a side network. The layer `out` is not among the tensors of
 * the block, but in a list beside the list of the blocks. */
static void side_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    const whole_cfg *c = c_;
    side_blk        *w = w_;
    int64_t          D = c->main.dim;
    int              at;
    side_of(c, layer, &at);
    xd_w_enter(d, "blocks.%d", at);
    blk_weights(d, &c->main, at, &w->b);
    xd_w_leave(d);
    xd_sides_residual(d, "controlnet_blocks", at, D, &w->out);
}

static void keep_whole(xd_exec *x, const xd_net *n, const xd_cond *text, void *kept_)
{
    whole_kept      *k = kept_;
    const whole_cfg *c = n->cfg;
    keep_text(x, n, text, &k->main);
    for (int i = 0; i < c->nsides; i++)
        k->extra[i] = xd_new_f32(x, 1, c->main.dim);
}

static void read_whole(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept_)
{
    const whole_kept *k = kept_;
    const whole_glob *g = n->glob;
    const whole_cfg  *c = n->cfg;
    xd_tensor         t[1 + XD_MAXSIDES], t5 = t5_rows(&c->main, in->cond);
    if (!text_fits(x, &c->main, in->cond))
        return;
    size_t mark = xd_arena_mark(x->tmp);
    extra_into(x, &c->main, &g->main, in, t5, k->main.extra);
    t[0] = text_rows(x, &c->main, &g->main, in->cond);
    for (int i = 0; i < c->nsides; i++) {
        extra_into(x, &c->side[i], &g->side[i], in, t5, k->extra[i]);
        t[1 + i] = text_rows(x, &c->side[i], &g->side[i], in->cond);
    }
    for (int i = n->first, at; i < n->last; i++)
        fill_kv(x, &c->main, xd_net_layer(x, n, i), xd_text_kv(k->main.kv, i - n->first),
                t[1 + side_of(c, i, &at)]);
    xd_arena_rewind(x->tmp, mark);
}

typedef struct scaling {
    const double *scales;
    int64_t       n, dim;
} scaling;

static void fill_scales(void *ctx, float *buf)
{
    const scaling *t = ctx;
    for (int64_t i = 0; i < t->n * t->dim; i++)
        buf[i] = t->scales ? (float)t->scales[i / t->dim] : 1;
}

static void cond_whole(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const whole_kept *k = s->kept;
    const whole_glob *g = n->glob;
    const whole_cfg  *c = n->cfg;
    whole_local      *l = s->local;
    scaling           of = { in->hint_scales, c->nsides, c->main.dim };
    cond(x, n, in, s);
    for (int i = 0; i < c->nsides; i++) {
        l->active[i] = active_of(x, &g->side[i], in, k->extra[i]);
        l->on[i] = !in->hint_scales || in->hint_scales[i] != 0;
    }
    l->scales = xd_new_f32(x, of.n, of.dim);
    xd_fill(x, l->scales, fill_scales, &of);
}

static void embed_whole(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const whole_glob *g = n->glob;
    const whole_cfg  *c = n->cfg;
    int64_t           F = in->lat.d[1], D = c->main.dim;
    size_t            mark = xd_arena_mark(x->tmp);
    embed(x, n, in, s);
    for (int i = 0; i < c->nsides && xd_ok(x); i++) {
        xd_tensor h = xd_dit_state(s, D, 1 + i);
        xd_tensor control = xd_linear(x, xd_cols(in->extra, i * F, F), &g->side[i].patch);
        xd_linear_into(x, h, in->lat, &g->side[i].patch);
        xd_linear_add(x, h, (xd_tensor){ 0 }, control, &g->control[i]);
        xd_arena_rewind(x->tmp, mark);
    }
}

/* Runs a block of a side network, and adds what it computes to the long skip on the top of the
 * stack, which is the output of the transformer's block with the same index. */
static void forward_side(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const side_blk    *w = w_;
    const whole_local *l = s->local;
    const whole_cfg   *c = n->cfg;
    int64_t            D = c->main.dim, rows = s->h.d[0];
    int                at, i = side_of(c, x->layer, &at);
    xd_tensor          h = xd_dit_state(s, D, 1 + i);
    if (!l->on[i])
        return;
    run_block(x, n, &w->b, s, h, l->active[i]);
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor top = xd_rows(s->skips, at * rows, rows), sum = xd_new_f32(x, rows, D);
    xd_copy_to(x, sum, top);
    xd_linear_add(x, sum, xd_rows(l->scales, i, 1), h, &w->out);
    xd_copy_to(x, top, sum);
    xd_arena_rewind(x->tmp, mark);
}

static xd_tensor probe_whole(xd_exec *x, const xd_net *n, xd_state *s)
{
    (void)x;
    return xd_dit_state(s, ((const cfg *)n->cfg)->dim, 0);
}

static const xd_block whole_down = { "blocks.%d", sizeof(blk), whole_blk_weights, forward };
/* Blocks that read a long skip. */
static const xd_block whole_up = { "blocks.%d", sizeof(blk), whole_blk_weights, forward };
#define SIDE_KIND(name) { name, sizeof(side_blk), side_weights, forward_side }
static const xd_block side_kinds[XD_MAXSIDES] = { XD_SIDES_KINDS(SIDE_KIND) };

static const xd_block *whole_block(const void *c, int layer)
{
    int at, side = side_of(c, layer, &at);
    return side >= 0 ? &side_kinds[side] : skip_from(c, at) >= 0 ? &whole_up : &whole_down;
}

extern const xd_dit xd_dit_hunyuandit;

static const xd_side side = { .classes = { "HunyuanDiT2DControlNetModel" } };

const xd_dit xd_dit_hunyuandit = {
    .net = { .name = "hunyuandit",
             .classes = { "HunyuanDiT2DModel" },
             .fields = fields,
             .read = read_sides,
             .cfg_size = sizeof(whole_cfg),
             .glob_size = sizeof(whole_glob),
             .check = check_whole,
             .nlayers = whole_nlayers,
             .block = whole_block,
             .weights = whole_weights },
    .side = &side,
    .info = whole_info,
    .skip_from = whole_skip_from,
    .keep = keep_whole,
    .read = read_whole,
    .active = active,
    .active_width = active_width,
    .mod_width = whole_mod_width,
    .cond = cond_whole,
    .embed = embed_whole,
    .head = head,
    .probe = probe_whole,
};
