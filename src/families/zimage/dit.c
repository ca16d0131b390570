/* dit.c - runs the transformer of Z-Image (Cai et al. 2025, arXiv:2511.22699) like diffusers'
 * ZImageTransformer2DModel.
 *
 * The network has three lists of blocks, all of the same kind. The blocks of the noise refiner
 * process only the image. The blocks of the context refiner process only the text and do not read
 * the timestep. The blocks of the main list process text and image as one sequence. A block
 * normalizes before and after its attention and its feed-forward. The rows of the text and of the
 * image are each padded to a multiple of 32 with copies of a learned row; blocks treat padding rows
 * like other tokens. The padding rows of the text continue the text's positions; the padding rows
 * of the image (XD_PAD) have position 0. */
#include <math.h>
#include <stddef.h>

#include "dit/refined.h"

enum {
    PATCH = XD_REFINED_PATCH,
    AXES = XD_REFINED_AXES,
    EMBED = 256,
    TIME_MID = 1024,
    MULTIPLE = 32
};

typedef struct cfg {
    int64_t dim, in_ch, text, siglip;
    int     heads, kv_heads, nlayers, nrefiners, qk_norm;
    float   eps;
    double  theta, t_scale;
    /* For each position axis: axes is the number of rotated head features, lens the number of
     * positions. */
    xd_ints axes, lens;
    xd_ints patches, frames;
    int64_t head_dim;
} cfg;

#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    { "dim", AT(dim), 'l', 3840, NULL },
    { "in_channels", AT(in_ch), 'l', 16, NULL },
    { "cap_feat_dim", AT(text), 'l', 2560, NULL },
    { "siglip_feat_dim", AT(siglip), 'l', 0, NULL },
    { "n_heads", AT(heads), 'i', 30, NULL },
    { "n_kv_heads", AT(kv_heads), 'i', 30, NULL },
    { "n_layers", AT(nlayers), 'i', 30, NULL },
    { "n_refiner_layers", AT(nrefiners), 'i', 2, NULL },
    { "qk_norm", AT(qk_norm), 'b', 1, NULL },
    { "norm_eps", AT(eps), 'f', 1e-5, NULL },
    { "rope_theta", AT(theta), 'd', 256, NULL },
    { "t_scale", AT(t_scale), 'd', 1000, NULL },
    { "axes_dims", AT(axes), 'L', 0, NULL },
    { "axes_lens", AT(lens), 'L', 0, NULL },
    { "all_patch_size", AT(patches), 'L', 0, NULL },
    { "all_f_patch_size", AT(frames), 'L', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

typedef struct glob {
    xd_lin    latents, text, mod, out;
    xd_mlp    time;
    xd_tensor text_norm;           /* [text]: norm of the text rows */
    xd_tensor image_pad, text_pad; /* [1,D]: learned padding rows */
} glob;

typedef xd_refined_in local;

/* ---- configuration ------------------------------------------------------------------------ */

static xd_status check_axes(cfg *c, xd_err *e)
{
    static const int64_t dims[] = { 32, 48, 48 }, lens[] = { 1024, 512, 512 };
    return xd_refined_check_axes(
        &c->axes, &c->lens,
        &(xd_refined_axes){ "axes_dims", dims, lens, MULTIPLE + 2, c->head_dim }, e);
}

static xd_status check_built(cfg *c, xd_err *e)
{
    static const int64_t two = PATCH, one = 1;
    xd_refined_set_list(&c->patches, 1, &two);
    xd_refined_set_list(&c->frames, 1, &one);
    if (c->patches.n != 1 || c->patches.v[0] != PATCH || c->frames.n != 1 || c->frames.v[0] != 1)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: all_patch_size and all_f_patch_size are "
                       "not [2] and [1], the only supported values");
    if (c->siglip)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: siglip_feat_dim is %lld: the model that "
                       "reads images is not supported",
                       (long long)c->siglip);
    if (c->kv_heads != c->heads)
        return xd_fail(e, XD_EUNSUPPORTED, "transformer: n_kv_heads %d is not n_heads %d",
                       c->kv_heads, c->heads);
    return XD_OK;
}

