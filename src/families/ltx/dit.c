/* dit.c - runs the transformer of LTX-Video 0.9 (HaCohen et al. 2024, arXiv:2501.00103) like
 * diffusers' LTXVideoTransformer3DModel.
 *
 * Video tokens attend to each other and, by cross-attention, to the text. The timestep enters as
 * one modulation [6,D] for all blocks, to which each block adds its own table. Queries and keys are
 * RMS-normed over all heads together. RoPE turns all D features of a token, so its angles differ
 * between the heads. Its positions are times in seconds and places in pixels, as fractions of the
 * longest video and the largest image of the training. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "dit/layers.h"
#include "dit/timed.h"
#include "exec/wide.h"
#include "exec/tables.h"

static const float  qk_eps = 1e-5f, head_eps = 1e-6f;
static const double theta = 10000, pi = 3.14159265358979323846;
/* Positions at which RoPE's fractions are 1: seconds, pixel rows, pixel columns. */
static const float  whole[] = { 20, 2048, 2048 };
/* Distances of tokens in published models, for callers that give none. */
static const double usual_frames = 8, usual[] = { 8.0 / 25, 32, 32 };

enum { AXES = 3 };

typedef struct cfg {
    int64_t head_dim, in_ch, out_ch, patch, patch_t, text, cross;
    int     heads, nlayers, affine, bias, out_bias;
    float   eps;
    char    qk_norm[XD_FIELD_TEXT], act_fn[XD_FIELD_TEXT];
    int64_t dim; /* D = heads * head_dim */
} cfg;

#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    { "in_channels", AT(in_ch), 'l', 128, NULL },
    { "out_channels", AT(out_ch), 'l', 128, NULL },
    { "patch_size", AT(patch), 'l', 1, NULL },
    { "patch_size_t", AT(patch_t), 'l', 1, NULL },
    { "num_attention_heads", AT(heads), 'i', 32, NULL },
    { "attention_head_dim", AT(head_dim), 'l', 64, NULL },
    { "cross_attention_dim", AT(cross), 'l', 2048, NULL },
    { "num_layers", AT(nlayers), 'i', 28, NULL },
    { "activation_fn", AT(act_fn), 's', 0, "gelu-approximate" },
    { "qk_norm", AT(qk_norm), 's', 0, "rms_norm_across_heads" },
    { "norm_elementwise_affine", AT(affine), 'b', 0, NULL },
    { "norm_eps", AT(eps), 'f', 1e-6, NULL },
    { "caption_channels", AT(text), 'l', 4096, NULL },
    { "attention_bias", AT(bias), 'b', 1, NULL },
    { "attention_out_bias", AT(out_bias), 'b', 1, NULL },
    { NULL, 0, 0, 0, NULL },
};

typedef struct blk {
    xd_tensor mod; /* [6,D]: table added to the modulation */
    xd_lin    qkv, out, q, kv, cross, up, down;
    xd_tensor q_gain, k_gain, cross_q, cross_k; /* [D]: gains of the norms over all heads */
} blk;

typedef struct glob {
    xd_lin    patch, mod, out; /* mod: [6D, D] */
    xd_mlp    time, text;
    xd_tensor last; /* [2,D]: modulation of the last norm */
    xd_wide   wide; /* norms of q and k */
} glob;

typedef struct local {
    xd_timed  timed;
    xd_tensor emb;  /* [times,D] F32: timestep embeddings */
    xd_tensor mod;  /* [6 times,D] F32: for each timestep, shift, scale and gate, twice */
    xd_turn   turn; /* [n heads, head_dim / 2] F32: RoPE of this rank's video tokens and heads */
} local;

typedef struct kept {
    /* [blocks of this stage, m, 2 x this rank's part of D]: keys and values of the text */
    xd_tensor kv;
} kept;

/* ---- configuration ------------------------------------------------------------------------ */

