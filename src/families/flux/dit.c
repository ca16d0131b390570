/* dit.c - FLUX.1 (Black Forest Labs 2024), as diffusers' FluxTransformer2DModel.
 *
 * Double blocks have separate weights for text and image and one joint attention. Single blocks
 * treat both as one sequence and compute attention and feed-forward in parallel. Positions enter
 * by RoPE over (0, row, column) of image tokens and (1, row, column) of a reference image's (FLUX.1
 * Kontext), which are treated like the image's. Text tokens have position 0, where RoPE is the
 * identity. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "dit/layers.h"

enum { PACK = 2, AXES = 3 };    /* latent cells per side of a token (packed)                   */
static const double theta = 10000.0;
static const float  eps = 1e-6f;

typedef struct cfg {
    int64_t head_dim, in_ch, out_ch, joint, pooled, patch;
    int     heads, ndouble, nsingle, guided;
    xd_ints axes;               /* head features rotated by each position axis                 */
    int64_t dim;                /* D = heads * head_dim                                        */
} cfg;

#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    { "patch_size", AT(patch), 'l', 1, NULL },
    { "in_channels", AT(in_ch), 'l', 64, NULL },
    { "out_channels", AT(out_ch), 'l', 0, NULL },
    { "num_layers", AT(ndouble), 'i', 19, NULL },
    { "num_single_layers", AT(nsingle), 'i', 38, NULL },
    { "attention_head_dim", AT(head_dim), 'l', 128, NULL },
    { "num_attention_heads", AT(heads), 'i', 24, NULL },
    { "joint_attention_dim", AT(joint), 'l', 4096, NULL },
    { "pooled_projection_dim", AT(pooled), 'l', 768, NULL },
    { "guidance_embeds", AT(guided), 'b', 0, NULL },
    { "axes_dims_rope", AT(axes), 'L', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

typedef struct pair { xd_adaln img, txt; } pair;

typedef struct solo {           /* a single block                                              */
    xd_lin    mod;              /* [3D, D]                                                     */
    xd_lin    qkv, up, out;     /* `out` reads attention and feed-forward outputs, concatenated */
    xd_tensor norm_q, norm_k;
} solo;

typedef struct glob {
    xd_lin latents, text, mod, out;
    xd_mlp time, guidance, pooled;
} glob;

typedef struct local {
    xd_tensor active;           /* [1,D]: silu of the embedding of time, guidance, text        */
    xd_tensor cos, sin;         /* [n, head_dim/2] F32 of my tokens                            */
} local;

/* ---- configuration ------------------------------------------------------------------------ */

static xd_status check_axes(cfg *c, xd_err *e)
{
    static const int64_t usual[AXES] = { 16, 56, 56 };
    int64_t              sum = 0;
    if (c->axes.n == 0) {
        c->axes.n = AXES;
        memcpy(c->axes.v, usual, sizeof usual);
    }
    if (c->axes.n != AXES)
        return xd_fail(e, XD_EUNSUPPORTED, "transformer: axes_dims_rope has %d axes, not %d",
                       c->axes.n, AXES);
    for (int i = 0; i < AXES; i++) {
        if (c->axes.v[i] < 0 || c->axes.v[i] % 2)
            return xd_fail(e, XD_EFORMAT, "transformer: axes_dims_rope holds %lld, which is not "
                           "even", (long long)c->axes.v[i]);
        sum += c->axes.v[i];
    }
    if (sum != c->head_dim)
        return xd_fail(e, XD_EFORMAT, "transformer: axes_dims_rope adds up to %lld, not to "
                       "attention_head_dim %lld", (long long)sum, (long long)c->head_dim);
    return XD_OK;
}

static xd_status check_config(void *c_, xd_err *e)
{
    cfg *c = c_;
    const xd_config_range r[] = {
        { "num_attention_heads", c->heads, 1, 4096 },
        { "attention_head_dim", c->head_dim, 8, 512 },
        { "in_channels", c->in_ch, PACK * PACK, 65536 },
        { "num_layers", c->ndouble, 0, 10000 },
        { "num_single_layers", c->nsingle, 0, 10000 },
        { "joint_attention_dim", c->joint, 1, 1 << 24 },
        { "pooled_projection_dim", c->pooled, 1, 1 << 24 },
    };
    if (xd_check_ranges(r, sizeof r / sizeof r[0], e) != XD_OK)
        return XD_EFORMAT;
    c->out_ch = c->out_ch ? c->out_ch : c->in_ch;
    c->dim = c->heads * c->head_dim;
    if (c->patch != 1 || c->in_ch % (PACK * PACK) || c->out_ch != c->in_ch)
        return xd_fail(e, XD_EUNSUPPORTED, "transformer: patch_size %lld, in_channels %lld and "
                       "out_channels %lld: only patch_size 1 and equal channels that divide by %d "
                       "are built", (long long)c->patch, (long long)c->in_ch, (long long)c->out_ch,
                       PACK * PACK);
    return check_axes(c, e);
}

static void info(const void *c_, xd_dit_info *out)
{
    const cfg *c = c_;
    *out = (xd_dit_info){
        .nlayers = c->ndouble + c->nsingle, .heads = c->heads, .head_dim = (int)c->head_dim,
        .patch = { 1, PACK, PACK }, .dim = c->dim, .lat_ch = c->in_ch / (PACK * PACK),
        .sample = { 1, 128, 128 }, .text_dim = c->joint, .pooled_dim = c->pooled,
        .guided = c->guided, .txt_flows = 1, .sites = 1, .refs = 1, .local_size = sizeof(local),
    };
}

static int nlayers(const void *c_)
{
    const cfg *c = c_;
    return c->ndouble + c->nsingle;
}

/* ---- weights ------------------------------------------------------------------------------ */

#define L1(a) 1, (int64_t[]){ a }

static void pair_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    const cfg   *c = c_;
    xd_adaln_form f = { .dim = c->dim, .head_dim = c->head_dim, .nmod = 6, .qk_norm = 1 };
    pair        *w = w_;
    (void)layer;
    xd_adaln_weights(d, &f, 0, &w->img);
    xd_adaln_weights(d, &f, 1, &w->txt);
}

