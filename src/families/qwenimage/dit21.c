/* dit21.c - runs the transformer of Qwen-Image-2.1 like diffusers' QwenImage21Transformer2DModel.
 *
 * Text, reference images and image are one sequence. Text and reference images are its prefix, in
 * which the tokens of a reference image stand where the text encoder has read the image. A token of
 * the text attends to itself and to all tokens before it, a token of a reference image also to the
 * whole reference image, and the image attends to everything. The prefix has the modulation of
 * timestep 0, so nothing in it depends on the step: `read` runs it through the blocks once per
 * request and stores its keys and values, and the blocks of a step compute only the image. One
 * modulation serves all blocks; the gates pass through tanh, and no layer has a bias.
 *
 * Positions enter by RoPE over (time, row, column). A text token has its position on all three
 * axes. An image has the position after the text before it as time, its rows and columns are
 * counted from its centre, and its longer side is added to the position of what follows. */
#include <math.h>
#include <stddef.h>

#include "dit/dual.h"

/* Side of the square of an image's tokens for which the text encoder has one row. */
enum { SLOT = 2 };

typedef struct cfg {
    int64_t head_dim, in_ch, out_ch, text, patch, ratio;
    int     heads, nlayers, causal;
    float   eps;
    xd_ints axes; /* head features rotated per axis: time, row, column */
    int64_t dim;  /* D = heads * head_dim */
} cfg;

#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    { "patch_size", AT(patch), 'l', 1, NULL },
    { "in_channels", AT(in_ch), 'l', 64, NULL },
    { "out_channels", AT(out_ch), 'l', 64, NULL },
    { "num_layers", AT(nlayers), 'i', 32, NULL },
    { "attention_head_dim", AT(head_dim), 'l', 128, NULL },
    { "num_attention_heads", AT(heads), 'i', 32, NULL },
    { "context_in_dim", AT(text), 'l', 4096, NULL },
    { "mlp_ratio", AT(ratio), 'l', 3, NULL },
    { "axes_dims_rope", AT(axes), 'L', 0, NULL },
    { "eps", AT(eps), 'f', 1e-6, NULL },
    { "causal_condition", AT(causal), 'b', 1, NULL },
    { NULL, 0, 0, 0, NULL },
};

typedef struct blk {
    xd_lin qkv, out;
    xd_lin up, down; /* `up` computes gate and input; the feed-forward is down(silu(gate) * in) */
    xd_tensor norm_q, norm_k;
} blk;

typedef struct glob {
    xd_lin    latents, mod, scale, out;
    xd_tensor text_norm; /* [text]: the norm multiplies by 1 + text_norm */
    xd_lin    text[2];
    xd_mlp    time;
} glob;

typedef struct kept { /* what depends only on text and reference images */
    xd_tensor h;      /* [m,D] F32: hidden state of the prefix */
    xd_tensor kv;     /* [blocks,m,keys and values of this rank's heads] */
} kept;

/* The modulations of all blocks for one timestep, and the RoPE tables of the rows. */
typedef struct local {
    xd_tensor active;   /* [1,D]: silu of the timestep embedding */
    xd_tensor mod;      /* [4,D] F32: scale and gate of attention, then of feed-forward */
    xd_tensor cos, sin; /* [n,head_dim/2] F32 */
} local;

/* ---- configuration ------------------------------------------------------------------------ */

