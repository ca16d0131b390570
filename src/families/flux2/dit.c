/* dit.c - runs the transformer of FLUX.2 (Black Forest Labs 2025) like diffusers'
 * Flux2Transformer2DModel.
 *
 * Double blocks have separate weights for text and image and one joint attention. Single blocks
 * treat text and image as one sequence; one layer computes the inputs of attention and
 * feed-forward. Feed-forwards are SwiGLU and no layer has a bias. One modulation is used by all
 * double blocks, another one by all single blocks; both modulations are computed once per forward
 * pass. Positions enter by RoPE over (image, row, column, text token). If reference images attend
 * only to their own tokens (xd_layout.refs_alone), they have the modulation of timestep 0. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "dit/dual.h"

enum { AXES = 4, T = 0, ROW = 1, COL = 2, TOKEN = 3 };

typedef struct cfg {
    xd_dual_cfg dual;
    int64_t     sinusoids, mlp; /* mlp: hidden width of a feed-forward */
    int         guided;
    double      mlp_ratio, theta;
    float       eps;
} cfg;

#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    XD_DUAL_FIELDS(128, 8, 48, 48, 15360),
    { "timestep_guidance_channels", AT(sinusoids), 'l', 256, NULL },
    { "mlp_ratio", AT(mlp_ratio), 'd', 3, NULL },
    { "rope_theta", AT(theta), 'd', 2000, NULL },
    { "eps", AT(eps), 'f', 1e-6, NULL },
    { "guidance_embeds", AT(guided), 'b', 1, NULL },
    { NULL, 0, 0, 0, NULL },
};

typedef struct side { /* weights of a double block for the text or the image */
    xd_lin    qkv, out;
    xd_lin    up, down; /* `up` computes a and b; the feed-forward is down(silu(a) * b) */
    xd_tensor norm_q, norm_k;
} side;

typedef struct pair { side img, txt; } pair;

typedef struct solo { /* the weights of a single block */
    xd_lin    in;     /* computes q, k, v, and the inputs a, b of the feed-forward */
    xd_lin    out;    /* reads the concatenated outputs of attention and feed-forward */
    xd_tensor norm_q, norm_k;
} solo;

typedef struct glob {
    xd_lin latents, text, mod, out;
    xd_lin mod_img, mod_txt, mod_solo;
    xd_mlp time, guidance;
} glob;

typedef struct local {
    xd_tensor active;   /* [1,D]: silu of the embedding of timestep and guidance */
    xd_tensor img, txt; /* [6,D] F32: modulation of image and text in double blocks */
    xd_tensor solo;     /* [3,D] F32: modulation of single blocks */
    /* `img` and `solo` of the reference images' rows, if these have timestep 0 */
    xd_tensor ref, ref_solo;
    xd_tensor cos, sin; /* [n,head_dim/2] F32: RoPE of this rank's tokens */
} local;

/* ---- configuration ------------------------------------------------------------------------ */

static xd_status check_config(void *c_, xd_err *e)
{
    static const xd_ints  usual = { AXES, { 32, 32, 32, 32 } };
    cfg                  *c = c_;
    xd_dual_cfg          *d = &c->dual;
    const xd_config_range r = { "timestep_guidance_channels", c->sinusoids, 2, 1 << 16 };
    if (xd_dual_check(d, 1, e) != XD_OK || xd_check_ranges(&r, 1, e) != XD_OK)
        return XD_EFORMAT;
    if (!(c->mlp_ratio > 0 && c->mlp_ratio < 64) || !(c->theta > 1 && c->theta < 1e12) ||
        !(c->eps > 0 && c->eps < 1) || c->sinusoids % 2)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: mlp_ratio %g, rope_theta %g, eps %g and "
                       "timestep_guidance_channels %lld cannot be used",
                       c->mlp_ratio, c->theta, (double)c->eps, (long long)c->sinusoids);
    c->mlp = (int64_t)((double)d->dim * c->mlp_ratio);
    if (d->patch != 1 || d->out_ch != d->in_ch)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: patch_size %lld, in_channels %lld and "
                       "out_channels %lld: only patch_size 1 and equal channels are supported",
                       (long long)d->patch, (long long)d->in_ch, (long long)d->out_ch);
    return xd_dual_axes(&d->axes, "axes_dims_rope", &usual, d->head_dim, e);
}