static void solo_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    static const char *const qkv[] = { "attn.to_q", "attn.to_k", "attn.to_v" };
    const cfg *c = c_;
    solo      *w = w_;
    int64_t    D = c->dim, hd = c->head_dim;
    (void)layer;
    xd_w_linear(d, &w->mod, "norm.linear", &(xd_linear_spec){ .in = D, .out = 3 * D, .bias = 1 });
    xd_w_fused(d, &w->qkv, &(xd_fused_spec){ .n = 3, .names = qkv, .in = D, .out = { D, D, D },
                                             .split = XD_COL, .unit = hd, .bias = 1 });
    xd_w_linear(d, &w->up, "proj_mlp", &(xd_linear_spec){ .in = D, .out = 4 * D, .split = XD_COL,
                                                          .unit = hd, .bias = 1 });
    xd_w_linear(d, &w->out, "proj_out",
                &(xd_linear_spec){ .nparts = 2, .parts = (int64_t[]){ D, 4 * D }, .out = D,
                                   .split = XD_ROW, .unit = hd, .bias = 1 });
    xd_w_vec(d, &w->norm_q, "attn.norm_q.weight", L1(hd));
    xd_w_vec(d, &w->norm_k, "attn.norm_k.weight", L1(hd));
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    int64_t    D = c->dim;
    xd_w_linear(d, &g->latents, "x_embedder",
                &(xd_linear_spec){ .in = c->in_ch, .out = D, .bias = 1 });
    xd_w_linear(d, &g->text, "context_embedder",
                &(xd_linear_spec){ .in = c->joint, .out = D, .bias = 1 });
    xd_mlp_weights(d, "time_text_embed.timestep_embedder", &g->time, XD_SINUSOIDS, D, D);
    if (c->guided)
        xd_mlp_weights(d, "time_text_embed.guidance_embedder", &g->guidance, XD_SINUSOIDS, D, D);
    xd_mlp_weights(d, "time_text_embed.text_embedder", &g->pooled, c->pooled, D, D);
    xd_w_linear(d, &g->mod, "norm_out.linear",
                &(xd_linear_spec){ .in = D, .out = 2 * D, .bias = 1 });
    xd_w_linear(d, &g->out, "proj_out", &(xd_linear_spec){ .in = D, .out = c->out_ch, .bias = 1 });
}