static xd_status check_config(void *c_, xd_err *e)
{
    cfg                  *c = c_;
    const xd_config_range r[] = {
        { "num_attention_heads", c->heads, 1, 4096 }, { "attention_head_dim", c->head_dim, 8, 512 },
        { "in_channels", c->in_ch, 1, 65536 },        { "num_layers", c->nlayers, 0, 10000 },
        { "context_in_dim", c->text, 1, 1 << 24 },    { "mlp_ratio", c->ratio, 1, 64 },
    };
    if (xd_check_ranges(r, sizeof r / sizeof r[0], e) != XD_OK)
        return XD_EFORMAT;
    c->dim = c->heads * c->head_dim;
    c->out_ch = c->out_ch ? c->out_ch : c->in_ch;
    if (!(c->eps > 0 && c->eps < 1))
        return xd_fail(e, XD_EFORMAT, "transformer: eps is %g; it must be between 0 and 1",
                       (double)c->eps);
    if (c->patch != 1 || c->out_ch != c->in_ch)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: patch_size %lld, in_channels %lld and out_channels %lld: only "
                       "patch_size 1 and equal channels are supported",
                       (long long)c->patch, (long long)c->in_ch, (long long)c->out_ch);
    if (!c->causal)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: causal_condition is false, but only text with the modulation "
                       "of timestep 0 is supported");
    return xd_dual_axes(&c->axes, "axes_dims_rope", NULL, c->head_dim, e);
}

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
        .sample = { 1, 64, 64 },
        .text_dim = c->text,
        .sites = 1,
        .prefix = 1,
        .prefix_refs = SLOT,
        .local_size = sizeof(local),
        .kept_size = sizeof(kept),
    };
}

static int nlayers(const void *c)
{
    return ((const cfg *)c)->nlayers;
}

/* ---- weights ------------------------------------------------------------------------------ */

static void block_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    static const char *const qkv[] = { "attn.to_q", "attn.to_k", "attn.to_v" };
    static const char *const up[] = { "img_mlp.gate_layer", "img_mlp.proj" };
    const cfg               *c = c_;
    blk                     *w = w_;
    int64_t                  D = c->dim, F = c->dim * c->ratio, hd = c->head_dim;
    (void)layer;
    xd_w_fused(
        d, &w->qkv,
        &(xd_fused_spec){
            .n = 3, .names = qkv, .in = D, .out = { D, D, D }, .split = XD_COL, .unit = hd });
    xd_w_linear(d, &w->out, "attn.to_out.0",
                &(xd_linear_spec){ .in = D, .out = D, .split = XD_ROW, .unit = hd });
    xd_w_vec(d, &w->norm_q, "attn.norm_q.weight", 1, &hd);
    xd_w_vec(d, &w->norm_k, "attn.norm_k.weight", 1, &hd);
    xd_w_fused(d, &w->up,
               &(xd_fused_spec){ .n = 2, .names = up, .in = D, .out = { F, F }, .split = XD_COL });
    xd_w_linear(d, &w->down, "img_mlp.out",
                &(xd_linear_spec){ .in = F, .out = D, .split = XD_ROW });
}

static void plain(xd_decl *d, xd_lin *w, const char *name, int64_t in, int64_t out)
{
    xd_w_linear(d, w, name, &(xd_linear_spec){ .in = in, .out = out });
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    int64_t    D = c->dim;
    plain(d, &g->latents, "img_in", c->in_ch, D);
    xd_w_vec(d, &g->text_norm, "txt_in.text_norm.weight", 1, &c->text);
    plain(d, &g->text[0], "txt_in.in_layer", c->text, D);
    plain(d, &g->text[1], "txt_in.out_layer", D, D);
    plain(d, &g->time.a, "time_text_embed.timestep_embedder.linear_1", XD_SINUSOIDS, D);
    plain(d, &g->time.b, "time_text_embed.timestep_embedder.linear_2", D, D);
    xd_w_linear(d, &g->mod, "modulation.1", &(xd_linear_spec){ .in = D, .out = 4 * D, .few = 1 });
    plain(d, &g->scale, "norm_out.linear", D, D);
    plain(d, &g->out, "proj_out", D, c->out_ch);
}

/* ---- the parts of the prefix ---------------------------------------------------------------- */

typedef struct part {           /* consecutive text rows, or a reference image */
    const xd_cond_image *image; /* NULL: text */
    int64_t              at, n; /* rows of the prefix */
    int64_t              from;  /* first row of the text, or first token of xd_input.ref */
    int64_t              time;  /* position of the first row on the axis of time */
} part;

