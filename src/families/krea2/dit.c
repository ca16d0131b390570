/* dit.c - runs the transformer of Krea-2 (Krea AI 2026) like diffusers' Krea2Transformer2DModel.
 *
 * The input of the text is several hidden states of a language model for each token. Two lists of
 * blocks make one row of them: the blocks of the first list attend to the states of a token, and
 * those of the second list attend to the rows of the text. Neither list depends on the timestep, so
 * both run once per request. All other blocks process text and image as one sequence. Several
 * heads of queries share one head of keys and values, and each output of the attention is
 * multiplied by a gate. All blocks have the same modulation, to which each block adds its own
 * table. */
#include <math.h>
#include <stddef.h>

#include "dit/layers.h"

enum { PACK = 2, AXES = 3, MAX_FUSION = 8, TOKENS_AT_ONCE = 32 };

/* Widths of the blocks of one kind. */
typedef struct form {
    int64_t dim, head_dim, ff;
    int     heads, kv_heads;
} form;

typedef struct cfg {
    form    main, text;
    int64_t in_ch, sinusoids;
    int     nlayers, nstates, nlayerwise, nrefiners;
    double  theta;
    float   eps;
    xd_ints axes; /* head features rotated per axis: image, row, column */
} cfg;

#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    { "in_channels", AT(in_ch), 'l', 64, NULL },
    { "num_layers", AT(nlayers), 'i', 28, NULL },
    { "attention_head_dim", AT(main.head_dim), 'l', 128, NULL },
    { "num_attention_heads", AT(main.heads), 'i', 48, NULL },
    { "num_key_value_heads", AT(main.kv_heads), 'i', 12, NULL },
    { "intermediate_size", AT(main.ff), 'l', 16384, NULL },
    { "timestep_embed_dim", AT(sinusoids), 'l', 256, NULL },
    { "text_hidden_dim", AT(text.dim), 'l', 2560, NULL },
    { "num_text_layers", AT(nstates), 'i', 12, NULL },
    { "text_num_attention_heads", AT(text.heads), 'i', 20, NULL },
    { "text_num_key_value_heads", AT(text.kv_heads), 'i', 20, NULL },
    { "text_intermediate_size", AT(text.ff), 'l', 6912, NULL },
    { "num_layerwise_text_blocks", AT(nlayerwise), 'i', 2, NULL },
    { "num_refiner_text_blocks", AT(nrefiners), 'i', 2, NULL },
    { "axes_dims_rope", AT(axes), 'L', 0, NULL },
    { "rope_theta", AT(theta), 'd', 1000, NULL },
    { "norm_eps", AT(eps), 'f', 1e-5, NULL },
    { NULL, 0, 0, 0, NULL },
};

typedef struct blk { /* weights of a block */
    xd_tensor norm1, norm2, norm_q, norm_k;
    xd_tensor table; /* [6,D] F32, added to the modulation; the blocks of the text have none */
    xd_lin    in;    /* computes queries, keys, values and gates */
    xd_lin    out;
    xd_lin    up, down; /* `up` computes a and b; the feed-forward is down(silu(a) * b) */
} blk;

typedef struct glob {
    xd_lin    latents, mod, states, out;
    xd_mlp    time, text;
    xd_tensor text_norm, norm; /* gains of the norms before `text` and before `out` */
    xd_tensor table;           /* [2,D] F32: modulation of the last norm */
    blk       layerwise[MAX_FUSION], refiner[MAX_FUSION];
} glob;

typedef struct local {
    xd_tensor emb;      /* [1,D] F32: embedding of the timestep */
    xd_tensor mod;      /* [6,D] F32: the modulation that all blocks have in common */
    xd_tensor cos, sin; /* [n,head_dim/2] F32: RoPE of this rank's tokens */
} local;

typedef struct kept {
    xd_tensor text; /* [rows,D] F32: embedded rows of the text, on the first pipeline stage */
} kept;

/* ---- configuration ------------------------------------------------------------------------ */

static xd_status check_heads(const form *f, const char *prefix, xd_err *e)
{
    if (f->heads % f->kv_heads)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: %snum_attention_heads %d is not a multiple of "
                       "%snum_key_value_heads %d",
                       prefix, f->heads, prefix, f->kv_heads);
    return XD_OK;
}