static void info(const void *c_, xd_dit_info *out)
{
    const cfg         *c = c_;
    const xd_dual_cfg *d = &c->dual;
    *out = (xd_dit_info){
        .nlayers = xd_dual_nlayers(d),
        .heads = d->heads,
        .head_dim = (int)d->head_dim,
        .patch = { 1, 1, 1 },
        .dim = d->dim,
        .lat_ch = d->in_ch,
        .sample = { 1, 64, 64 },
        .text_dim = d->joint,
        .guided = c->guided,
        .txt_flows = 1,
        .sites = 1,
        .refs = 1,
        .local_size = sizeof(local),
    };
}

/* ---- weights ------------------------------------------------------------------------------ */

static const struct names {
    const char *qkv[3], *out, *norm_q, *norm_k, *up, *down;
} names_of[2] = {
    { { "attn.to_q", "attn.to_k", "attn.to_v" },
      "attn.to_out.0",
      "attn.norm_q.weight",
      "attn.norm_k.weight",
      "ff.linear_in",
      "ff.linear_out" },
    { { "attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj" },
      "attn.to_add_out",
      "attn.norm_added_q.weight",
      "attn.norm_added_k.weight",
      "ff_context.linear_in",
      "ff_context.linear_out" },
};

static void side_weights(xd_decl *d, const cfg *c, const struct names *n, side *w)
{
    int64_t D = c->dual.dim, F = c->mlp, hd = c->dual.head_dim;
    xd_w_fused(
        d, &w->qkv,
        &(xd_fused_spec){
            .n = 3, .names = n->qkv, .in = D, .out = { D, D, D }, .split = XD_COL, .unit = hd });
    xd_w_vec(d, &w->norm_q, n->norm_q, 1, &hd);
    xd_w_vec(d, &w->norm_k, n->norm_k, 1, &hd);
    xd_w_linear(d, &w->out, n->out,
                &(xd_linear_spec){ .in = D, .out = D, .split = XD_ROW, .unit = hd });
    xd_w_linear(
        d, &w->up, n->up,
        &(xd_linear_spec){ .in = D, .nouts = 2, .outs = (int64_t[]){ F, F }, .split = XD_COL });
    xd_w_linear(d, &w->down, n->down, &(xd_linear_spec){ .in = F, .out = D, .split = XD_ROW });
}

static void pair_weights(xd_decl *d, const void *c, int layer, void *w_)
{
    pair *w = w_;
    (void)layer;
    side_weights(d, c, &names_of[0], &w->img);
    side_weights(d, c, &names_of[1], &w->txt);
}

static void solo_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    const cfg *c = c_;
    solo      *w = w_;
    int64_t    D = c->dual.dim, F = c->mlp, hd = c->dual.head_dim;
    (void)layer;
    xd_w_linear(d, &w->in, "attn.to_qkv_mlp_proj",
                &(xd_linear_spec){ .in = D,
                                   .nouts = 5,
                                   .outs = (int64_t[]){ D, D, D, F, F },
                                   .split = XD_COL,
                                   .unit = hd });
    xd_w_linear(
        d, &w->out, "attn.to_out",
        &(xd_linear_spec){
            .nparts = 2, .parts = (int64_t[]){ D, F }, .out = D, .split = XD_ROW, .unit = hd });
    xd_w_vec(d, &w->norm_q, "attn.norm_q.weight", 1, &hd);
    xd_w_vec(d, &w->norm_k, "attn.norm_k.weight", 1, &hd);
}

static void plain(xd_decl *d, xd_lin *w, const char *name, int64_t in, int64_t out)
{
    xd_w_linear(d, w, name, &(xd_linear_spec){ .in = in, .out = out });
}

static void modulation(xd_decl *d, xd_lin *w, const char *name, int64_t in, int64_t out)
{
    xd_w_linear(d, w, name, &(xd_linear_spec){ .in = in, .out = out, .few = 1 });
}

