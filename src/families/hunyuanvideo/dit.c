/* dit.c - runs the transformer of HunyuanVideo (Kong et al. 2024, arXiv:2412.03603) like diffusers'
 * HunyuanVideoTransformer3DModel.
 *
 * The network has three lists of blocks. The refiner's blocks process only the text; their gates
 * depend on the timestep and on the mean of the text rows. The double blocks have separate weights
 * for text and video and one joint attention. The single blocks treat text and video as one
 * sequence. Video tokens have the position (frame, row, column); RoPE does not rotate text. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "dit/dual.h"

static const float eps = 1e-6f;

typedef struct cfg {
    xd_dual_cfg dual;
    int64_t     pooled, frames;
    int         guided, nrefiners;
    double      theta, ratio;
    char        norm[XD_FIELD_TEXT], image[XD_FIELD_TEXT];
} cfg;

#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    { "in_channels", AT(dual.in_ch), 'l', 16, NULL },
    { "out_channels", AT(dual.out_ch), 'l', 16, NULL },
    { "num_attention_heads", AT(dual.heads), 'i', 24, NULL },
    { "attention_head_dim", AT(dual.head_dim), 'l', 128, NULL },
    { "num_layers", AT(dual.ndouble), 'i', 20, NULL },
    { "num_single_layers", AT(dual.nsingle), 'i', 40, NULL },
    { "num_refiner_layers", AT(nrefiners), 'i', 2, NULL },
    { "mlp_ratio", AT(ratio), 'd', 4, NULL },
    { "patch_size", AT(dual.patch), 'l', 2, NULL },
    { "patch_size_t", AT(frames), 'l', 1, NULL },
    { "qk_norm", AT(norm), 's', 0, "rms_norm" },
    { "guidance_embeds", AT(guided), 'b', 1, NULL },
    { "text_embed_dim", AT(dual.joint), 'l', 4096, NULL },
    { "pooled_projection_dim", AT(pooled), 'l', 768, NULL },
    { "rope_theta", AT(theta), 'd', 256, NULL },
    { "rope_axes_dim", AT(dual.axes), 'L', 0, NULL },
    { "image_condition_type", AT(image), 's', 0, "" },
    { NULL, 0, 0, 0, NULL },
};

typedef struct refiner { /* weights of a block of the refiner */
    xd_tensor gain1, bias1, gain2, bias2;
    xd_lin    qkv, out, up, down;
    xd_lin    mod; /* [2D,D]: gates of the attention and of the feed-forward */
} refiner;

typedef struct glob {
    xd_lin latents, text, mod, out;
    xd_mlp time, guidance, pooled;
    xd_mlp refiner_time, refiner_text; /* embeddings for the refiner's gates */
} glob;

typedef struct local {
    /* [1,D]: silu of the sum of the embeddings of timestep, guidance and pooled text */
    xd_tensor active;
    /* [1,D]: silu of the sum of the embeddings of timestep and mean text, or absent on pipeline
     * stages without refiner blocks */
    xd_tensor refine;
    xd_tensor cos, sin; /* [n,head_dim/2] F32: RoPE of this rank's tokens */
} local;

/* ---- configuration ------------------------------------------------------------------------ */

static xd_status check_config(void *c_, xd_err *e)
{
    cfg                  *c = c_;
    xd_dual_cfg          *d = &c->dual;
    const xd_config_range r[] = {
        { "text_embed_dim", d->joint, 1, 1 << 24 },
        { "pooled_projection_dim", c->pooled, 1, 1 << 24 },
        { "num_refiner_layers", c->nrefiners, 0, 10000 },
        { "patch_size", d->patch, 1, 64 },
        { "patch_size_t", c->frames, 1, 64 },
    };
    if (xd_check_ranges(r, sizeof r / sizeof *r, e) != XD_OK || xd_dual_check(d, 1, e) != XD_OK)
        return XD_EFORMAT;
    if (c->ratio != 4 || strcmp(c->norm, "rms_norm") != 0)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: mlp_ratio %g and qk_norm '%s': only 4 and rms_norm are "
                       "supported",
                       c->ratio, c->norm);
    if (c->image[0])
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: image_condition_type is '%s': only models without images are "
                       "supported",
                       c->image);
    if (d->out_ch != d->in_ch)
        return xd_fail(e, XD_EUNSUPPORTED, "transformer: out_channels %lld is not in_channels %lld",
                       (long long)d->out_ch, (long long)d->in_ch);
    if (!(c->theta > 1))
        return xd_fail(e, XD_EFORMAT, "transformer: rope_theta %g is not above 1", c->theta);
    d->modulated = 1;
    return xd_dual_axes(&d->axes, "rope_axes_dim", NULL, d->head_dim, e);
}

static int nlayers(const void *c_)
{
    const cfg *c = c_;
    return c->nrefiners + xd_dual_nlayers(c);
}

/* Fills the description of the model. The sample is that of the pipeline's default size, 129 frames
 * of 720 x 1280 pixels. */