static xd_status check_axes(cfg *c, xd_err *e)
{
    int64_t sum = 0;
    if (!c->axes.n)
        c->axes = (xd_ints){ AXES, { 32, 48, 48 } };
    for (int i = 0; i < c->axes.n; i++) {
        if (c->axes.v[i] < 0 || c->axes.v[i] % 2)
            return xd_fail(e, XD_EFORMAT, "transformer: axes_dims_rope has %lld, which is not even",
                           (long long)c->axes.v[i]);
        sum += c->axes.v[i];
    }
    if (c->axes.n != AXES || sum != c->main.head_dim)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: axes_dims_rope has %d axes with %lld features, not %d axes "
                       "with the %lld features of a head",
                       c->axes.n, (long long)sum, AXES, (long long)c->main.head_dim);
    return XD_OK;
}

static xd_status check_config(void *c_, xd_err *e)
{
    cfg                  *c = c_;
    const xd_config_range r[] = {
        { "in_channels", c->in_ch, PACK * PACK, 65536 },
        { "num_layers", c->nlayers, 0, 10000 },
        { "attention_head_dim", c->main.head_dim, 2, 512 },
        { "num_attention_heads", c->main.heads, 1, 4096 },
        { "num_key_value_heads", c->main.kv_heads, 1, 4096 },
        { "intermediate_size", c->main.ff, 1, 1 << 26 },
        { "timestep_embed_dim", c->sinusoids, 2, 1 << 16 },
        { "text_hidden_dim", c->text.dim, 2, 1 << 20 },
        { "num_text_layers", c->nstates, 1, 256 },
        { "text_num_attention_heads", c->text.heads, 1, 4096 },
        { "text_num_key_value_heads", c->text.kv_heads, 1, 4096 },
        { "text_intermediate_size", c->text.ff, 1, 1 << 26 },
        { "num_layerwise_text_blocks", c->nlayerwise, 0, MAX_FUSION },
        { "num_refiner_text_blocks", c->nrefiners, 0, MAX_FUSION },
    };
    if (xd_check_ranges(r, sizeof r / sizeof *r, e) != XD_OK)
        return XD_EFORMAT;
    c->main.dim = c->main.heads * c->main.head_dim;
    c->text.head_dim = c->text.dim / c->text.heads;
    if (c->text.dim % c->text.heads || c->text.head_dim > 512)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: text_hidden_dim %lld is not text_num_attention_heads %d heads "
                       "of at most 512 features",
                       (long long)c->text.dim, c->text.heads);
    if (c->in_ch % (PACK * PACK) || c->sinusoids % 2 || !(c->theta > 1 && c->theta < 1e12) ||
        !(c->eps > 0 && c->eps < 1))
        return xd_fail(e, XD_EFORMAT,
                       "transformer: in_channels %lld, timestep_embed_dim %lld, rope_theta %g and "
                       "norm_eps %g cannot be used",
                       (long long)c->in_ch, (long long)c->sinusoids, c->theta, (double)c->eps);
    xd_status s = check_heads(&c->main, "", e);
    if (s == XD_OK)
        s = check_heads(&c->text, "text_", e);
    return s == XD_OK ? check_axes(c, e) : s;
}

static int nlayers(const void *c)
{
    return ((const cfg *)c)->nlayers;
}

static void info(const void *c_, xd_dit_info *out)
{
    const cfg *c = c_;
    *out = (xd_dit_info){
        .nlayers = c->nlayers,
        .heads = c->main.heads,
        .key_heads = c->main.kv_heads,
        .head_dim = (int)c->main.head_dim,
        .patch = { 1, PACK, PACK },
        .dim = c->main.dim,
        .lat_ch = c->in_ch / (PACK * PACK),
        .sample = { 1, 128, 128 },
        .text_dim = c->nstates * c->text.dim,
        .txt_flows = 1,
        .sites = 1,
        .local_size = sizeof(local),
        .kept_size = sizeof(kept),
    };
}

/* ---- weights ------------------------------------------------------------------------------ */