static xd_status check_config(void *c_, xd_err *e)
{
    cfg *c = c_;
    c->out_ch = c->out_ch ? c->out_ch : c->in_ch;
    c->dim = c->heads * c->head_dim;
    const xd_config_range r[] = {
        { "num_attention_heads", c->heads, 1, 4096 }, { "attention_head_dim", c->head_dim, 8, 512 },
        { "in_channels", c->in_ch, 1, 65536 },        { "caption_channels", c->text, 1, 1 << 24 },
        { "num_layers", c->nlayers, 0, 10000 },
    };
    if (xd_check_ranges(r, sizeof r / sizeof *r, e) != XD_OK)
        return XD_EFORMAT;
    if (c->head_dim % 2)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: attention_head_dim %lld is odd, and RoPE rotates pairs",
                       (long long)c->head_dim);
    if (c->cross != c->dim)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: cross_attention_dim %lld is not the width %lld, which the "
                       "projected text has",
                       (long long)c->cross, (long long)c->dim);
    xd_status s = xd_check_word("qk_norm", c->qk_norm, "rms_norm_across_heads", e);
    if (s == XD_OK)
        s = xd_check_word("activation_fn", c->act_fn, "gelu-approximate", e);
    if (s == XD_OK)
        s = xd_check_number("norm_elementwise_affine", c->affine, 0, e);
    if (s == XD_OK)
        s = xd_check_number("patch_size", c->patch, 1, e);
    if (s == XD_OK)
        s = xd_check_number("patch_size_t", c->patch_t, 1, e);
    return s == XD_OK ? xd_check_number("out_channels", c->out_ch, c->in_ch, e) : s;
}

/* Describes the model. The default size is that of LTXPipeline, 161 frames of 512 x 704 pixels: 21
 * latent frames of 16 x 22 cells. */
static void info(const void *c_, xd_dit_info *out)
{
    const cfg *c = c_;
    *out = (xd_dit_info){
        .nlayers = c->nlayers,
        .heads = c->heads,
        .head_dim = (int)c->head_dim,
        .patch = { 1, 1, 1 },
        .dim = c->dim,
        .lat_ch = c->in_ch,
        .sample = { 21, 16, 22 },
        .text_dim = c->text,
        .holds = 1,
        .sites = 1,
        .local_size = sizeof(local),
        .kept_size = sizeof(kept),
        .probe_dim = 0,
    };
}

static int nlayers(const void *c)
{
    return ((const cfg *)c)->nlayers;
}

/* ---- weights ------------------------------------------------------------------------------ */

/* Declares the last layer of an attention, and the norms of its queries and keys. */
static void attn_weights(xd_decl *d, const cfg *c, xd_lin *out, xd_tensor *q, xd_tensor *k)
{
    int64_t D = c->dim;
    xd_w_linear(d, out, "to_out.0",
                &(xd_linear_spec){
                    .in = D, .out = D, .split = XD_ROW, .unit = c->head_dim, .bias = c->out_bias });
    xd_w_vec(d, q, "norm_q.weight", 1, &D);
    xd_w_vec(d, k, "norm_k.weight", 1, &D);
}