static void info(const void *c_, xd_dit_info *out)
{
    const cfg         *c = c_;
    const xd_dual_cfg *d = &c->dual;
    *out = (xd_dit_info){
        .nlayers = nlayers(c),
        .heads = d->heads,
        .head_dim = (int)d->head_dim,
        .patch = { (int)c->frames, (int)d->patch, (int)d->patch },
        .dim = d->dim,
        .lat_ch = d->in_ch,
        .sample = { 33, 90, 160 },
        .text_dim = d->joint,
        .pooled_dim = c->pooled,
        .guided = c->guided,
        .txt_flows = 1,
        .sites = 1,
        .local_size = sizeof(local),
        .lead = c->nrefiners,
    };
}

/* ---- weights ------------------------------------------------------------------------------ */

static int64_t active_width(const void *c)
{
    return ((const xd_dual_cfg *)c)->dim;
}

static int64_t mod_width(const void *c_, int layer)
{
    const cfg *c = c_;
    int        i = layer - c->nrefiners;
    return i < 0 ? 0 : (i < c->dual.ndouble ? 12 : 3) * c->dual.dim;
}

static void refiner_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    static const char *const qkv[] = { "attn.to_q", "attn.to_k", "attn.to_v" };
    const cfg               *c = c_;
    refiner                 *w = w_;
    int64_t                  D = c->dual.dim, hd = c->dual.head_dim;
    (void)layer;
    xd_w_affine(d, "norm1", &w->gain1, &w->bias1, D);
    xd_w_fused(d, &w->qkv,
               &(xd_fused_spec){ .n = 3,
                                 .names = qkv,
                                 .in = D,
                                 .out = { D, D, D },
                                 .split = XD_COL,
                                 .unit = hd,
                                 .bias = 1 });
    xd_w_linear(d, &w->out, "attn.to_out.0",
                &(xd_linear_spec){ .in = D, .out = D, .split = XD_ROW, .unit = hd, .bias = 1 });
    xd_w_affine(d, "norm2", &w->gain2, &w->bias2, D);
    xd_w_linear(d, &w->up, "ff.net.0.proj",
                &(xd_linear_spec){ .in = D, .out = 4 * D, .split = XD_COL, .bias = 1 });
    xd_w_linear(d, &w->down, "ff.net.2",
                &(xd_linear_spec){ .in = 4 * D, .out = D, .split = XD_ROW, .bias = 1 });
    xd_w_linear(d, &w->mod, "norm_out.linear",
                &(xd_linear_spec){ .in = D, .out = 2 * D, .bias = 1, .few = 1 });
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    int64_t    D = c->dual.dim, E = c->dual.joint, p = c->dual.patch, t = c->frames;
    xd_w_linear_as(d, &g->latents, "x_embedder.proj", 5, (int64_t[]){ D, c->dual.in_ch, t, p, p },
                   1);
    xd_w_enter(d, "context_embedder");
    xd_w_linear(d, &g->text, "proj_in", &(xd_linear_spec){ .in = E, .out = D, .bias = 1 });
    xd_mlp_weights(d, "time_text_embed.timestep_embedder", &g->refiner_time, XD_SINUSOIDS, D, D);
    xd_mlp_weights(d, "time_text_embed.text_embedder", &g->refiner_text, E, D, D);
    xd_w_leave(d);
    xd_w_enter(d, "time_text_embed");
    xd_mlp_weights(d, "timestep_embedder", &g->time, XD_SINUSOIDS, D, D);
    if (c->guided)
        xd_mlp_weights(d, "guidance_embedder", &g->guidance, XD_SINUSOIDS, D, D);
    xd_mlp_weights(d, "text_embedder", &g->pooled, c->pooled, D, D);
    xd_w_leave(d);
    xd_w_linear(d, &g->mod, "norm_out.linear",
                &(xd_linear_spec){ .in = D, .out = 2 * D, .bias = 1 });
    xd_w_linear(d, &g->out, "proj_out",
                &(xd_linear_spec){ .in = D, .out = c->dual.out_ch * t * p * p, .bias = 1 });
}

/* ---- conditioning ------------------------------------------------------------------------- */

/* Fills the RoPE angles of the text rows, which are 0, then of the video tokens. */
static void fill_angles(void *ctx, float *buf)
{
    const xd_rope *t = ctx;
    const cfg     *c = t->cfg;
    int64_t        H = t->x->lay->grid[1], W = t->x->lay->grid[2];
    double         base[256]; /* enough for heads of up to 512 features */
    xd_rope_axes(base, c->theta, &c->dual.axes);
    for (int64_t n = xd_n(t->x, XD_TXT) * c->dual.head_dim / 2; n > 0; n--)
        *buf++ = (float)t->fn(0);
    for (int64_t i = 0; i < xd_n(t->x, XD_IMG); i++) {
        int64_t at = xd_where(t->x, XD_IMG, i), pos[3] = { at / W / H, at / W % H, at % W };
        buf = xd_rope_token(buf, base, &c->dual.axes, pos, t->fn);
    }
}

