/* dit.c - runs the transformer of Mochi 1 (Genmo 2024) like diffusers' MochiTransformer3DModel.
 *
 * A block has separate weights for text and video and one joint attention. The text's hidden state
 * is narrower than the video's: text rows of the hidden state have the text in their first columns,
 * and zeros in the others. The last block only reads the text and does not change it. The angles of
 * RoPE are positions times learned frequencies, which differ between the heads; text is not
 * rotated. All norms of rows are RMS norms without gain. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "dit/layers.h"
#include "exec/tables.h"

static const float  eps = 1e-6f, qk_eps = 1e-5f;
/* RoPE scales the rows and columns of a grid to the area of this number of positions. */
static const double area = 192 * 192;

enum {
    POOL_HEADS = 8, /* number of heads of the attention that pools the text */
    AXES = 3,       /* axes of a token's position: frame, row, column */
};

typedef struct cfg {
    int64_t head_dim, in_ch, out_ch, patch, text_dim, text, waves;
    int     heads, nlayers;
    char    qk_norm[XD_FIELD_TEXT], act_fn[XD_FIELD_TEXT];
    int64_t dim; /* D = heads * head_dim */
} cfg;

#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    { "patch_size", AT(patch), 'l', 2, NULL },
    { "num_attention_heads", AT(heads), 'i', 24, NULL },
    { "attention_head_dim", AT(head_dim), 'l', 128, NULL },
    { "num_layers", AT(nlayers), 'i', 48, NULL },
    { "pooled_projection_dim", AT(text_dim), 'l', 1536, NULL },
    { "in_channels", AT(in_ch), 'l', 12, NULL },
    { "out_channels", AT(out_ch), 'l', 0, NULL },
    { "qk_norm", AT(qk_norm), 's', 0, "rms_norm" },
    { "text_embed_dim", AT(text), 'l', 4096, NULL },
    { "time_embed_dim", AT(waves), 'l', 256, NULL },
    { "activation_fn", AT(act_fn), 's', 0, "swiglu" },
    { "max_sequence_length", 0, '-', 0, NULL }, /* text has no positions */
    { NULL, 0, 0, 0, NULL },
};

typedef struct side { /* weights of a block for one stream: video or text */
    xd_lin    mod;    /* scale, gate of the attention, scale, gate of the feed-forward */
    xd_lin    qkv, out;
    xd_lin    up, down; /* `up` computes a and b; the feed-forward is down(a * silu(b)) */
    xd_tensor norm_q, norm_k;
} side;

typedef struct blk { side video, text; } blk;

typedef struct glob {
    xd_lin    patch, text, mod, out;
    xd_mlp    time;
    xd_pool   pool;
    xd_tensor freqs; /* [AXES, heads, head_dim / 2] F32: RoPE's frequencies of all heads */
    xd_span   heads; /* this rank's range of the heads */
} glob;

typedef struct local {
    xd_tensor active; /* [1,D]: silu of the embedding of timestep and pooled text */
    xd_tensor cos,
        sin; /* [n heads, head_dim / 2] F32: RoPE of this rank's video tokens and heads */
} local;

typedef struct kept {
    xd_tensor pooled; /* [1,D] F32: the pooled text */
    xd_tensor zero;   /* [1,1] F32: 0 */
} kept;

/* ---- configuration ------------------------------------------------------------------------ */

static xd_status check_config(void *c_, xd_err *e)
{
    cfg *c = c_;
    c->out_ch = c->out_ch ? c->out_ch : c->in_ch;
    c->dim = c->heads * c->head_dim;
    const xd_config_range r[] = {
        { "num_attention_heads", c->heads, 1, 4096 },
        { "attention_head_dim", c->head_dim, 8, 512 },
        { "in_channels", c->in_ch, 1, 65536 },
        { "num_layers", c->nlayers, 1, 10000 },
        { "patch_size", c->patch, 1, 256 },
        { "text_embed_dim", c->text, POOL_HEADS * 8, POOL_HEADS * 1024 },
        { "time_embed_dim", c->waves, 2, 1 << 16 },
        { "pooled_projection_dim", c->text_dim, 1, c->dim },
    };
    if (xd_check_ranges(r, sizeof r / sizeof *r, e) != XD_OK)
        return XD_EFORMAT;
    if (c->head_dim % 2)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: attention_head_dim %lld is odd, and RoPE rotates pairs",
                       (long long)c->head_dim);
    if (c->text % POOL_HEADS)
        return xd_fail(e, XD_EFORMAT, "transformer: text_embed_dim %lld is not a multiple of %d",
                       (long long)c->text, POOL_HEADS);
    if (c->out_ch != c->in_ch)
        return xd_fail(e, XD_EUNSUPPORTED, "transformer: out_channels %lld is not in_channels %lld",
                       (long long)c->out_ch, (long long)c->in_ch);
    xd_status s = xd_check_word("qk_norm", c->qk_norm, "rms_norm", e);
    return s == XD_OK ? xd_check_word("activation_fn", c->act_fn, "swiglu", e) : s;
}