typedef struct walk { /* the way through the parts of a prefix */
    const xd_cond *cond;
    int            images;   /* number of images that are passed */
    int64_t        row, ref; /* rows of the text encoder and tokens of images, likewise */
    int64_t        at, time; /* first row and position of what follows */
} walk;

/* Sets *p to the next part. Returns 0 at the end of the prefix. */
static int next_part(walk *w, part *p)
{
    const xd_cond_image *i = w->images < w->cond->nimages ? &w->cond->images[w->images] : NULL;
    *p = (part){ NULL, w->at, (i ? i->at : w->cond->tok.d[0]) - w->row, w->row, w->time };
    if (p->n > 0) {
        w->row += p->n, w->at += p->n, w->time += p->n;
        return 1;
    }
    if (!i)
        return 0;
    *p = (part){ i, w->at, i->rows * i->cols, w->ref, w->time };
    w->images++;
    w->row += i->n, w->ref += p->n, w->at += p->n;
    w->time += i->rows > i->cols ? i->rows : i->cols;
    return 1;
}

/* Returns the number of rows of the prefix, and sets *time to the position after it. */
static int64_t prefix_rows(const xd_cond *cond, int64_t *time)
{
    walk w = { .cond = cond };
    for (part p; next_part(&w, &p);)
        ;
    *time = w.time;
    return w.at;
}

/* ---- conditioning ------------------------------------------------------------------------- */

enum { TIME, ROW, COLUMN };

/* Writes the cosines or sines of one token's RoPE angles. As in diffusers, an angle is the f32
 * product of a position and a frequency. */
static float *token_angles(const xd_rope *t, float freq[][128], const int64_t *pos, float *row)
{
    const cfg *c = t->cfg;
    for (int a = 0; a < XD_DUAL_AXES; a++)
        row = xd_rope_angles(row, c->axes.v[a], freq[a], (float)pos[a], t->fn);
    return row;
}

typedef struct places { /* what positions depend on, for the functions that fill RoPE tables */
    xd_rope        rope;
    const xd_cond *cond;
    int64_t        time; /* position of the image on the axis of time */
} places;

static void frequencies(const cfg *c, float freq[][128])
{
    for (int a = 0; a < XD_DUAL_AXES; a++)
        xd_rope_frequencies(freq[a], c->axes.v[a]);
}

/* Returns a row or column i of an image with n of them, counted from the centre. */
static int64_t from_centre(int64_t i, int64_t n)
{
    return i - (n - n / 2);
}

/* Fills the RoPE angles of the prefix. */
static void fill_prefix(void *ctx, float *buf)
{
    const xd_rope *t = ctx;
    const places  *p = t->cfg;
    xd_rope        of = { t->x, p->rope.cfg, t->fn };
    walk           w = { .cond = p->cond };
    float          freq[XD_DUAL_AXES][128]; /* an axis has at most 256 features */
    frequencies(of.cfg, freq);
    for (part a; next_part(&w, &a);)
        for (int64_t i = 0; i < a.n; i++) {
            const xd_cond_image *m = a.image;
            int64_t              pos[] = { a.time + i, a.time + i, a.time + i };
            if (m) {
                pos[TIME] = a.time;
                pos[ROW] = from_centre(i / m->cols, m->rows);
                pos[COLUMN] = from_centre(i % m->cols, m->cols);
            }
            buf = token_angles(&of, freq, pos, buf);
        }
}