static void scalar_weights(xd_decl *d, const cfg *c, const char *name, xd_mlp *m)
{
    xd_w_enter(d, "time_guidance_embed.%s", name);
    plain(d, &m->a, "linear_1", c->sinusoids, c->dual.dim);
    plain(d, &m->b, "linear_2", c->dual.dim, c->dual.dim);
    xd_w_leave(d);
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    int64_t    D = c->dual.dim;
    plain(d, &g->latents, "x_embedder", c->dual.in_ch, D);
    plain(d, &g->text, "context_embedder", c->dual.joint, D);
    scalar_weights(d, c, "timestep_embedder", &g->time);
    if (c->guided)
        scalar_weights(d, c, "guidance_embedder", &g->guidance);
    modulation(d, &g->mod_img, "double_stream_modulation_img.linear", D, 6 * D);
    modulation(d, &g->mod_txt, "double_stream_modulation_txt.linear", D, 6 * D);
    modulation(d, &g->mod_solo, "single_stream_modulation.linear", D, 3 * D);
    plain(d, &g->mod, "norm_out.linear", D, 2 * D);
    plain(d, &g->out, "proj_out", D, c->dual.out_ch);
}

/* ---- conditioning ------------------------------------------------------------------------- */

/* Fills the RoPE angles. The position of a text token is its index in the text, on the last axis.
 * The position of an image token is its row and column, with image number 0. The tokens of
 * reference image i (counted from 1) have image number 10 i. */
static void fill_angles(void *ctx, float *buf)
{
    const xd_rope *t = ctx;
    const cfg     *c = t->cfg;
    int64_t        W = t->x->lay->grid[2];
    /* one value per pair of features; a head has at most 512 features */
    double         base[256];
    xd_rope_axes(base, c->theta, &c->dual.axes);
    for (int64_t i = 0, n = xd_n(t->x, XD_TXT); i < n; i++) {
        int64_t pos[AXES] = { [TOKEN] = xd_where(t->x, XD_TXT, i) };
        buf = xd_rope_token(buf, base, &c->dual.axes, pos, t->fn);
    }
    for (int64_t i = 0, n = xd_n(t->x, XD_REF); i < n; i++) {
        int64_t pos[AXES] = { 0 };
        int     ref = xd_ref_at(t->x->lay, xd_where(t->x, XD_REF, i), &pos[ROW], &pos[COL]);
        pos[T] = 10 * (ref + 1);
        buf = xd_rope_token(buf, base, &c->dual.axes, pos, t->fn);
    }
    for (int64_t i = 0, n = xd_n(t->x, XD_IMG); i < n; i++) {
        int64_t at = xd_where(t->x, XD_IMG, i), pos[AXES] = { [ROW] = at / W, [COL] = at % W };
        buf = xd_rope_token(buf, base, &c->dual.axes, pos, t->fn);
    }
}

static xd_tensor embed_scalar(xd_exec *x, const cfg *c, double v, const xd_mlp *m)
{
    return xd_mlp_run(x, xd_time_embed(x, &v, 1, c->sinusoids, 1, 0), m, XD_SILU);
}

static xd_tensor active_of(xd_exec *x, const xd_net *n, const xd_input *in, double time)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    xd_tensor   emb = embed_scalar(x, c, time, &g->time);
    if (c->guided)
        xd_add(x, emb, embed_scalar(x, c, in->guidance * 1000, &g->guidance));
    return xd_gated(x, emb, (xd_tensor){ 0 }, XD_SILU);
}

static void cond(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    local      *l = s->local;
    int64_t     rows = xd_n(x, XD_TXT) + xd_n(x, XD_REF) + xd_n(x, XD_IMG);
    l->active = active_of(x, n, in, in->t);
    if (x->lay->refs_alone && xd_n(x, XD_REF)) {
        xd_tensor still = active_of(x, n, in, 0);
        l->ref = xd_mod_rows(x, still, &g->mod_img, 6);
        l->ref_solo = xd_mod_rows(x, still, &g->mod_solo, 3);
    }
    l->img = xd_mod_rows(x, l->active, &g->mod_img, 6);
    l->txt = xd_mod_rows(x, l->active, &g->mod_txt, 6);
    l->solo = xd_mod_rows(x, l->active, &g->mod_solo, 3);
    l->cos = xd_rope_table(x, rows, c->dual.head_dim / 2, fill_angles, c, cos);
    l->sin = xd_rope_table(x, rows, c->dual.head_dim / 2, fill_angles, c, sin);
}