static void blk_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    static const char *const qkv[] = { "to_q", "to_k", "to_v" };
    const cfg               *c = c_;
    blk                     *w = w_;
    int64_t                  D = c->dim, hd = c->head_dim;
    xd_fused_spec            fused = { .n = 3,
                                       .names = qkv,
                                       .in = D,
                                       .out = { D, D, D },
                                       .split = XD_COL,
                                       .unit = hd,
                                       .bias = c->bias };
    (void)layer;
    xd_w_vec(d, &w->mod, "scale_shift_table", 2, (int64_t[]){ 6, D });
    xd_w_enter(d, "attn1");
    xd_w_fused(d, &w->qkv, &fused);
    attn_weights(d, c, &w->out, &w->q_gain, &w->k_gain);
    xd_w_leave(d);
    xd_w_enter(d, "attn2");
    xd_w_linear(
        d, &w->q, "to_q",
        &(xd_linear_spec){ .in = D, .out = D, .split = XD_COL, .unit = hd, .bias = c->bias });
    fused.n = 2, fused.names = qkv + 1;
    xd_w_fused(d, &w->kv, &fused);
    attn_weights(d, c, &w->cross, &w->cross_q, &w->cross_k);
    xd_w_leave(d);
    xd_w_linear(d, &w->up, "ff.net.0.proj",
                &(xd_linear_spec){ .in = D, .out = 4 * D, .split = XD_COL, .bias = 1 });
    xd_w_linear(d, &w->down, "ff.net.2",
                &(xd_linear_spec){ .in = 4 * D, .out = D, .split = XD_ROW, .bias = 1 });
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    int64_t    D = c->dim;
    xd_w_linear(d, &g->patch, "proj_in", &(xd_linear_spec){ .in = c->in_ch, .out = D, .bias = 1 });
    xd_w_vec(d, &g->last, "scale_shift_table", 2, (int64_t[]){ 2, D });
    xd_w_enter(d, "time_embed");
    xd_mlp_weights(d, "emb.timestep_embedder", &g->time, XD_SINUSOIDS, D, D);
    xd_w_linear(d, &g->mod, "linear",
                &(xd_linear_spec){ .in = D, .out = 6 * D, .bias = 1, .few = 1 });
    xd_w_leave(d);
    xd_mlp_weights(d, "caption_projection", &g->text, c->text, D, D);
    xd_w_linear(d, &g->out, "proj_out", &(xd_linear_spec){ .in = D, .out = c->out_ch, .bias = 1 });
    g->wide = xd_wide_of(d, c->heads, c->head_dim, qk_eps);
}

/* ---- rotary positions --------------------------------------------------------------------- */

typedef struct angles { /* argument of fill_angles */
    const xd_exec  *x;
    const glob     *g;
    const xd_input *in;
    double          (*fn)(double);
} angles;

/* Computes the fractions of a token's position, -1 to 1, in f32 like diffusers'
 * LTXVideoRotaryPosEmbed. */
static void set_fractions(const angles *t, int64_t at, float f[AXES])
{
    const int64_t *grid = t->x->lay->grid;
    int64_t        pos[AXES] = { at / (grid[1] * grid[2]), at / grid[2] % grid[1], at % grid[2] };
    for (int i = 0; i < AXES; i++) {
        double step = t->in->step[i] > 0         ? t->in->step[i]
                      : i == 0 && t->in->fps > 0 ? usual_frames / t->in->fps
                                                 : usual[i];
        float  p = i == 0 && t->in->frame_spans
                       ? (float)((double)t->in->frame_spans[pos[0]].start / t->in->fps)
                       : (float)pos[i] * (float)step;
        f[i] = p / whole[i] * 2 - 1;
    }
}

/* Fills fn (cos or sin) of the RoPE angles. For each video token of this rank there is a row for
 * each of the rank's heads. Pair i of the D / 2 pairs of features turns by the fraction of axis
 * i % 3, times the frequency i / 3; the pairs that remain in D / 2 come first and do not turn. */
static void fill_angles(void *ctx, float *buf)
{
    const angles      *t = ctx;
    int64_t            still = t->g->wide.dim % (2 * AXES) / 2, n = t->g->wide.dim / (2 * AXES);
    int64_t            first = t->g->wide.features.start / 2, pairs = t->g->wide.features.n / 2;
    const xd_grid_side powers = { n, 0, 1, 0 };
    float             *freq = malloc((size_t)n * sizeof *freq + 1), f[AXES];
    for (int64_t k = 0; freq && k < n; k++)
        freq[k] = (float)pow(theta, (double)xd_grid_at(&powers, k)) * (float)pi / 2;
    for (int64_t i = 0; i < xd_n(t->x, XD_IMG); i++) {
        set_fractions(t, xd_where(t->x, XD_IMG, i), f);
        for (int64_t p = first - still; p < first - still + pairs; p++)
            *buf++ = (float)t->fn(p < 0 || !freq ? 0 : (double)(freq[p / AXES] * f[p % AXES]));
    }
    free(freq);
}