static xd_status check_config(void *c_, xd_err *e)
{
    cfg                  *c = c_;
    const xd_config_range r[] = {
        { "dim", c->dim, 2, 1 << 20 },           { "in_channels", c->in_ch, 1, 65536 },
        { "cap_feat_dim", c->text, 1, 1 << 24 }, { "n_heads", c->heads, 1, 4096 },
        { "n_layers", c->nlayers, 0, 10000 },    { "n_refiner_layers", c->nrefiners, 0, 10000 },
    };
    if (xd_check_ranges(r, sizeof r / sizeof *r, e) != XD_OK)
        return XD_EFORMAT;
    c->head_dim = c->dim / c->heads;
    if (c->dim % c->heads || c->head_dim > 512)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: dim %lld is not n_heads %d heads of at most "
                       "512 features",
                       (long long)c->dim, c->heads);
    xd_status s = check_built(c, e);
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
        .head_dim = (int)c->head_dim,
        .patch = { 1, PATCH, PATCH },
        .dim = c->dim,
        .lat_ch = c->in_ch,
        .sample = { 1, 128, 128 },
        .text_dim = c->text,
        .txt_flows = 1,
        .sites = 1,
        .multiple = MULTIPLE,
        .local_size = sizeof(local),
        .lead = 2 * c->nrefiners,
        .most = { 1, c->lens.v[1] * PATCH, c->lens.v[2] * PATCH },
        /* positions of the text begin at 1; the image's positions follow */
        .text_most = (c->lens.v[0] - 2) / MULTIPLE * MULTIPLE,
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
    int64_t                  D = c->dim, hd = c->head_dim;
    xd_w_enter(d, "attention");
    xd_w_fused(
        d, &w->qkv,
        &(xd_fused_spec){
            .n = 3, .names = qkv, .in = D, .out = { D, D, D }, .split = XD_COL, .unit = hd });
    xd_w_linear(d, &w->out, "to_out.0",
                &(xd_linear_spec){ .in = D, .out = D, .split = XD_ROW, .unit = hd });
    if (c->qk_norm) {
        xd_w_vec(d, &w->norm_q, "norm_q.weight", 1, &hd);
        xd_w_vec(d, &w->norm_k, "norm_k.weight", 1, &hd);
    }
    xd_w_leave(d);
}

static void plain_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    static const char *const norms[] = { "attention_norm1.weight", "attention_norm2.weight",
                                         "ffn_norm1.weight", "ffn_norm2.weight" };
    static const char *const up[] = { "w1", "w3" };
    const cfg               *c = c_;
    xd_refined              *w = w_;
    int64_t                  D = c->dim, F = (int64_t)((double)D / 3 * 8);
    (void)layer;
    attn_weights(d, c, w);
    xd_w_enter(d, "feed_forward");
    xd_w_fused(d, &w->up,
               &(xd_fused_spec){ .n = 2, .names = up, .in = D, .out = { F, F }, .split = XD_COL });
    xd_w_linear(d, &w->down, "w2", &(xd_linear_spec){ .in = F, .out = D, .split = XD_ROW });
    xd_w_leave(d);
    for (int i = 0; i < 4; i++)
        xd_w_vec(d, &w->norm[i], norms[i], 1, &D);
}

static void timed_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    const cfg  *c = c_;
    xd_refined *w = w_;
    plain_weights(d, c, layer, w);
    xd_w_linear(d, &w->mod, "adaLN_modulation.0",
                &(xd_linear_spec){ .in = embed_width(c), .out = 4 * c->dim, .bias = 1, .few = 1 });
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    int64_t    D = c->dim, E = embed_width(c), F = PATCH * PATCH * c->in_ch;
    xd_w_linear(d, &g->latents, "all_x_embedder.2-1",
                &(xd_linear_spec){ .in = F, .out = D, .bias = 1 });
    xd_w_vec(d, &g->text_norm, "cap_embedder.0.weight", 1, &c->text);
    xd_w_linear(d, &g->text, "cap_embedder.1",
                &(xd_linear_spec){ .in = c->text, .out = D, .bias = 1 });
    xd_w_vec(d, &g->image_pad, "x_pad_token", 2, (int64_t[]){ 1, D });
    xd_w_vec(d, &g->text_pad, "cap_pad_token", 2, (int64_t[]){ 1, D });
    xd_w_enter(d, "t_embedder.mlp");
    xd_w_linear(d, &g->time.a, "0",
                &(xd_linear_spec){ .in = XD_SINUSOIDS, .out = TIME_MID, .bias = 1 });
    xd_w_linear(d, &g->time.b, "2", &(xd_linear_spec){ .in = TIME_MID, .out = E, .bias = 1 });
    xd_w_leave(d);
    xd_w_enter(d, "all_final_layer.2-1");
    xd_w_linear(d, &g->mod, "adaLN_modulation.1",
                &(xd_linear_spec){ .in = E, .out = D, .bias = 1 });
    xd_w_linear(d, &g->out, "linear", &(xd_linear_spec){ .in = D, .out = F, .bias = 1 });
    xd_w_leave(d);
}

/* ---- conditioning ------------------------------------------------------------------------- */

/* Writes the cosines or sines of one token's RoPE angles. Angles are computed in f64 and rounded to
 * f32, as in diffusers. */
static float *token_angles(const xd_rope *t, const double *base, const int64_t pos[AXES], float *to)
{
    const cfg *c = t->cfg;
    for (int a = 0; a < AXES; a++)
        for (int64_t k = 0; k < c->axes.v[a]; k += 2)
            *to++ = (float)t->fn((double)(float)((double)pos[a] * *base++));
    return to;
}

/* Fills the RoPE angles: first those of the text rows, then of the image's padding rows, then of
 * the image tokens. */