static void embed(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    xd_dual_embed(x, in, s->h, &g->text, &g->latents);
}

/* ---- running ------------------------------------------------------------------------------ */

/* Normalizes and modulates the rows of h, and returns them in the type that the layer w reads (for
 * a layer with fp8 inputs, fp8 with scales). Rows `at` and `at` + 1 of the modulation `mod` are
 * shift and scale. */
static xd_tensor modulated(xd_exec *x, const cfg *c, xd_tensor h, xd_tensor mod, int at,
                           const xd_lin *w)
{
    xd_norm a = {
        .in = h, .scale = xd_rows(mod, at + 1, 1), .shift = xd_rows(mod, at, 1), .eps = c->eps
    };
    return xd_norm_for(x, &a, w, NULL);
}

/* Computes h += gate * down(silu(a) * b), where a and b are the first and the second half of the
 * columns of up(norm(h)). */
static void feed(xd_exec *x, const cfg *c, xd_tensor h, const side *w, xd_tensor mod)
{
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor y = xd_linear(x, modulated(x, c, h, mod, 3, &w->up), &w->up);
    xd_tensor a = xd_gated_for(x, xd_seg(y, &w->up, 0), xd_seg(y, &w->up, 1), XD_SILU, &w->down);
    xd_linear_add(x, h, xd_rows(mod, 5, 1), a, &w->down);
    xd_arena_rewind(x->tmp, mark);
}

typedef struct group { /* tokens that share weights and modulation: rows [at, at + n) of h */
    const side *w;
    xd_tensor   mod, h;
    int64_t     at, n;
} group;

enum { GROUPS = 3 };

/* Lists the groups of tokens of a block: text, reference images if they have their own modulation,
 * and the other tokens. A single block, with w NULL, has the same modulation for text and image.
 * Returns the number of groups. */
static int groups_of(const xd_exec *x, xd_tensor h, const pair *w, const local *l, group g[GROUPS])
{
    const int64_t ntxt = xd_n(x, XD_TXT), nref = l->ref.nd ? xd_n(x, XD_REF) : 0;
    int64_t       at = 0;
    int           n = 0;
    if (w || nref)
        g[n++] = (group){ w ? &w->txt : NULL, w ? l->txt : l->solo, .n = ntxt };
    if (nref)
        g[n++] = (group){ w ? &w->img : NULL, w ? l->ref : l->ref_solo, .n = nref };
    g[n++] = (group){ w ? &w->img : NULL, w ? l->img : l->solo,
                      .n = h.d[0] - (w || nref ? ntxt : 0) - nref };
    for (int i = 0; i < n; at += g[i++].n) {
        g[i].at = at;
        g[i].h = xd_rows(h, at, g[i].n);
    }
    return n;
}

/* Runs a double block. A block's modulation has six rows: shift, scale and gate of the attention,
 * then shift, scale and gate of the feed-forward. */
static void forward_pair(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const pair  *w = w_;
    const cfg   *c = n->cfg;
    const local *l = s->local;
    group        g[GROUPS];
    const int    count = groups_of(x, s->h, w, l, g);
    xd_tensor    y = xd_new(x, s->h.d[0], w->img.qkv.w.out);
    for (int i = 0; i < count; i++) {
        size_t mark = xd_arena_mark(x->tmp);
        xd_linear_into(x, xd_rows(y, g[i].at, g[i].n),
                       modulated(x, c, g[i].h, g[i].mod, 0, &g[i].w->qkv), &g[i].w->qkv);
        xd_arena_rewind(x->tmp, mark);
    }
    xd_qkv a = xd_qkv_open(x, y, &w->img.qkv, c->dual.head_dim);
    for (int i = 0; i < count; i++)
        xd_qkv_fill(x, &a, y, &w->img.qkv,
                    &(xd_qkv_rows){ .at = g[i].at,
                                    .n = g[i].n,
                                    .norm_q = g[i].w->norm_q,
                                    .norm_k = g[i].w->norm_k,
                                    .cos = l->cos,
                                    .sin = l->sin,
                                    .eps = c->eps });
    xd_tensor o = xd_flat(xd_attn(x, a.q, a.k, a.v, 0));
    for (int i = 0; i < count; i++) {
        xd_linear_add(x, g[i].h, xd_rows(g[i].mod, 2, 1), xd_rows(o, g[i].at, g[i].n),
                      &g[i].w->out);
        feed(x, c, g[i].h, g[i].w, g[i].mod);
    }
}