/* Describes the model. The default size is that of MochiPipeline, 19 frames of 480 x 848 pixels: 4
 * latent frames. */
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
        .sample = { 4, 480 / 8, 848 / 8 },
        .text_dim = c->text,
        .txt_flows = 1,
        .sites = 1,
        .local_size = sizeof(local),
        .kept_size = sizeof(kept),
    };
}

static int nlayers(const void *c)
{
    return ((const cfg *)c)->nlayers;
}

/* ---- weights ------------------------------------------------------------------------------ */

static int is_last(const cfg *c, int layer)
{
    return layer == c->nlayers - 1;
}

static int64_t active_width(const void *c)
{
    return ((const cfg *)c)->dim;
}

static int64_t mod_width(const void *c_, int layer)
{
    const cfg *c = c_;
    return 4 * c->dim + (is_last(c, layer) ? 1 : 4) * c->text_dim;
}

/* Names that the tensors of one stream have in a checkpoint. */
typedef struct names { const char *mod, *qkv[3], *norm_q, *norm_k, *out, *up, *down; } names;

static const names video_names = { "norm1.linear",
                                   { "attn1.to_q", "attn1.to_k", "attn1.to_v" },
                                   "attn1.norm_q.weight",
                                   "attn1.norm_k.weight",
                                   "attn1.to_out.0",
                                   "ff.net.0.proj",
                                   "ff.net.2" };
static const names text_names = {
    "norm1_context.linear",      { "attn1.add_q_proj", "attn1.add_k_proj", "attn1.add_v_proj" },
    "attn1.norm_added_q.weight", "attn1.norm_added_k.weight",
    "attn1.to_add_out",          "ff_context.net.0.proj",
    "ff_context.net.2"
};

/* Declares the weights of one stream whose hidden state has C features. ends: 1 if the stream ends
 * in this block, which then computes only q, k and v. */
static void side_weights(xd_decl *d, const cfg *c, side *w, const names *n, int64_t C, int ends)
{
    int64_t D = c->dim, hd = c->head_dim, F = 4 * C * 2 / 3;
    xd_w_linear(d, &w->mod, ends ? "norm1_context.linear_1" : n->mod,
                &(xd_linear_spec){ .in = D, .out = ends ? C : 4 * C, .bias = 1, .few = 1 });
    xd_w_fused(
        d, &w->qkv,
        &(xd_fused_spec){
            .n = 3, .names = n->qkv, .in = C, .out = { D, D, D }, .split = XD_COL, .unit = hd });
    xd_w_vec(d, &w->norm_q, n->norm_q, 1, &hd);
    xd_w_vec(d, &w->norm_k, n->norm_k, 1, &hd);
    if (ends)
        return;
    xd_w_linear(d, &w->out, n->out,
                &(xd_linear_spec){ .in = D, .out = C, .split = XD_ROW, .unit = hd, .bias = 1 });
    xd_w_linear(
        d, &w->up, n->up,
        &(xd_linear_spec){ .in = C, .nouts = 2, .outs = (int64_t[]){ F, F }, .split = XD_COL });
    xd_w_linear(d, &w->down, n->down, &(xd_linear_spec){ .in = F, .out = C, .split = XD_ROW });
}