static void blk_weights(xd_decl *d, const form *f, blk *w)
{
    static const char *const in[] = { "to_q", "to_k", "to_v", "to_gate" };
    static const char *const up[] = { "gate", "up" };
    int64_t D = f->dim, hd = f->head_dim, kv = f->kv_heads * hd, group = D / f->kv_heads;
    xd_w_gain(d, &w->norm1, "norm1.weight", D);
    xd_w_gain(d, &w->norm2, "norm2.weight", D);
    xd_w_enter(d, "attn");
    xd_w_fused(d, &w->in,
               &(xd_fused_spec){ .n = 4,
                                 .names = in,
                                 .in = D,
                                 .out = { D, kv, kv, D },
                                 .split = XD_COL,
                                 .units = (int64_t[]){ group, hd, hd, group } });
    xd_w_gain(d, &w->norm_q, "norm_q.weight", hd);
    xd_w_gain(d, &w->norm_k, "norm_k.weight", hd);
    xd_w_linear(d, &w->out, "to_out.0",
                &(xd_linear_spec){ .in = D, .out = D, .split = XD_ROW, .unit = group });
    xd_w_leave(d);
    xd_w_enter(d, "ff");
    xd_w_fused(
        d, &w->up,
        &(xd_fused_spec){ .n = 2, .names = up, .in = D, .out = { f->ff, f->ff }, .split = XD_COL });
    xd_w_linear(d, &w->down, "down", &(xd_linear_spec){ .in = f->ff, .out = D, .split = XD_ROW });
    xd_w_leave(d);
}

static void block_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    const cfg *c = c_;
    blk       *w = w_;
    (void)layer;
    xd_w_vec(d, &w->table, "scale_shift_table", 2, (int64_t[]){ 6, c->main.dim });
    blk_weights(d, &c->main, w);
}

/* Declares the list of blocks `name` of the text. */
static void fusion_weights(xd_decl *d, const cfg *c, const char *name, int n, blk *w)
{
    for (int i = 0; i < n; i++) {
        xd_w_enter(d, "%s.%d", name, i);
        blk_weights(d, &c->text, &w[i]);
        xd_w_leave(d);
    }
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    int64_t    D = c->main.dim, E = c->text.dim;
    xd_w_linear(d, &g->latents, "img_in", &(xd_linear_spec){ .in = c->in_ch, .out = D, .bias = 1 });
    xd_mlp_weights(d, "time_embed", &g->time, c->sinusoids, D, D);
    xd_w_linear(d, &g->mod, "time_mod_proj",
                &(xd_linear_spec){ .in = D, .out = 6 * D, .bias = 1, .few = 1 });
    xd_w_enter(d, "text_fusion");
    fusion_weights(d, c, "layerwise_blocks", c->nlayerwise, g->layerwise);
    xd_w_linear(d, &g->states, "projector", &(xd_linear_spec){ .in = c->nstates, .out = 1 });
    fusion_weights(d, c, "refiner_blocks", c->nrefiners, g->refiner);
    xd_w_leave(d);
    xd_w_gain(d, &g->text_norm, "txt_in.norm.weight", E);
    xd_mlp_weights(d, "txt_in", &g->text, E, D, D);
    xd_w_enter(d, "final_layer");
    xd_w_vec(d, &g->table, "scale_shift_table", 2, (int64_t[]){ 2, D });
    xd_w_gain(d, &g->norm, "norm.weight", D);
    xd_w_linear(d, &g->out, "linear", &(xd_linear_spec){ .in = D, .out = c->in_ch, .bias = 1 });
    xd_w_leave(d);
}

/* ---- blocks ------------------------------------------------------------------------------- */

typedef struct run { /* how a block runs */
    int64_t   head_dim;
    float     eps;
    /* [6,D] F32: scale, shift and gate of the attention, then of the feed-forward; or absent */
    xd_tensor mod;
    xd_tensor cos, sin; /* RoPE tables, or absent */
    /* Above 0: the rows are groups of this many rows, which attend to their own group only, and
     * which this rank has complete. 0: the rows are tokens, which attend to those of all ranks. */
    int64_t   group;
} run;

static xd_tensor mod_row(const run *r, int i)
{
    return r->mod.nd ? xd_rows(r->mod, i, 1) : r->mod;
}

/* Computes norm(h) * (1 + scale) + shift, where scale is row `at` of the modulation, for the layer
 * w. */
static xd_tensor modulated(xd_exec *x, const run *r, xd_tensor h, xd_tensor gain, int at,
                           const xd_lin *w)
{
    xd_norm a = { .in = h,
                  .gain = gain,
                  .scale = mod_row(r, at),
                  .shift = mod_row(r, at + 1),
                  .rms = 1,
                  .eps = r->eps };
    return xd_norm_for(x, &a, w, NULL);
}