static void forward_solo(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const solo  *w = w_;
    const cfg   *c = n->cfg;
    const local *l = s->local;
    int64_t      rows = s->h.d[0], D = w->in.seg[0];
    group        g[GROUPS];
    const int    count = groups_of(x, s->h, NULL, l, g);
    xd_tensor    both = xd_new(x, rows, w->out.w.in), y = xd_new(x, rows, w->in.w.out);
    for (int i = 0; i < count; i++) {
        size_t mark = xd_arena_mark(x->tmp);
        xd_linear_into(x, xd_rows(y, g[i].at, g[i].n), modulated(x, c, g[i].h, g[i].mod, 0, &w->in),
                       &w->in);
        xd_arena_rewind(x->tmp, mark);
    }
    xd_gated_into(x, xd_cols(both, D, w->in.seg[3]), xd_seg(y, &w->in, 3), xd_seg(y, &w->in, 4),
                  XD_SILU);
    xd_qkv t = xd_qkv_open(x, y, &w->in, c->dual.head_dim);
    xd_qkv_fill(x, &t, y, &w->in,
                &(xd_qkv_rows){ .n = rows,
                                .norm_q = w->norm_q,
                                .norm_k = w->norm_k,
                                .cos = l->cos,
                                .sin = l->sin,
                                .eps = c->eps });
    xd_attn_into(x, xd_heads(xd_cols(both, 0, D), c->dual.head_dim), t.q, t.k, t.v, 0);
    for (int i = 0; i < count; i++)
        xd_linear_add(x, g[i].h, xd_rows(g[i].mod, 2, 1), xd_rows(both, g[i].at, g[i].n), &w->out);
}

/* Computes the network's output. The final modulation has two rows: scale, then shift. */
static xd_tensor head(xd_exec *x, const xd_net *n, xd_state *s)
{
    const glob  *g = n->glob;
    const cfg   *c = n->cfg;
    const local *l = s->local;
    int64_t      nimg = xd_n(x, XD_IMG);
    xd_tensor    out = xd_new_f32(x, nimg, g->out.w.out);
    size_t       mark = xd_arena_mark(x->tmp);
    xd_tensor    mod = xd_mod_rows(x, l->active, &g->mod, 2);
    xd_tensor    h = xd_rows(s->h, s->h.d[0] - nimg, nimg);
    xd_linear_into(x, out, xd_norm_mod(x, h, xd_rows(mod, 0, 1), xd_rows(mod, 1, 1), c->eps),
                   &g->out);
    xd_arena_rewind(x->tmp, mark);
    return out;
}

static const xd_block kind_pair = { "transformer_blocks.%d", sizeof(pair), pair_weights,
                                    forward_pair };
static const xd_block kind_solo = { "single_transformer_blocks.%d", sizeof(solo), solo_weights,
                                    forward_solo };

static const xd_block *block(const void *c, int layer)
{
    return layer < ((const xd_dual_cfg *)c)->ndouble ? &kind_pair : &kind_solo;
}

extern const xd_dit xd_dit_flux2;

const xd_dit xd_dit_flux2 = {
    .net = { .name = "flux2",
             .classes = { "Flux2Transformer2DModel" },
             .fields = fields,
             .cfg_size = sizeof(cfg),
             .glob_size = sizeof(glob),
             .check = check_config,
             .nlayers = xd_dual_nlayers,
             .block = block,
             .weights = weights },
    .info = info,
    .cond = cond,
    .embed = embed,
    .head = head,
};