/* ---- conditioning ------------------------------------------------------------------------- */

/* Rows of one stream; returns the address behind them. */
static float *fill_stream(const xd_rope *t, xd_stream_id stream, const double *base, float *row)
{
    const cfg *c = t->cfg;
    int64_t    W = t->x->lay->grid[2], n = xd_n(t->x, stream);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = xd_where(t->x, stream, i), pos[AXES] = { 0, at / W, at % W };
        if (stream == XD_REF)
            pos[0] = 1 + xd_ref_at(t->x->lay, at, &pos[1], &pos[2]);
        row = xd_rope_token(row, base, &c->axes, pos, t->fn);
    }
    return row;
}

/* Text rows come first, at position 0. */
static void fill_angles(void *ctx, float *buf)
{
    const xd_rope *t = ctx;
    const cfg     *c = t->cfg;
    double         base[256];   /* pairs of a head of width 512                                */
    xd_rope_axes(base, theta, &c->axes);
    for (int64_t n = xd_n(t->x, XD_TXT) * (c->head_dim / 2); n > 0; n--)
        *buf++ = (float)t->fn(0);
    buf = fill_stream(t, XD_REF, base, buf);
    fill_stream(t, XD_IMG, base, buf);
}

/* Rows that this rank holds of a reference image and of the image. */
static int64_t image_rows(const xd_exec *x)
{
    return xd_n(x, XD_REF) + xd_n(x, XD_IMG);
}

static void cond(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    local      *l = s->local;
    xd_tensor   emb = xd_mlp_timesteps(x, &in->t, 1, &g->time);
    if (c->guided) {
        double scale = in->guidance * 1000;
        xd_add(x, emb, xd_mlp_timesteps(x, &scale, 1, &g->guidance));
    }
    xd_add(x, emb, xd_mlp_run(x, in->cond->pooled, &g->pooled, XD_SILU));
    l->active = xd_gated(x, emb, (xd_tensor){ 0 }, XD_SILU);
    l->cos = xd_rope_table(x, xd_n(x, XD_TXT) + image_rows(x), c->head_dim / 2, fill_angles, c,
                           cos);
    l->sin = xd_rope_table(x, xd_n(x, XD_TXT) + image_rows(x), c->head_dim / 2, fill_angles, c,
                           sin);
}

static void embed(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    int64_t     ntxt = xd_n(x, XD_TXT), nref = xd_n(x, XD_REF), nimg = xd_n(x, XD_IMG);
    if (!xd_check(x, in->lat.d[0] == nimg && in->txt.d[0] == ntxt && in->ref.d[0] == nref &&
                  s->h.d[0] == nref + nimg + ntxt,
                  "%lld image, %lld reference and %lld text tokens came with %lld rows of state",
                  (long long)nimg, (long long)nref, (long long)ntxt, (long long)s->h.d[0]))
        return;
    size_t mark = xd_arena_mark(x->tmp);
    if (ntxt)
        xd_linear_into(x, xd_rows(s->h, 0, ntxt), in->txt, &g->text);
    if (nref)
        xd_linear_into(x, xd_rows(s->h, ntxt, nref), in->ref, &g->latents);
    xd_linear_into(x, xd_rows(s->h, ntxt + nref, nimg), in->lat, &g->latents);
    xd_arena_rewind(x->tmp, mark);
}

/* ---- running ------------------------------------------------------------------------------ */