/* Computes the attention of groups of rows as that of the samples of a batch. */
static xd_tensor attend_in_groups(xd_exec *x, const xd_qkv *a, int64_t group)
{
    int64_t B = x->B;
    x->B = a->q.d[0] / group;
    xd_tensor o = xd_attn_over(x, a->q, a->k, a->v, (xd_tensor){ 0 }, 0);
    x->B = B;
    return o;
}

static void run_block(xd_exec *x, xd_tensor h, const blk *w, const run *r)
{
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor y = xd_linear(x, modulated(x, r, h, w->norm1, 0, &w->in), &w->in);
    xd_qkv    a = xd_qkv_open(x, y, &w->in, r->head_dim);
    xd_qkv_fill(x, &a, y, &w->in,
                &(xd_qkv_rows){ .n = h.d[0],
                                .norm_q = w->norm_q,
                                .norm_k = w->norm_k,
                                .cos = r->cos,
                                .sin = r->sin,
                                .eps = r->eps });
    xd_tensor o = r->group ? attend_in_groups(x, &a, r->group) : xd_attn(x, a.q, a.k, a.v, 0);
    o = xd_gated_for(x, xd_seg(y, &w->in, 3), xd_flat(o), XD_SIGMOID, &w->out);
    xd_linear_add(x, h, mod_row(r, 2), o, &w->out);
    xd_arena_rewind(x->tmp, mark);
    y = xd_linear(x, modulated(x, r, h, w->norm2, 3, &w->up), &w->up);
    o = xd_gated_for(x, xd_seg(y, &w->up, 0), xd_seg(y, &w->up, 1), XD_SILU, &w->down);
    xd_linear_add(x, h, mod_row(r, 5), o, &w->down);
    xd_arena_rewind(x->tmp, mark);
}

/* ---- the text ----------------------------------------------------------------------------- */

static void keep_text(xd_exec *x, const xd_net *n, const xd_cond *text, void *kept_)
{
    const cfg *c = n->cfg;
    kept      *k = kept_;
    if (n->first == 0)
        k->text = xd_new_f32(x, text->tok.d[0], c->main.dim);
}

/* Makes one row of the hidden states of each of n tokens. states: [n, states E]. */
static void join_states(xd_exec *x, const xd_net *net, xd_tensor to, xd_tensor states)
{
    const glob *g = net->glob;
    const cfg  *c = net->cfg;
    int64_t     n = to.d[0], E = c->text.dim, L = c->nstates;
    run         r = { .head_dim = c->text.head_dim, .eps = c->eps, .group = L };
    size_t      mark = xd_arena_mark(x->tmp);
    xd_tensor   h = xd_new_f32(x, n * L, E), y = xd_new_f32(x, n * E, L);
    xd_copy_to(x, h, xd_reshape(states, 2, (int64_t[]){ n * L, E }));
    for (int i = 0; i < c->nlayerwise; i++)
        run_block(x, h, &g->layerwise[i], &r);
    xd_copy_to(x, xd_reshape(y, 3, (int64_t[]){ n, E, L }),
               xd_permute(xd_reshape(h, 3, (int64_t[]){ n, L, E }), (int[]){ 0, 2, 1 }));
    xd_linear_into(x, xd_reshape(to, 2, (int64_t[]){ n * E, 1 }), y, &g->states);
    xd_arena_rewind(x->tmp, mark);
}

/* Embeds all rows of the text. A rank computes the rows of all ranks, because the blocks are few
 * and run once per request. The states of some tokens at a time are joined, which bounds the
 * memory. */
static void read_text(xd_exec *x, const xd_net *net, const xd_input *in, const void *kept_)
{
    const glob *g = net->glob;
    const cfg  *c = net->cfg;
    const kept *k = kept_;
    if (net->first != 0)
        return;
    int64_t   n = k->text.d[0];
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor h = xd_new_f32(x, n, c->text.dim), tok = in->cond->tok;
    for (int64_t at = 0, some; at < n; at += some) {
        some = n - at < TOKENS_AT_ONCE ? n - at : TOKENS_AT_ONCE;
        join_states(x, net, xd_rows(h, at, some), xd_rows(tok, at, some));
    }
    run r = { .head_dim = c->text.head_dim, .eps = c->eps, .group = n };
    for (int i = 0; i < c->nrefiners && n; i++)
        run_block(x, h, &g->refiner[i], &r);
    xd_tensor y =
        xd_linear_act(x, xd_rms_norm(x, h, g->text_norm, c->eps), &g->text.a, XD_GELU_TANH);
    xd_linear_into(x, k->text, y, &g->text.b);
    xd_arena_rewind(x->tmp, mark);
}