static void blk_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    const cfg *c = c_;
    blk       *w = w_;
    side_weights(d, c, &w->video, &video_names, c->dim, 0);
    side_weights(d, c, &w->text, &text_names, c->text_dim, is_last(c, layer));
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    int64_t    D = c->dim, E = c->text, p = c->patch;
    xd_w_linear_as(d, &g->patch, "patch_embed.proj", 4, (int64_t[]){ D, c->in_ch, p, p }, 1);
    xd_w_vec(d, &g->freqs, "pos_frequencies", 3, (int64_t[]){ AXES, c->heads, c->head_dim / 2 });
    xd_w_enter(d, "time_embed");
    xd_mlp_weights(d, "timestep_embedder", &g->time, c->waves, D, D);
    xd_w_linear(d, &g->pool.q, "pooler.to_q", &(xd_linear_spec){ .in = E, .out = E, .bias = 1 });
    xd_w_linear(d, &g->pool.kv, "pooler.to_kv",
                &(xd_linear_spec){ .in = E, .nouts = 2, .outs = (int64_t[]){ E, E }, .bias = 1 });
    xd_w_linear(d, &g->pool.out, "pooler.to_out",
                &(xd_linear_spec){ .in = E, .out = D, .bias = 1 });
    xd_w_linear(d, &g->text, "caption_proj",
                &(xd_linear_spec){ .in = E, .out = c->text_dim, .bias = 1 });
    xd_w_leave(d);
    xd_w_linear(d, &g->mod, "norm_out.linear",
                &(xd_linear_spec){ .in = D, .out = 2 * D, .bias = 1 });
    xd_w_linear(d, &g->out, "proj_out",
                &(xd_linear_spec){ .in = D, .out = p * p * c->out_ch, .bias = 1 });
    g->heads = xd_cut((xd_span){ 0, c->heads }, d->tp_at, d->tp > 0 ? d->tp : 1);
}

/* ---- text --------------------------------------------------------------------------------- */

static void keep_text(xd_exec *x, const xd_net *n, const xd_cond *text, void *kept_)
{
    kept *k = kept_;
    (void)text;
    k->pooled = xd_new_f32(x, 1, ((const cfg *)n->cfg)->dim);
    k->zero = xd_new_f32(x, 1, 1);
}

static void read_text(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept_)
{
    const kept *k = kept_;
    const glob *g = n->glob;
    const float zero = 0;
    size_t      mark = xd_arena_mark(x->tmp);
    xd_put(x, k->zero, &zero);
    xd_copy_to(x, k->pooled, xd_pool_run(x, &g->pool, in->cond->tok, POOL_HEADS));
    xd_arena_rewind(x->tmp, mark);
}

/* ---- rotary positions --------------------------------------------------------------------- */

typedef struct turn { /* argument of fill_angles */
    xd_exec    *x;
    const cfg  *c;
    const glob *g;
    double      (*fn)(double);
} turn;

/* Returns the sides of the grid of positions. Positions of rows and columns are the centres of n
 * equal parts of a range around 0, and are computed in f32 like diffusers' MochiRoPE; `sides` has
 * the edges of the parts. */
static void set_sides(const xd_exec *x, xd_grid_side sides[2])
{
    int64_t h = x->lay->grid[1], w = x->lay->grid[2], n[2] = { h, w };
    double  scale = sqrt(area / (double)(h * w));
    for (int i = 0; i < 2; i++) {
        double half = (double)n[i] * scale / 2;
        sides[i] = (xd_grid_side){ n[i] + 1, (float)-half, (float)half, 0 };
    }
}

static float centre(const xd_grid_side *a, int64_t i)
{
    return (xd_grid_at(a, i) + xd_grid_at(a, i + 1)) / 2;
}

/* Fills fn (cos or sin) of the RoPE angles. For each video token of this rank there is a row for
 * each of the rank's heads. */
static void fill_angles(void *ctx, float *buf)
{
    const turn  *t = ctx;
    xd_exec     *x = t->x;
    int64_t      W = x->lay->grid[2], HW = x->lay->grid[1] * W, half = t->c->head_dim / 2;
    int64_t      all = t->c->heads * half, first = t->g->heads.start * half;
    int64_t      mine = t->g->heads.n * half;
    xd_grid_side sides[2];
    float       *freq = malloc((size_t)(AXES * all) * sizeof *freq);
    if (!freq) {
        xd_exec_fail(x, XD_ENOMEM, "no memory for %lld frequencies", (long long)(AXES * all));
        return;
    }
    xd_get(x, freq, t->g->freqs);
    set_sides(x, sides);
    for (int64_t i = 0; i < xd_n(x, XD_IMG); i++) {
        int64_t at = xd_where(x, XD_IMG, i);
        float   f = (float)(at / HW), r = centre(&sides[0], at % HW / W),
                c = centre(&sides[1], at % W);
        for (int64_t k = first; k < first + mine; k++)
            *buf++ =
                (float)t->fn((double)(f * freq[k] + r * freq[all + k] + c * freq[2 * all + k]));
    }
    free(freq);
}