static void fill_angles(void *ctx, float *buf)
{
    const xd_rope *t = ctx;
    const cfg     *c = t->cfg;
    const xd_exec *x = t->x;
    int64_t        W = x->lay->grid[2], behind = x->lay->len[XD_TXT] + 1;
    double         base[256], *b = base; /* enough for heads of up to 512 features */
    for (int a = 0; a < AXES; a++)
        for (int64_t k = 0; k < c->axes.v[a]; k += 2)
            *b++ = 1.0 / pow(c->theta, (double)k / (double)c->axes.v[a]);
    for (int64_t i = 0; i < xd_n(x, XD_TXT); i++)
        buf = token_angles(t, base, (int64_t[]){ 1 + xd_where(x, XD_TXT, i), 0, 0 }, buf);
    for (int64_t i = 0; i < xd_n(x, XD_PAD); i++)
        buf = token_angles(t, base, (int64_t[]){ 0, 0, 0 }, buf);
    for (int64_t i = 0; i < xd_n(x, XD_IMG); i++) {
        int64_t at = xd_where(x, XD_IMG, i);
        buf = token_angles(t, base, (int64_t[]){ behind, at / W, at % W }, buf);
    }
}

/* Returns the cosines or sines of the RoPE angles of a forward pass. The angles of image tokens
 * also depend on the length of the text. */
static xd_tensor angles_of(xd_exec *x, const cfg *c, const xd_cond *text, double (*fn)(double))
{
    int64_t rows = xd_n(x, XD_TXT) + xd_n(x, XD_PAD) + xd_n(x, XD_IMG);
    return xd_rope_table_of(x, text, rows, c->head_dim / 2, fill_angles, c, fn);
}

/* Embeds the timestep. The model's time runs from 0 (noise) to 1; as in diffusers, timesteps are
 * rounded to f32. */
static void cond(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    local      *l = s->local;
    double      t = (double)((1000.0f - (float)in->t) / 1000.0f * (float)c->t_scale);
    l->emb = xd_as(x, xd_mlp_timesteps(x, &t, 1, &g->time), x->act);
    l->head_dim = c->head_dim, l->eps = c->eps;
    l->cos = angles_of(x, c, in->cond, cos);
    l->sin = angles_of(x, c, in->cond, sin);
}

/* ---- embedding ---------------------------------------------------------------------------- */

/* Writes the learned padding row `pad` to each row of h. */
static void fill_padding(xd_exec *x, xd_tensor h, xd_tensor pad)
{
    pad.d[0] = h.d[0], pad.s[0] = 0;
    if (h.d[0])
        xd_copy_to(x, h, pad);
}

/* Embeds this rank's text rows. The first in->cond->real[0] text rows are those of the prompt; the
 * rows after them are padding. */
static void embed_text(xd_exec *x, const cfg *c, const glob *g, const xd_input *in, xd_tensor h)
{
    int64_t n = 0;
    while (n < h.d[0] && xd_where(x, XD_TXT, n) < in->cond->real[0])
        n++;
    if (n)
        xd_linear_into(x, xd_rows(h, 0, n),
                       xd_rms_norm(x, xd_rows(in->txt, 0, n), g->text_norm, c->eps), &g->text);
    fill_padding(x, xd_rows(h, n, h.d[0] - n), g->text_pad);
}

static void embed(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    int64_t     ntxt = xd_n(x, XD_TXT), npad = xd_n(x, XD_PAD), nimg = xd_n(x, XD_IMG);
    if (!xd_check(x,
                  in->lat.d[0] == nimg && in->txt.d[0] == ntxt && s->h.d[0] == ntxt + npad + nimg,
                  "%lld image and %lld text tokens do not match %lld rows of state",
                  (long long)nimg, (long long)ntxt, (long long)s->h.d[0]))
        return;
    size_t mark = xd_arena_mark(x->tmp);
    if (ntxt)
        embed_text(x, c, g, in, xd_rows(s->h, 0, ntxt));
    fill_padding(x, xd_rows(s->h, ntxt, npad), g->image_pad);
    xd_refined_embed(x, in->lat, xd_rows(s->h, ntxt + npad, nimg), &g->latents);
    xd_arena_rewind(x->tmp, mark);
}

static xd_tensor head(xd_exec *x, const xd_net *n, xd_state *s)
{
    const glob  *g = n->glob;
    const cfg   *c = n->cfg;
    const local *l = s->local;
    xd_tensor    active = xd_gated(x, l->emb, (xd_tensor){ 0 }, XD_SILU);
    return xd_refined_head(x, s->h, active, &(xd_refined_out){ &g->mod, &g->out }, c->in_ch);
}

static const xd_block kind_image = { "noise_refiner.%d", sizeof(xd_refined), timed_weights,
                                     xd_refined_image };
static const xd_block kind_text = { "context_refiner.%d", sizeof(xd_refined), plain_weights,
                                    xd_refined_text };
static const xd_block kind_all = { "layers.%d", sizeof(xd_refined), timed_weights, xd_refined_all };

static const xd_block *block(const void *c_, int layer)
{
    const cfg *c = c_;
    return layer < c->nrefiners ? &kind_image : layer < 2 * c->nrefiners ? &kind_text : &kind_all;
}

extern const xd_dit xd_dit_zimage;

const xd_dit xd_dit_zimage = {
    .net = { .name = "zimage",
             .classes = { "ZImageTransformer2DModel" },
             .unread = { "norm_final.weight" }, /* only in ComfyUI's files */
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