/* Fills the RoPE angles of this rank's image tokens. */
static void fill_image(void *ctx, float *buf)
{
    const xd_rope *t = ctx;
    const places  *p = t->cfg;
    xd_rope        of = { t->x, p->rope.cfg, t->fn };
    int64_t        H = t->x->lay->grid[1], W = t->x->lay->grid[2];
    float          freq[XD_DUAL_AXES][128];
    frequencies(of.cfg, freq);
    for (int64_t i = 0, n = xd_n(t->x, XD_IMG); i < n; i++) {
        int64_t at = xd_where(t->x, XD_IMG, i);
        int64_t pos[] = { p->time, from_centre(at / W, H), from_centre(at % W, W) };
        buf = token_angles(&of, freq, pos, buf);
    }
}

/* Sets the modulations for a timestep, and the RoPE tables of n rows, which `fill` writes. */
static void open_local(xd_exec *x, const xd_net *n, const xd_input *in, local *l, double time,
                       int64_t rows, void (*fill)(void *turn, float *to))
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    places      p = { { x, c, NULL }, in->cond, 0 };
    xd_tensor   none = { 0 };
    (void)prefix_rows(in->cond, &p.time);
    l->active = xd_gated(x, xd_mlp_timesteps(x, &time, 1, &g->time), none, XD_SILU);
    l->mod = xd_mod_rows(x, l->active, &g->mod, 4);
    for (int i = 1; i < 4; i += 2)
        xd_activate(x, xd_rows(l->mod, i, 1), XD_TANH);
    l->cos = xd_rope_table_of(x, in->cond, rows, c->head_dim / 2, fill, &p, cos);
    l->sin = xd_rope_table_of(x, in->cond, rows, c->head_dim / 2, fill, &p, sin);
}

static void cond(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    open_local(x, n, in, s->local, in->t, xd_n(x, XD_IMG), fill_image);
}

static void embed(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    if (xd_check(x, in->lat.d[0] == s->h.d[0], "%lld image tokens do not match %lld rows of state",
                 (long long)in->lat.d[0], (long long)s->h.d[0]))
        xd_linear_into(x, s->h, in->lat, &g->latents);
}

/* ---- blocks ------------------------------------------------------------------------------- */

/* Computes queries, keys and values of the rows h. */
static xd_qkv attn_inputs(xd_exec *x, const cfg *c, const blk *w, xd_tensor h, const local *l)
{
    xd_norm   a = { .in = h, .scale = xd_rows(l->mod, 0, 1), .eps = c->eps };
    xd_tensor y = xd_linear(x, xd_norm_for(x, &a, &w->qkv, NULL), &w->qkv);
    xd_qkv    t = xd_qkv_open(x, y, &w->qkv, c->head_dim);
    xd_qkv_fill(x, &t, y, &w->qkv,
                &(xd_qkv_rows){ .n = h.d[0],
                                .norm_q = w->norm_q,
                                .norm_k = w->norm_k,
                                .cos = l->cos,
                                .sin = l->sin,
                                .eps = c->eps });
    return t;
}

/* Adds to h the projected output o of the attention, and then the feed-forward. */
static void close_block(xd_exec *x, const cfg *c, const blk *w, xd_tensor h, xd_tensor o,
                        const local *l)
{
    xd_linear_add(x, h, xd_rows(l->mod, 1, 1), xd_flat(o), &w->out);
    xd_norm   a = { .in = h, .scale = xd_rows(l->mod, 2, 1), .eps = c->eps };
    xd_tensor y = xd_linear(x, xd_norm_for(x, &a, &w->up, NULL), &w->up);
    y = xd_gated_for(x, xd_seg(y, &w->up, 0), xd_seg(y, &w->up, 1), XD_SILU, &w->down);
    xd_linear_add(x, h, xd_rows(l->mod, 3, 1), y, &w->down);
}

/* Returns the keys and values of the prefix in a block. */
static xd_kv prefix_kv(const kept *k, const cfg *c, const xd_net *n, int layer)
{
    xd_tensor t = xd_text_kv(k->kv, layer - n->first);
    int64_t   half = t.d[1] / 2;
    return (xd_kv){ xd_heads(xd_cols(t, 0, half), c->head_dim),
                    xd_heads(xd_cols(t, half, half), c->head_dim) };
}

