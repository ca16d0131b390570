/* dit.c - runs the transformer of Lumina-Image 2.0 (Qin et al. 2025, arXiv:2503.21758) like
 * diffusers' Lumina2Transformer2DModel.
 *
 * The network has three lists of blocks, all of the same kind. The blocks of the context refiner
 * process only the text and do not read the timestep. The blocks of the noise refiner process only
 * the image. The blocks of the main list process text and image as one sequence. Several heads of
 * queries share one head of keys and values. */
#include <math.h>
#include <stddef.h>

#include "dit/refined.h"

enum { PATCH = XD_REFINED_PATCH, AXES = XD_REFINED_AXES, EMBED = 1024 };

typedef struct cfg {
    int64_t dim, in_ch, out_ch, patch, text, sample, multiple;
    int     heads, kv_heads, nlayers, nrefiners;
    float   eps;
    double  wider; /* factor of the width of the feed-forward; 0: none */
    /* For each position axis: axes is the number of rotated head features, lens the number of
     * positions. */
    xd_ints axes, lens;
    int64_t head_dim, ff;
} cfg;

#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    { "hidden_size", AT(dim), 'l', 2304, NULL },
    { "in_channels", AT(in_ch), 'l', 16, NULL },
    { "out_channels", AT(out_ch), 'l', 0, NULL },
    { "patch_size", AT(patch), 'l', 2, NULL },
    { "cap_feat_dim", AT(text), 'l', 1024, NULL },
    { "sample_size", AT(sample), 'l', 128, NULL },
    { "multiple_of", AT(multiple), 'l', 256, NULL },
    { "ffn_dim_multiplier", AT(wider), 'd', 0, NULL },
    { "num_attention_heads", AT(heads), 'i', 24, NULL },
    { "num_kv_heads", AT(kv_heads), 'i', 8, NULL },
    { "num_layers", AT(nlayers), 'i', 26, NULL },
    { "num_refiner_layers", AT(nrefiners), 'i', 2, NULL },
    { "norm_eps", AT(eps), 'f', 1e-5, NULL },
    { "axes_dim_rope", AT(axes), 'L', 0, NULL },
    { "axes_lens", AT(lens), 'L', 0, NULL },
    { "scaling_factor", 0, '-', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

typedef struct glob {
    xd_lin    latents, text, mod, out;
    xd_mlp    time;
    xd_tensor text_norm; /* [text]: norm of the text rows */
} glob;

typedef xd_refined_in local;

/* ---- configuration ------------------------------------------------------------------------ */

static xd_status check_axes(cfg *c, xd_err *e)
{
    static const int64_t dims[] = { 32, 32, 32 }, lens[] = { 300, 512, 512 };
    return xd_refined_check_axes(
        &c->axes, &c->lens, &(xd_refined_axes){ "axes_dim_rope", dims, lens, 2, c->head_dim }, e);
}

/* Checks the heads and the feed-forward, and computes their widths. */
static xd_status check_widths(cfg *c, xd_err *e)
{
    c->head_dim = c->dim / c->heads;
    if (c->dim % c->heads || c->head_dim > 512)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: hidden_size %lld is not num_attention_heads %d heads of at "
                       "most 512 features",
                       (long long)c->dim, c->heads);
    if (c->heads % c->kv_heads)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: num_attention_heads %d is not a multiple of num_kv_heads %d",
                       c->heads, c->kv_heads);
    double ff = 4 * (double)c->dim * (c->wider > 0 ? c->wider : 1);
    if (c->wider < 0 || !(ff >= 1 && ff < (double)(1 << 26)))
        return xd_fail(e, XD_EFORMAT, "transformer: ffn_dim_multiplier is %g", c->wider);
    c->ff = ((int64_t)ff + c->multiple - 1) / c->multiple * c->multiple;
    return XD_OK;
}

static xd_status check_config(void *c_, xd_err *e)
{
    cfg *c = c_;
    if (!c->kv_heads)
        c->kv_heads = c->heads;
    if (!c->out_ch)
        c->out_ch = c->in_ch;
    const xd_config_range r[] = {
        { "hidden_size", c->dim, 2, 1 << 20 },
        { "in_channels", c->in_ch, 1, 65536 },
        { "cap_feat_dim", c->text, 1, 1 << 24 },
        { "sample_size", c->sample, 1, 1 << 20 },
        { "multiple_of", c->multiple, 1, 1 << 20 },
        { "num_attention_heads", c->heads, 1, 4096 },
        { "num_kv_heads", c->kv_heads, 1, 4096 },
        { "num_layers", c->nlayers, 0, 10000 },
        { "num_refiner_layers", c->nrefiners, 0, 10000 },
    };
    if (xd_check_ranges(r, sizeof r / sizeof *r, e) != XD_OK)
        return XD_EFORMAT;
    if (c->patch != PATCH)
        return xd_fail(e, XD_EUNSUPPORTED, "transformer: patch_size %lld is not %d",
                       (long long)c->patch, PATCH);
    if (c->out_ch != c->in_ch)
        return xd_fail(e, XD_EUNSUPPORTED, "transformer: out_channels %lld is not in_channels %lld",
                       (long long)c->out_ch, (long long)c->in_ch);
    xd_status s = check_widths(c, e);
    return s == XD_OK ? check_axes(c, e) : s;
}