/* Rows of the modulation: shift, scale, gate of attention, then of the feed-forward. */
static void forward_pair(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const pair  *w = w_;
    const cfg   *c = n->cfg;
    const local *l = s->local;
    const xd_adaln *sides[2] = { &w->txt, &w->img };
    int64_t      rows[2] = { xd_n(x, XD_TXT), image_rows(x) }, at[2] = { 0, rows[0] };
    xd_tensor    h[2], mod[2], y = xd_new(x, rows[0] + rows[1], w->img.qkv.w.out);
    for (int i = 0; i < 2; i++) {
        size_t mark;
        h[i] = xd_rows(s->h, at[i], rows[i]);
        mod[i] = xd_mod_rows(x, l->active, &sides[i]->mod, 6);
        mark = xd_arena_mark(x->tmp);
        xd_linear_into(x, xd_rows(y, at[i], rows[i]),
                       xd_norm_mod(x, h[i], xd_rows(mod[i], 1, 1), xd_rows(mod[i], 0, 1), eps),
                       &sides[i]->qkv);
        xd_arena_rewind(x->tmp, mark);
    }
    xd_qkv a = xd_qkv_open(x, y, &w->img.qkv, c->head_dim);
    for (int i = 0; i < 2; i++)
        xd_qkv_fill(x, &a, y, &w->img.qkv, &(xd_qkv_rows){ .at = at[i], .n = rows[i],
                                                           .norm_q = sides[i]->norm_q,
                                                           .norm_k = sides[i]->norm_k,
                                                           .cos = l->cos, .sin = l->sin });
    xd_tensor o = xd_flat(xd_attn(x, a.q, a.k, a.v, 0));
    for (int i = 0; i < 2; i++) {
        xd_linear_add(x, h[i], xd_rows(mod[i], 2, 1), xd_rows(o, at[i], rows[i]), &sides[i]->out);
        xd_adaln_feed(x, h[i], sides[i], mod[i]);
    }
}

static void forward_solo(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const solo  *w = w_;
    const cfg   *c = n->cfg;
    const local *l = s->local;
    int64_t      rows = s->h.d[0], D = w->out.w.in - w->up.w.out;
    xd_tensor    mod = xd_mod_rows(x, l->active, &w->mod, 3);
    xd_tensor    both = xd_new(x, rows, w->out.w.in);
    xd_tensor    a = xd_norm_mod(x, s->h, xd_rows(mod, 1, 1), xd_rows(mod, 0, 1), eps);
    xd_linear_act_into(x, xd_cols(both, D, w->up.w.out), a, &w->up, XD_GELU_TANH);
    xd_tensor y = xd_linear(x, a, &w->qkv);
    xd_qkv    t = xd_qkv_open(x, y, &w->qkv, c->head_dim);
    xd_qkv_fill(x, &t, y, &w->qkv, &(xd_qkv_rows){ .n = rows, .norm_q = w->norm_q,
                                                   .norm_k = w->norm_k, .cos = l->cos,
                                                   .sin = l->sin });
    xd_attn_into(x, xd_heads(xd_cols(both, 0, D), c->head_dim), t.q, t.k, t.v, 0);
    xd_linear_add(x, s->h, xd_rows(mod, 2, 1), both, &w->out);
}

/* Rows of the final modulation: scale, then shift. */
static xd_tensor head(xd_exec *x, const xd_net *n, xd_state *s)
{
    const glob  *g = n->glob;
    const local *l = s->local;
    int64_t      first = xd_n(x, XD_TXT) + xd_n(x, XD_REF), nimg = xd_n(x, XD_IMG);
    xd_tensor    out = xd_new_f32(x, nimg, g->out.w.out);
    size_t       mark = xd_arena_mark(x->tmp);
    xd_tensor    mod = xd_mod_rows(x, l->active, &g->mod, 2);
    xd_tensor    h = xd_rows(s->h, first, nimg);
    xd_linear_into(x, out, xd_norm_mod(x, h, xd_rows(mod, 0, 1), xd_rows(mod, 1, 1), eps), &g->out);
    xd_arena_rewind(x->tmp, mark);
    return out;
}

static const xd_block kind_pair = { "transformer_blocks.%d", sizeof(pair), pair_weights,
                                    forward_pair };
static const xd_block kind_solo = { "single_transformer_blocks.%d", sizeof(solo), solo_weights,
                                    forward_solo };

static const xd_block *block(const void *c, int layer)
{
    return layer < ((const cfg *)c)->ndouble ? &kind_pair : &kind_solo;
}

extern const xd_dit xd_dit_flux;
const xd_dit xd_dit_flux = {
    .net = { .name = "flux",
             .classes = { "FluxTransformer2DModel" },
             .fields = fields,
             .cfg_size = sizeof(cfg),
             .glob_size = sizeof(glob),
             .check = check_config,
             .nlayers = nlayers,
             .block = block,
             .weights = weights },
    .info = info,
    .cond = cond,
    .embed = embed,
    .head = head,
};