/* Returns the RoPE table of this rank's video tokens and heads, [n heads, head_dim / 2]. */
static xd_tensor table(xd_exec *x, const xd_net *n, const xd_input *in, double (*fn)(double))
{
    const glob  *g = n->glob;
    const cfg   *c = n->cfg;
    angles       t = { x, g, in, fn };
    xd_table_key key = { .fill = fill_angles, .fn = fn };
    xd_tensor    out;
    int64_t      heads = g->wide.features.n / c->head_dim;
    if (!xd_table_find(x, &key, XD_F32, (int64_t[]){ xd_n(x, XD_IMG) * heads, c->head_dim / 2 },
                       &out))
        xd_fill(x, out, fill_angles, &t);
    return out;
}

/* ---- text --------------------------------------------------------------------------------- */

static void keep_text(xd_exec *x, const xd_net *n, const xd_cond *text, void *kept_)
{
    kept      *k = kept_;
    const blk *w = n->last > n->first ? n->layer[n->first] : NULL;
    k->kv = xd_text_kv_new(x, n, text->tok.d[0], w ? w->kv.w.out : 0);
}

/* Computes the keys and values of the text for all blocks of this stage. */
static void read_text(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept_)
{
    const kept *k = kept_;
    const glob *g = n->glob;
    size_t      mark = xd_arena_mark(x->tmp);
    xd_tensor   t = xd_as(x, xd_mlp_run(x, in->cond->tok, &g->text, XD_GELU_TANH), x->act);
    for (int i = n->first; i < n->last; i++) {
        const blk *w = xd_net_layer(x, n, i);
        size_t     inner = xd_arena_mark(x->tmp);
        xd_tensor  kv = xd_text_kv(k->kv, i - n->first), keys = xd_seg(kv, &w->kv, 0);
        xd_linear_into(x, kv, t, &w->kv);
        xd_wide_norm(
            x, &g->wide, keys, keys,
            &(xd_wide_how){ .gain = w->cross_k,
                            .factor = xd_wide_factor(xd_wide_factors(x, &g->wide, &keys, 1), 0) });
        xd_arena_rewind(x->tmp, inner);
    }
    xd_arena_rewind(x->tmp, mark);
}

/* ---- running ------------------------------------------------------------------------------ */

static void cond(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    local      *l = s->local;
    double      t[XD_TIMES];
    l->timed = xd_timed_of(x, in, t);
    l->emb = xd_mlp_timesteps(x, t, l->timed.times, &g->time);
    xd_tensor mod = xd_linear_f32(x, xd_gated(x, l->emb, (xd_tensor){ 0 }, XD_SILU), &g->mod);
    l->mod = xd_reshape(mod, 2, (int64_t[]){ 6 * l->timed.times, ((const cfg *)n->cfg)->dim });
    l->turn = (xd_turn){ table(x, n, in, cos), table(x, n, in, sin) };
}

static void embed(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    int64_t rows = xd_n(x, XD_IMG);
    if (xd_check(x, in->lat.d[0] == rows && s->h.d[0] == rows,
                 "%lld video tokens do not match %lld rows of state and %lld of latents",
                 (long long)rows, (long long)s->h.d[0], (long long)in->lat.d[0]))
        xd_linear_into(x, s->h, in->lat, &((const glob *)n->glob)->patch);
}