static void forward(xd_exec *x, const xd_net *n, const void *w, xd_state *s)
{
    const local *l = s->local;
    xd_kv        before = prefix_kv(s->kept, n->cfg, n, x->layer);
    xd_qkv       t = attn_inputs(x, n->cfg, w, s->h, l);
    close_block(x, n->cfg, w, s->h, xd_attn_after(x, before, t.q, t.k, t.v, 0), l);
}

/* ---- the prefix ----------------------------------------------------------------------------- */

static void keep(xd_exec *x, const xd_net *n, const xd_cond *text, void *kept_)
{
    kept      *k = kept_;
    const cfg *c = n->cfg;
    const blk *w = n->first < n->last ? n->layer[n->first] : NULL;
    int64_t    time, m = prefix_rows(text, &time);
    k->h = xd_new_f32(x, m, c->dim);
    k->kv = xd_text_kv_new(x, n, m, w ? w->qkv.seg[1] + w->qkv.seg[2] : 0);
}

static xd_tensor prefix(const void *k)
{
    return ((const kept *)k)->h;
}

static void embed_text(xd_exec *x, const cfg *c, const glob *g, xd_tensor text, xd_tensor h)
{
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor a = xd_new(x, text.d[0], text.d[1]);
    xd_norm_into(x, &(xd_norm){ .out = a,
                                .in = text,
                                .scale = xd_view2(g->text_norm.p, XD_F32, 1, c->text),
                                .rms = 1,
                                .eps = c->eps });
    xd_linear_into(x, h, xd_linear_act(x, a, &g->text[0], XD_GELU_TANH), &g->text[1]);
    xd_arena_rewind(x->tmp, mark);
}

/* Checks that the text encoder has as many rows for an image as the image's tokens need, and that
 * the tokens are there. */
static int fits(xd_exec *x, const xd_input *in, const part *p)
{
    return xd_check(x, p->n == p->image->n * SLOT * SLOT && p->from + p->n <= in->ref.d[0],
                    "a reference image of %lld x %lld tokens has %lld rows of the text encoder",
                    (long long)p->image->rows, (long long)p->image->cols, (long long)p->image->n);
}

static void embed_prefix(xd_exec *x, const cfg *c, const glob *g, const xd_input *in, xd_tensor h)
{
    walk w = { .cond = in->cond };
    for (part p; next_part(&w, &p);) {
        xd_tensor to = xd_rows(h, p.at, p.n);
        if (!p.image)
            embed_text(x, c, g, xd_rows(in->cond->tok, p.from, p.n), to);
        else if (fits(x, in, &p))
            xd_linear_into(x, to, xd_rows(in->ref, p.from, p.n), &g->latents);
    }
}

typedef struct mask { int64_t first, n, m; } mask;

/* Fills a bias [n,m] that hides the keys after a query, which is row `first` + i of the prefix. */
static void fill_mask(void *ctx, float *to)
{
    const mask *a = ctx;
    for (int64_t i = 0; i < a->n; i++)
        for (int64_t k = 0; k < a->m; k++)
            *to++ = k <= a->first + i ? 0 : -1e30f;
}

/* Computes the attention of text rows behind a reference image. */
static void attend_late(xd_exec *x, const part *p, const xd_qkv *t, xd_tensor out)
{
    enum { MANY = 256 }; /* the rows are computed a few at a time, because the mask is large */
    for (int64_t i = 0; i < p->n; i += MANY) {
        size_t    mark = xd_arena_mark(x->tmp);
        int64_t   n = p->n - i < MANY ? p->n - i : MANY, first = p->at + i, m = first + n;
        xd_tensor bias = xd_new_f32(x, n, m);
        xd_fill(x, bias, fill_mask, &(mask){ first, n, m });
        bias = xd_view(bias.p, XD_F32, 3, (int64_t[]){ t->q.d[1], n, m });
        bias.s[0] = 0;
        xd_copy_to(x, xd_rows(out, first, n),
                   xd_attn_over(x, xd_rows(t->q, first, n), xd_rows(t->k, 0, m),
                                xd_rows(t->v, 0, m), bias, 0));
        xd_arena_rewind(x->tmp, mark);
    }
}