static int nlayers(const void *c_)
{
    const cfg *c = c_;
    return 2 * c->nrefiners + c->nlayers;
}

static void info(const void *c_, xd_dit_info *out)
{
    const cfg *c = c_;
    *out = (xd_dit_info){
        .nlayers = nlayers(c),
        .heads = c->heads,
        .key_heads = c->kv_heads,
        .head_dim = (int)c->head_dim,
        .patch = { 1, PATCH, PATCH },
        .dim = c->dim,
        .lat_ch = c->in_ch,
        .sample = { 1, c->sample, c->sample },
        .text_dim = c->text,
        .txt_flows = 1,
        .sites = 1,
        .local_size = sizeof(local),
        .lead = 2 * c->nrefiners,
        .most = { 1, c->lens.v[1] * PATCH, c->lens.v[2] * PATCH },
        .text_most = c->lens.v[0] - 1, /* the position of the image follows those of the text */
    };
}

/* ---- weights ------------------------------------------------------------------------------ */

static int64_t embed_width(const cfg *c)
{
    return c->dim < EMBED ? c->dim : EMBED;
}

static void attn_weights(xd_decl *d, const cfg *c, xd_refined *w)
{
    static const char *const qkv[] = { "to_q", "to_k", "to_v" };
    int64_t D = c->dim, hd = c->head_dim, group = D / c->kv_heads, kv = c->kv_heads * hd;
    xd_w_enter(d, "attn");
    xd_w_fused(d, &w->qkv,
               &(xd_fused_spec){ .n = 3,
                                 .names = qkv,
                                 .in = D,
                                 .out = { D, kv, kv },
                                 .split = XD_COL,
                                 .units = (int64_t[]){ group, hd, hd } });
    xd_w_linear(d, &w->out, "to_out.0",
                &(xd_linear_spec){ .in = D, .out = D, .split = XD_ROW, .unit = group });
    xd_w_vec(d, &w->norm_q, "norm_q.weight", 1, &hd);
    xd_w_vec(d, &w->norm_k, "norm_k.weight", 1, &hd);
    xd_w_leave(d);
}

/* Declares the weights of a block. `first` is the name of the norm before the attention. */
static void block_weights(xd_decl *d, const cfg *c, const char *first, xd_refined *w)
{
    static const char *const up[] = { "linear_1", "linear_3" };
    const char *const norms[] = { first, "norm2.weight", "ffn_norm1.weight", "ffn_norm2.weight" };
    int64_t           D = c->dim, F = c->ff;
    attn_weights(d, c, w);
    xd_w_enter(d, "feed_forward");
    xd_w_fused(d, &w->up,
               &(xd_fused_spec){ .n = 2, .names = up, .in = D, .out = { F, F }, .split = XD_COL });
    xd_w_linear(d, &w->down, "linear_2", &(xd_linear_spec){ .in = F, .out = D, .split = XD_ROW });
    xd_w_leave(d);
    for (int i = 0; i < 4; i++)
        xd_w_vec(d, &w->norm[i], norms[i], 1, &D);
}

static void plain_weights(xd_decl *d, const void *c, int layer, void *w)
{
    (void)layer;
    block_weights(d, c, "norm1.weight", w);
}

static void timed_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    const cfg  *c = c_;
    xd_refined *w = w_;
    (void)layer;
    block_weights(d, c, "norm1.norm.weight", w);
    xd_w_linear(d, &w->mod, "norm1.linear",
                &(xd_linear_spec){ .in = embed_width(c), .out = 4 * c->dim, .bias = 1, .few = 1 });
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    int64_t    D = c->dim, E = embed_width(c), F = PATCH * PATCH * c->in_ch;
    xd_w_linear(d, &g->latents, "x_embedder", &(xd_linear_spec){ .in = F, .out = D, .bias = 1 });
    xd_w_enter(d, "time_caption_embed");
    xd_mlp_weights(d, "timestep_embedder", &g->time, XD_SINUSOIDS, E, E);
    xd_w_vec(d, &g->text_norm, "caption_embedder.0.weight", 1, &c->text);
    xd_w_linear(d, &g->text, "caption_embedder.1",
                &(xd_linear_spec){ .in = c->text, .out = D, .bias = 1 });
    xd_w_leave(d);
    xd_w_linear(d, &g->mod, "norm_out.linear_1", &(xd_linear_spec){ .in = E, .out = D, .bias = 1 });
    xd_w_linear(d, &g->out, "norm_out.linear_2", &(xd_linear_spec){ .in = D, .out = F, .bias = 1 });
}