static xd_tensor attend_self(xd_exec *x, const xd_net *n, const blk *w, const local *l, xd_tensor y)
{
    const xd_wide *g = &((const glob *)n->glob)->wide;
    int64_t        mine = w->qkv.seg[0];
    xd_tensor      in[2] = { xd_seg(y, &w->qkv, 0), xd_seg(y, &w->qkv, 1) };
    xd_tensor      q = xd_new(x, y.d[0], mine), k = xd_new(x, y.d[0], mine);
    xd_tensor      f = xd_wide_factors(x, g, in, 2);
    xd_wide_norm(
        x, g, q, in[0],
        &(xd_wide_how){ .gain = w->q_gain, .factor = xd_wide_factor(f, 0), .turn = l->turn });
    xd_wide_norm(
        x, g, k, in[1],
        &(xd_wide_how){ .gain = w->k_gain, .factor = xd_wide_factor(f, 1), .turn = l->turn });
    return xd_flat(xd_attn(x, xd_heads(q, g->head_dim), xd_heads(k, g->head_dim),
                           xd_heads(xd_seg(y, &w->qkv, 2), g->head_dim), 0));
}

static xd_tensor attend_text(xd_exec *x, const xd_net *n, const blk *w, const kept *k, xd_tensor h)
{
    const xd_wide *g = &((const glob *)n->glob)->wide;
    xd_tensor      q = xd_linear(x, h, &w->q);
    xd_wide_norm(x, g, q, q,
                 &(xd_wide_how){ .gain = w->cross_q,
                                 .factor = xd_wide_factor(xd_wide_factors(x, g, &q, 1), 0) });
    return xd_attn_text(x, q, xd_text_kv(k->kv, x->layer - n->first), &w->kv, g->head_dim);
}

static void forward(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const blk   *w = w_;
    const local *l = s->local;
    xd_norm      as = { .rms = 1, .eps = ((const cfg *)n->cfg)->eps };
    xd_tensor    m[XD_TIMES], h = s->h;
    for (int t = 0; t < l->timed.times; t++)
        m[t] = xd_mod_table(x, w->mod, xd_rows(l->mod, 6 * t, 6));

    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor y = xd_linear(x, xd_timed_norm(x, &l->timed, &as, h, m, 1, 0, &w->qkv), &w->qkv);
    xd_timed_add(x, &l->timed, h, m, 2, attend_self(x, n, w, l, y), &w->out);
    xd_arena_rewind(x->tmp, mark);

    xd_linear_add(x, h, (xd_tensor){ 0 }, attend_text(x, n, w, s->kept, h), &w->cross);
    xd_arena_rewind(x->tmp, mark);

    y = xd_timed_norm(x, &l->timed, &as, h, m, 4, 3, &w->up);
    y = xd_linear_act(x, y, &w->up, XD_GELU_TANH);
    xd_timed_add(x, &l->timed, h, m, 5, y, &w->down);
}

static xd_tensor head(xd_exec *x, const xd_net *n, xd_state *s)
{
    const glob  *g = n->glob;
    const local *l = s->local;
    xd_norm      as = { .eps = head_eps };
    xd_tensor    out = xd_new_f32(x, s->h.d[0], g->out.w.out), m[XD_TIMES];
    size_t       mark = xd_arena_mark(x->tmp);
    for (int t = 0; t < l->timed.times; t++)
        m[t] = xd_mod_table(x, g->last, xd_rows(l->emb, t, 1));
    xd_linear_into(x, out, xd_timed_norm(x, &l->timed, &as, s->h, m, 1, 0, &g->out), &g->out);
    xd_arena_rewind(x->tmp, mark);
    return out;
}

static const xd_block kind = { "transformer_blocks.%d", sizeof(blk), blk_weights, forward };

static const xd_block *block(const void *c, int layer)
{
    (void)c, (void)layer;
    return &kind;
}

extern const xd_dit xd_dit_ltx;

const xd_dit xd_dit_ltx = {
    .net = { .name = "ltx",
             .classes = { "LTXVideoTransformer3DModel" },
             .fields = fields,
             .cfg_size = sizeof(cfg),
             .glob_size = sizeof(glob),
             .check = check_config,
             .nlayers = nlayers,
             .block = block,
             .weights = weights },
    .info = info,
    .keep = keep_text,
    .read = read_text,
    .cond = cond,
    .embed = embed,
    .head = head,
};