/* ---- running ------------------------------------------------------------------------------ */

/* Fills the RoPE angles of the text rows, which are at position 0, then of the image tokens. */
static void fill_angles(void *ctx, float *buf)
{
    const xd_rope *t = ctx;
    const cfg     *c = t->cfg;
    int64_t        W = t->x->lay->grid[2];
    double         base[256]; /* enough for heads of up to 512 features */
    xd_rope_axes(base, c->theta, &c->axes);
    for (int64_t n = xd_n(t->x, XD_TXT) * c->main.head_dim / 2; n > 0; n--)
        *buf++ = (float)t->fn(0);
    for (int64_t i = 0; i < xd_n(t->x, XD_IMG); i++) {
        int64_t at = xd_where(t->x, XD_IMG, i);
        buf = xd_rope_token(buf, base, &c->axes, (int64_t[AXES]){ 0, at / W, at % W }, t->fn);
    }
}

/* Embeds the timestep. As in diffusers, timesteps are rounded to f32. */
static void cond(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    local      *l = s->local;
    double      t = (double)((float)in->t / 1000.0f * 1000.0f);
    int64_t     rows = xd_n(x, XD_TXT) + xd_n(x, XD_IMG), half = c->main.head_dim / 2;
    l->emb = xd_mlp_run(x, xd_time_embed(x, &t, 1, c->sinusoids, 1, 0), &g->time, XD_GELU_TANH);
    l->mod = xd_mod_rows(x, xd_gated(x, l->emb, (xd_tensor){ 0 }, XD_GELU_TANH), &g->mod, 6);
    l->cos = xd_rope_table_of(x, in->cond, rows, half, fill_angles, c, cos);
    l->sin = xd_rope_table_of(x, in->cond, rows, half, fill_angles, c, sin);
}

static void embed(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    const kept *k = s->kept;
    int64_t     ntxt = xd_n(x, XD_TXT), nimg = xd_n(x, XD_IMG);
    if (!xd_check(x, in->lat.d[0] == nimg && s->h.d[0] == ntxt + nimg,
                  "%lld image and %lld text tokens do not match %lld rows of state",
                  (long long)nimg, (long long)ntxt, (long long)s->h.d[0]))
        return;
    xd_copy_own_rows(x, XD_TXT, xd_rows(s->h, 0, ntxt), k->text);
    xd_linear_into(x, xd_rows(s->h, ntxt, nimg), in->lat, &g->latents);
}

static void forward(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const cfg   *c = n->cfg;
    const blk   *w = w_;
    const local *l = s->local;
    run          r = { .head_dim = c->main.head_dim,
                       .eps = c->eps,
                       .mod = xd_mod_table(x, w->table, l->mod),
                       .cos = l->cos,
                       .sin = l->sin };
    run_block(x, s->h, w, &r);
}

/* Computes the network's output. The last modulation has two rows: scale, then shift. */
static xd_tensor head(xd_exec *x, const xd_net *n, xd_state *s)
{
    const glob  *g = n->glob;
    const cfg   *c = n->cfg;
    const local *l = s->local;
    int64_t      nimg = xd_n(x, XD_IMG);
    xd_tensor    out = xd_new_f32(x, nimg, g->out.w.out);
    size_t       mark = xd_arena_mark(x->tmp);
    run          r = { .eps = c->eps, .mod = xd_mod_table(x, g->table, l->emb) };
    xd_tensor    h = xd_rows(s->h, s->h.d[0] - nimg, nimg);
    xd_linear_into(x, out, modulated(x, &r, h, g->norm, 0, &g->out), &g->out);
    xd_arena_rewind(x->tmp, mark);
    return out;
}

static const xd_block kind = { "transformer_blocks.%d", sizeof(blk), block_weights, forward };

static const xd_block *block(const void *c, int layer)
{
    (void)c, (void)layer;
    return &kind;
}

extern const xd_dit xd_dit_krea2;

const xd_dit xd_dit_krea2 = {
    .net = { .name = "krea2",
             .classes = { "Krea2Transformer2DModel" },
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