/* ---- running ------------------------------------------------------------------------------ */

/* Fills the RoPE angles of the text rows, then of the image tokens. A text row has its index as
 * the position on the first axis; image tokens have the number of text rows. */
static void fill_angles(void *ctx, float *buf)
{
    const xd_rope *t = ctx;
    const cfg     *c = t->cfg;
    const xd_exec *x = t->x;
    int64_t        W = x->lay->grid[2], behind = x->lay->len[XD_TXT];
    double         base[256]; /* enough for heads of up to 512 features */
    xd_rope_axes(base, 10000, &c->axes);
    for (int64_t i = 0; i < xd_n(x, XD_TXT); i++)
        buf = xd_rope_token(buf, base, &c->axes, (int64_t[AXES]){ xd_where(x, XD_TXT, i), 0, 0 },
                            t->fn);
    for (int64_t i = 0; i < xd_n(x, XD_IMG); i++) {
        int64_t at = xd_where(x, XD_IMG, i);
        buf = xd_rope_token(buf, base, &c->axes, (int64_t[AXES]){ behind, at / W, at % W }, t->fn);
    }
}

/* Embeds the timestep. The model's time runs from 0 (noise) to 1; as in diffusers, timesteps are
 * rounded to f32. */
static void cond(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    local      *l = s->local;
    double      t = (double)(1.0f - (float)in->t / 1000.0f);
    int64_t     rows = xd_n(x, XD_TXT) + xd_n(x, XD_IMG), half = c->head_dim / 2;
    l->emb = xd_gated(x, xd_mlp_timesteps(x, &t, 1, &g->time), (xd_tensor){ 0 }, XD_SILU);
    l->head_dim = c->head_dim, l->eps = c->eps;
    l->cos = xd_rope_table_of(x, in->cond, rows, half, fill_angles, c, cos);
    l->sin = xd_rope_table_of(x, in->cond, rows, half, fill_angles, c, sin);
}

static void embed(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    int64_t     ntxt = xd_n(x, XD_TXT), nimg = xd_n(x, XD_IMG);
    if (!xd_check(x, in->lat.d[0] == nimg && in->txt.d[0] == ntxt && s->h.d[0] == ntxt + nimg,
                  "%lld image and %lld text tokens do not match %lld rows of state",
                  (long long)nimg, (long long)ntxt, (long long)s->h.d[0]))
        return;
    size_t mark = xd_arena_mark(x->tmp);
    if (ntxt)
        xd_linear_into(x, xd_rows(s->h, 0, ntxt), xd_rms_norm(x, in->txt, g->text_norm, c->eps),
                       &g->text);
    xd_refined_embed(x, in->lat, xd_rows(s->h, ntxt, nimg), &g->latents);
    xd_arena_rewind(x->tmp, mark);
}

static xd_tensor head(xd_exec *x, const xd_net *n, xd_state *s)
{
    const glob  *g = n->glob;
    const cfg   *c = n->cfg;
    const local *l = s->local;
    return xd_refined_head(x, s->h, l->emb, &(xd_refined_out){ &g->mod, &g->out }, c->in_ch);
}

static const xd_block kind_text = { "context_refiner.%d", sizeof(xd_refined), plain_weights,
                                    xd_refined_text };
static const xd_block kind_image = { "noise_refiner.%d", sizeof(xd_refined), timed_weights,
                                     xd_refined_image };
static const xd_block kind_all = { "layers.%d", sizeof(xd_refined), timed_weights, xd_refined_all };

static const xd_block *block(const void *c_, int layer)
{
    const cfg *c = c_;
    return layer < c->nrefiners ? &kind_text : layer < 2 * c->nrefiners ? &kind_image : &kind_all;
}

extern const xd_dit xd_dit_lumina2;

const xd_dit xd_dit_lumina2 = {
    .net = { .name = "lumina2",
             .classes = { "Lumina2Transformer2DModel" },
             .unread = { "norm_final.weight" }, /* only in files of the original code */
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