/* Returns the RoPE table of this rank's video tokens and heads, [n heads, head_dim / 2]. */
static xd_tensor angles(xd_exec *x, const xd_net *n, double (*fn)(double))
{
    const glob  *g = n->glob;
    const cfg   *c = n->cfg;
    turn         t = { x, c, g, fn };
    xd_table_key key = { .of = g->freqs.p, .fill = fill_angles, .fn = fn };
    xd_tensor    table;
    if (!xd_table_find(x, &key, XD_F32,
                       (int64_t[]){ xd_n(x, XD_IMG) * g->heads.n, c->head_dim / 2 }, &table))
        xd_fill(x, table, fill_angles, &t);
    return table;
}

/* Rotates queries or keys of video tokens, [n,heads,head_dim] and contiguous, in place. */
static void rotate(xd_exec *x, const local *l, xd_tensor q)
{
    xd_tensor one = xd_reshape(q, 3, (int64_t[]){ q.d[0] * q.d[1], 1, q.d[2] });
    xd_qk_norm_into(x, &(xd_qknorm){ .out = one, .in = one, .cos = l->cos, .sin = l->sin });
}

/* ---- running ------------------------------------------------------------------------------ */

static xd_tensor active(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept_)
{
    const glob *g = n->glob;
    const kept *k = kept_;
    const cfg  *c = n->cfg;
    xd_tensor   emb = xd_mlp_run(x, xd_time_embed(x, &in->t, 1, c->waves, 1, 0), &g->time, XD_SILU);
    xd_add(x, emb, k->pooled);
    return xd_gated(x, emb, (xd_tensor){ 0 }, XD_SILU);
}

static void cond(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    local *l = s->local;
    l->active = xd_mods_input(x, n, in, s->kept, active);
    l->cos = angles(x, n, cos);
    l->sin = angles(x, n, sin);
}

static void embed(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    const kept *k = s->kept;
    int64_t     ntxt = xd_n(x, XD_TXT), nimg = xd_n(x, XD_IMG), rest = c->dim - c->text_dim;
    if (!xd_check(x, in->lat.d[0] == nimg && in->txt.d[0] == ntxt && s->h.d[0] == nimg + ntxt,
                  "%lld video and %lld text tokens do not match %lld rows of state",
                  (long long)nimg, (long long)ntxt, (long long)s->h.d[0]))
        return;
    if (ntxt) {
        xd_tensor h = xd_rows(s->h, 0, ntxt), zeros = k->zero;
        zeros.d[0] = ntxt, zeros.d[1] = rest, zeros.s[0] = zeros.s[1] = 0;
        xd_linear_into(x, xd_cols(h, 0, c->text_dim), in->txt, &g->text);
        if (rest)
            xd_copy_to(x, xd_cols(h, c->text_dim, rest), zeros);
    }
    xd_linear_into(x, xd_rows(s->h, ntxt, nimg), in->lat, &g->patch);
}

/* One stream of a block. */
typedef struct part {
    const side *w;
    int64_t     at, n;
    int         ends;
    xd_tensor   h, mod; /* the stream's rows and columns of the hidden state; its modulation */
} part;

/* Writes q, k and v of a stream to its rows of y. */
static void project(xd_exec *x, const part *p, xd_tensor y)
{
    size_t  mark = xd_arena_mark(x->tmp);
    xd_norm a = { .in = p->h, .scale = xd_rows(p->mod, 0, 1), .rms = 1, .eps = eps };
    xd_linear_into(x, xd_rows(y, p->at, p->n), xd_norm_for(x, &a, &p->w->qkv, NULL), &p->w->qkv);
    xd_arena_rewind(x->tmp, mark);
}