static xd_tensor active(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    (void)kept;
    return xd_pooled_row(x, in, &g->time, c->guided ? &g->guidance : NULL, &g->pooled);
}

/* Returns the row from which the refiner's gates are computed. */
static xd_tensor refiner_row(xd_exec *x, const glob *g, const xd_input *in)
{
    xd_tensor emb = xd_mlp_timesteps(x, &in->t, 1, &g->refiner_time);
    xd_tensor mean = xd_mean_row(x, in->cond->tok);
    xd_add(x, emb, xd_mlp_run(x, mean, &g->refiner_text, XD_SILU));
    return xd_gated(x, emb, (xd_tensor){ 0 }, XD_SILU);
}

static void cond(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const cfg *c = n->cfg;
    local     *l = s->local;
    int64_t    rows = xd_n(x, XD_TXT) + xd_n(x, XD_IMG), half = c->dual.head_dim / 2;
    l->active = xd_mods_input(x, n, in, s->kept, active);
    if (n->first < c->nrefiners)
        l->refine = refiner_row(x, n->glob, in);
    l->cos = xd_rope_table_of(x, in->cond, rows, half, fill_angles, c, cos);
    l->sin = xd_rope_table_of(x, in->cond, rows, half, fill_angles, c, sin);
}

static void embed(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    xd_dual_embed(x, in, s, &g->text, &g->latents);
}

/* ---- running ------------------------------------------------------------------------------ */

static void forward_refiner(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const refiner *w = w_;
    const local   *l = s->local;
    int64_t        hd = ((const cfg *)n->cfg)->dual.head_dim;
    xd_tensor h = xd_rows(s->h, 0, xd_n(x, XD_TXT)), mod = xd_mod_rows(x, l->refine, &w->mod, 2);
    xd_tensor y = xd_linear(x, xd_layer_norm(x, h, w->gain1, w->bias1, eps), &w->qkv), qkv[3];
    for (int i = 0; i < 3; i++)
        qkv[i] = xd_heads(xd_seg(y, &w->qkv, i), hd);
    xd_tensor o = xd_attn_of(x, XD_STREAM(XD_TXT), qkv[0], qkv[1], qkv[2], 0);
    xd_linear_add(x, h, xd_rows(mod, 0, 1), xd_flat(o), &w->out);
    y = xd_layer_norm(x, h, w->gain2, w->bias2, eps);
    xd_linear_add(x, h, xd_rows(mod, 1, 1), xd_linear_act(x, y, &w->up, XD_SILU), &w->down);
}

static void forward_pair(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const xd_pair *w = w_;
    const local   *l = s->local;
    xd_dual_in     in = { .txt = xd_mod_rows(x, l->active, &w->txt.mod, 6),
                          .img = xd_mod_rows(x, l->active, &w->img.mod, 6),
                          .cos = l->cos,
                          .sin = l->sin,
                          .head_dim = ((const cfg *)n->cfg)->dual.head_dim };
    xd_pair_run(x, s->h, w, &in);
}

static void forward_solo(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const xd_solo *w = w_;
    const local   *l = s->local;
    xd_dual_in     in = { .img = xd_mod_rows(x, l->active, &w->mod, 3),
                          .cos = l->cos,
                          .sin = l->sin,
                          .head_dim = ((const cfg *)n->cfg)->dual.head_dim };
    xd_solo_run(x, s->h, w, &in);
}

/* Computes the network's output. The final modulation has two rows: scale, then shift. */
static xd_tensor head(xd_exec *x, const xd_net *n, xd_state *s)
{
    const glob  *g = n->glob;
    const local *l = s->local;
    xd_tensor    mod = xd_mod_rows(x, l->active, &g->mod, 2);
    return xd_dual_head(x, s->h, xd_rows(mod, 0, 1), xd_rows(mod, 1, 1), &g->out);
}

static const xd_block kind_text = { "context_embedder.token_refiner.refiner_blocks.%d",
                                    sizeof(refiner), refiner_weights, forward_refiner };
static const xd_block kind_pair = { "transformer_blocks.%d", sizeof(xd_pair), xd_pair_weights,
                                    forward_pair };
static const xd_block kind_solo = { "single_transformer_blocks.%d", sizeof(xd_solo),
                                    xd_solo_weights, forward_solo };

static const xd_block *block(const void *c_, int layer)
{
    const cfg *c = c_;
    int        i = layer - c->nrefiners;
    return i < 0 ? &kind_text : i < c->dual.ndouble ? &kind_pair : &kind_solo;
}

extern const xd_dit xd_dit_hunyuanvideo;

const xd_dit xd_dit_hunyuanvideo = {
    .net = { .name = "hunyuanvideo",
             .classes = { "HunyuanVideoTransformer3DModel" },
             .fields = fields,
             .cfg_size = sizeof(cfg),
             .glob_size = sizeof(glob),
             .check = check_config,
             .nlayers = nlayers,
             .block = block,
             .weights = weights },
    .info = info,
    .active = active,
    .active_width = active_width,
    .mod_width = mod_width,
    .cond = cond,
    .embed = embed,
    .head = head,
};