/* Computes the attention of the prefix to itself: [m,H,D]. */
static xd_tensor attend_prefix(xd_exec *x, const xd_cond *cond, const xd_qkv *t)
{
    if (!cond->nimages)
        return xd_attn_causal(x, t->q, t->k, t->v, 0);
    xd_tensor out = xd_new_as(x, x->act, 3, t->q.d);
    walk      w = { .cond = cond };
    for (part p; next_part(&w, &p);) {
        /* a count has the images first, but must suffice for images behind text */
        int64_t end = xd_counting(x) ? t->q.d[0] : p.at + p.n;
        if (!p.image && p.at)
            attend_late(x, &p, t, out);
        else
            xd_attn_over_into(x, xd_rows(out, p.at, p.n), xd_rows(t->q, p.at, p.n),
                              xd_rows(t->k, 0, end), xd_rows(t->v, 0, end),
                              &(xd_attn_how){ .causal = !p.image });
    }
    return out;
}

static void read(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept_)
{
    const kept *k = kept_;
    const cfg  *c = n->cfg;
    size_t      mark = xd_arena_mark(x->tmp);
    local       l = { 0 };
    /* a later stage without blocks, which may also begin with block 0, has received the rows */
    if (!n->first && (in->ref.nd || !in->cond->nimages))
        embed_prefix(x, c, n->glob, in, k->h);
    open_local(x, n, in, &l, 0, k->h.d[0], fill_prefix);
    for (int i = n->first; i < n->last; i++) {
        size_t     block = xd_arena_mark(x->tmp);
        const blk *w = xd_net_layer(x, n, i);
        xd_kv      to = prefix_kv(k, c, n, i);
        xd_qkv     t = attn_inputs(x, c, w, k->h, &l);
        xd_copy_to(x, to.k, t.k);
        xd_copy_to(x, to.v, t.v);
        close_block(x, c, w, k->h, attend_prefix(x, in->cond, &t), &l);
        xd_arena_rewind(x->tmp, block);
    }
    xd_arena_rewind(x->tmp, mark);
}

/* ---- the network ---------------------------------------------------------------------------- */

static xd_tensor head(xd_exec *x, const xd_net *n, xd_state *s)
{
    const glob  *g = n->glob;
    const cfg   *c = n->cfg;
    const local *l = s->local;
    xd_tensor    out = xd_new_f32(x, s->h.d[0], g->out.w.out);
    size_t       mark = xd_arena_mark(x->tmp);
    xd_tensor    scale = xd_mod_rows(x, l->active, &g->scale, 1);
    xd_linear_into(x, out, xd_norm_mod(x, s->h, scale, (xd_tensor){ 0 }, c->eps), &g->out);
    xd_arena_rewind(x->tmp, mark);
    return out;
}

static const xd_block kind = { "transformer_blocks.%d", sizeof(blk), block_weights, forward };

static const xd_block *block(const void *c, int layer)
{
    (void)c, (void)layer;
    return &kind;
}

extern const xd_dit xd_dit_qwenimage21;

const xd_dit xd_dit_qwenimage21 = {
    .net = { .name = "qwenimage21",
             .classes = { "QwenImage21Transformer2DModel" },
             .fields = fields,
             .cfg_size = sizeof(cfg),
             .glob_size = sizeof(glob),
             .check = check_config,
             .nlayers = nlayers,
             .block = block,
             .weights = weights },
    .info = info,
    .keep = keep,
    .read = read,
    .prefix = prefix,
    .cond = cond,
    .embed = embed,
    .head = head,
};