/* Computes h += tanh(gate) * norm(w(in)). Row `row` of the modulation is the gate. */
static void add_normed(xd_exec *x, const part *p, int row, xd_tensor in, const xd_lin *w)
{
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor y = xd_linear(x, in, w), gate = xd_new_f32(x, 1, p->mod.d[1]);
    xd_gated_into(x, gate, xd_rows(p->mod, row, 1), (xd_tensor){ 0 }, XD_TANH);
    xd_norm_into(x, &(xd_norm){ .out = y, .in = y, .rms = 1, .eps = eps });
    xd_add_gated(x, p->h, gate, y);
    xd_arena_rewind(x->tmp, mark);
}

static void feed(xd_exec *x, const part *p)
{
    const side *w = p->w;
    size_t      mark = xd_arena_mark(x->tmp);
    xd_norm     a = { .in = p->h, .scale = xd_rows(p->mod, 2, 1), .rms = 1, .eps = eps };
    xd_tensor   y = xd_linear(x, xd_norm_for(x, &a, &w->up, NULL), &w->up);
    add_normed(x, p, 3,
               xd_gated_for(x, xd_seg(y, &w->up, 1), xd_seg(y, &w->up, 0), XD_SILU, &w->down),
               &w->down);
    xd_arena_rewind(x->tmp, mark);
}

static part part_of(xd_exec *x, const side *w, xd_state *s, int64_t at, int64_t n)
{
    const local *l = s->local;
    part         p = { .w = w, .at = at, .n = n, .ends = !w->out.w.out };
    p.mod = xd_mod_rows(x, l->active, &w->mod, p.ends ? 1 : 4);
    p.h = xd_cols(xd_rows(s->h, at, n), 0, p.mod.d[1]);
    return p;
}

static void forward(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const blk   *w = w_;
    const cfg   *c = n->cfg;
    const local *l = s->local;
    int64_t      ntxt = xd_n(x, XD_TXT), nimg = xd_n(x, XD_IMG);
    part         p[2] = { part_of(x, &w->text, s, 0, ntxt), part_of(x, &w->video, s, ntxt, nimg) };
    xd_tensor    y = xd_new(x, ntxt + nimg, w->video.qkv.w.out);
    for (int i = 0; i < 2; i++)
        project(x, &p[i], y);
    xd_qkv a = xd_qkv_open(x, y, &w->video.qkv, c->head_dim);
    for (int i = 0; i < 2; i++)
        xd_qkv_fill(x, &a, y, &w->video.qkv,
                    &(xd_qkv_rows){ .at = p[i].at,
                                    .n = p[i].n,
                                    .norm_q = p[i].w->norm_q,
                                    .norm_k = p[i].w->norm_k,
                                    .eps = qk_eps });
    rotate(x, l, xd_rows(a.q, ntxt, nimg));
    rotate(x, l, xd_rows(a.k, ntxt, nimg));
    xd_tensor o = xd_flat(xd_attn(x, a.q, a.k, a.v, 0));
    for (int i = p[0].ends; i < 2; i++)
        add_normed(x, &p[i], 1, xd_rows(o, p[i].at, p[i].n), &p[i].w->out);
    for (int i = p[0].ends; i < 2; i++)
        feed(x, &p[i]);
}

/* Computes the network's output. The final modulation has two rows: scale, then shift. */
static xd_tensor head(xd_exec *x, const xd_net *n, xd_state *s)
{
    const glob  *g = n->glob;
    const cfg   *c = n->cfg;
    const local *l = s->local;
    xd_tensor    m = xd_mod_rows(x, l->active, &g->mod, 2);
    xd_tensor    h = xd_rows(s->h, xd_n(x, XD_TXT), xd_n(x, XD_IMG));
    return xd_patch_head(x, h, xd_rows(m, 0, 1), xd_rows(m, 1, 1), &g->out, c->in_ch,
                         c->patch * c->patch);
}

/* Kinds of blocks. 1: the last block. */
static const xd_block kinds[2] = {
    { "transformer_blocks.%d", sizeof(blk), blk_weights, forward },
    { "transformer_blocks.%d", sizeof(blk), blk_weights, forward },
};

static const xd_block *block(const void *c, int layer)
{
    return &kinds[is_last(c, layer)];
}

extern const xd_dit xd_dit_mochi;

const xd_dit xd_dit_mochi = {
    .net = { .name = "mochi",
             .classes = { "MochiTransformer3DModel" },
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
    .active = active,
    .active_width = active_width,
    .mod_width = mod_width,
    .cond = cond,
    .embed = embed,
    .head = head,
};
