/* dit.c - runs the transformer of HunyuanVideo (Kong et al. 2024, arXiv:2412.03603) like diffusers'
 * HunyuanVideoTransformer3DModel.
 *
 * The network has three lists of blocks. The refiner's blocks process only the text; their gates
 * depend on the timestep and on the mean of the text rows. The double blocks have separate weights
 * for text and video and one joint attention. The single blocks treat text and video as one
 * sequence. Video tokens have the position (frame, row, column); RoPE does not rotate text.
 *
 * Models that begin with an image have one of two kinds (image_condition_type). With token_replace,
 * the first latent frame is the image in all steps, and its tokens are modulated for timestep 0.
 * With latent_concat, the transformer reads further channels. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "dit/timed.h"
#include "families/hunyuanvideo/common.h"

typedef struct cfg {
    xd_hunyuanvideo_cfg of;
    int64_t             pooled, frames;
    int                 guided, nrefiners;
    int                 holds; /* 1: token_replace: the first frame's tokens have timestep 0 */
    double              ratio;
    char                norm[XD_FIELD_TEXT], image[XD_FIELD_TEXT];
} cfg;

#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    { "in_channels", AT(of.dual.in_ch), 'l', 16, NULL },
    { "out_channels", AT(of.dual.out_ch), 'l', 16, NULL },
    { "num_attention_heads", AT(of.dual.heads), 'i', 24, NULL },
    { "attention_head_dim", AT(of.dual.head_dim), 'l', 128, NULL },
    { "num_layers", AT(of.dual.ndouble), 'i', 20, NULL },
    { "num_single_layers", AT(of.dual.nsingle), 'i', 40, NULL },
    { "num_refiner_layers", AT(nrefiners), 'i', 2, NULL },
    { "mlp_ratio", AT(ratio), 'd', 4, NULL },
    { "patch_size", AT(of.dual.patch), 'l', 2, NULL },
    { "patch_size_t", AT(frames), 'l', 1, NULL },
    { "qk_norm", AT(norm), 's', 0, "rms_norm" },
    { "guidance_embeds", AT(guided), 'b', 1, NULL },
    { "text_embed_dim", AT(of.dual.joint), 'l', 4096, NULL },
    { "pooled_projection_dim", AT(pooled), 'l', 768, NULL },
    { "rope_theta", AT(of.theta), 'd', 256, NULL },
    { "rope_axes_dim", AT(of.dual.axes), 'L', 0, NULL },
    { "image_condition_type", AT(image), 's', 0, "" },
    { NULL, 0, 0, 0, NULL },
};

typedef struct glob {
    xd_lin               latents, mod, out;
    xd_mlp               time, guidance, pooled;
    xd_hunyuanvideo_text text;
} glob;

typedef struct local {
    /* [1,D]: silu of the sum of the embeddings of timestep, guidance and pooled text */
    xd_tensor active;
    /* [1,D]: silu of the sum of the embeddings of timestep 0 and pooled text, or absent; number of
     * this rank's video tokens that are modulated by it */
    xd_tensor first;
    int64_t   held;
    /* [1,D]: silu of the sum of the embeddings of timestep and mean text, or absent on pipeline
     * stages without refiner blocks */
    xd_tensor refine;
    xd_tensor cos, sin; /* [n,head_dim/2] F32: RoPE of this rank's tokens */
} local;

/* ---- configuration ------------------------------------------------------------------------ */

/* Checks the numbers of channels and the kind of a model that begins with an image. A model with
 * latent_concat reads the latents of the noisy video and of the image, and a mask. */
static xd_status check_image(cfg *c, xd_err *e)
{
    const xd_dual_cfg *d = &c->of.dual;
    int                joins = strcmp(c->image, "latent_concat") == 0;
    int64_t            want = joins ? 2 * d->out_ch + 1 : d->out_ch;
    c->holds = strcmp(c->image, "token_replace") == 0;
    if (c->image[0] && !joins && !c->holds)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: image_condition_type '%s' is not one of token_replace and "
                       "latent_concat",
                       c->image);
    if (c->holds && c->frames != 1)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: patch_size_t is %lld; with token_replace it must be 1",
                       (long long)c->frames);
    if (d->in_ch == want)
        return XD_OK;
    return xd_fail(e, XD_EUNSUPPORTED, "transformer: in_channels %lld is not %s, %lld",
                   (long long)d->in_ch, joins ? "2 out_channels + 1" : "out_channels",
                   (long long)want);
}

static xd_status check_config(void *c_, xd_err *e)
{
    cfg                  *c = c_;
    xd_dual_cfg          *d = &c->of.dual;
    const xd_config_range r[] = {
        { "text_embed_dim", d->joint, 1, 1 << 24 },
        { "pooled_projection_dim", c->pooled, 1, 1 << 24 },
        { "num_refiner_layers", c->nrefiners, 0, 10000 },
        { "patch_size", d->patch, 1, 64 },
        { "patch_size_t", c->frames, 1, 64 },
    };
    if (xd_check_ranges(r, sizeof r / sizeof *r, e) != XD_OK || xd_dual_check(d, 1, e) != XD_OK)
        return XD_EFORMAT;
    xd_status s;
    if (c->ratio != 4 || strcmp(c->norm, "rms_norm") != 0)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: mlp_ratio %g and qk_norm '%s': only 4 and rms_norm are "
                       "supported",
                       c->ratio, c->norm);
    s = check_image(c, e);
    if (s != XD_OK)
        return s;
    if (!(c->of.theta > 1))
        return xd_fail(e, XD_EFORMAT, "transformer: rope_theta %g is not above 1", c->of.theta);
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
    const xd_dual_cfg *d = &c->of.dual;
    *out = (xd_dit_info){
        .nlayers = nlayers(c),
        .heads = d->heads,
        .head_dim = (int)d->head_dim,
        .patch = { (int)c->frames, (int)d->patch, (int)d->patch },
        .dim = d->dim,
        .lat_ch = d->out_ch,
        .extra_ch = d->in_ch - d->out_ch,
        .holds = c->holds,
        .begins = c->holds,
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
    return i < 0 ? 0 : (i < c->of.dual.ndouble ? 12 : 3) * c->of.dual.dim;
}

static void refiner_weights(xd_decl *d, const void *c, int layer, void *w)
{
    (void)layer;
    xd_hunyuanvideo_refiner_weights(d, c, 1, w);
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    int64_t    D = c->of.dual.dim, p = c->of.dual.patch, t = c->frames;
    xd_w_linear_as(d, &g->latents, "x_embedder.proj", 5,
                   (int64_t[]){ D, c->of.dual.in_ch, t, p, p }, 1);
    xd_hunyuanvideo_text_weights(d, &c->of.dual, &g->text);
    xd_w_enter(d, "time_text_embed");
    xd_mlp_weights(d, "timestep_embedder", &g->time, XD_SINUSOIDS, D, D);
    if (c->guided)
        xd_mlp_weights(d, "guidance_embedder", &g->guidance, XD_SINUSOIDS, D, D);
    xd_mlp_weights(d, "text_embedder", &g->pooled, c->pooled, D, D);
    xd_w_leave(d);
    xd_w_linear(d, &g->mod, "norm_out.linear",
                &(xd_linear_spec){ .in = D, .out = 2 * D, .bias = 1 });
    xd_w_linear(d, &g->out, "proj_out",
                &(xd_linear_spec){ .in = D, .out = c->of.dual.out_ch * t * p * p, .bias = 1 });
}

/* ---- conditioning ------------------------------------------------------------------------- */

static xd_tensor active(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    (void)kept;
    return xd_pooled_row(x, in, &g->time, c->guided ? &g->guidance : NULL, &g->pooled);
}

static void cond(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const cfg  *c = n->cfg;
    const glob *g = n->glob;
    local      *l = s->local;
    l->active = xd_mods_input(x, n, in, s->kept, active);
    if (c->holds && in->held) {
        double   time[XD_TIMES];
        xd_timed timed = xd_timed_of(x, in, time);
        xd_input at = *in;
        at.t = time[timed.times - 1];
        l->held = timed.run[0].time == timed.times - 1 ? timed.run[0].rows.n : 0;
        if (l->held)
            l->first = xd_pooled_row(x, &at, &g->time, NULL, &g->pooled);
    }
    if (n->first < c->nrefiners)
        l->refine = xd_hunyuanvideo_gates(x, &g->text, in->t, in->cond->tok);
    l->cos = xd_hunyuanvideo_angles(x, in->cond, &c->of, cos);
    l->sin = xd_hunyuanvideo_angles(x, in->cond, &c->of, sin);
}

static void embed(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    xd_dual_embed(x, in, s->h, &g->text.in, &g->latents);
}

/* ---- running ------------------------------------------------------------------------------ */

static void forward_refiner(xd_exec *x, const xd_net *n, const void *w, xd_state *s)
{
    const local *l = s->local;
    const cfg   *c = n->cfg;
    xd_hunyuanvideo_refine(x, w, xd_rows(s->h, 0, xd_n(x, XD_TXT)), l->refine, c->of.dual.head_dim,
                           0);
}

static void forward_pair(xd_exec *x, const xd_net *n, const void *w, xd_state *s)
{
    const local *l = s->local;
    const cfg   *c = n->cfg;
    xd_dual_in   in = {
        .cos = l->cos, .sin = l->sin, .head_dim = c->of.dual.head_dim, .held = l->held
    };
    if (l->held)
        in.first = xd_mod_rows(x, l->first, &((const xd_pair *)w)->img.mod, 6);
    xd_hunyuanvideo_pair(x, s->h, w, l->active, in);
}

static void forward_solo(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const xd_solo *w = w_;
    const local   *l = s->local;
    xd_dual_in     in = { .img = xd_mod_rows(x, l->active, &w->mod, 3),
                          .cos = l->cos,
                          .sin = l->sin,
                          .head_dim = ((const cfg *)n->cfg)->of.dual.head_dim,
                          .held = l->held };
    if (l->held)
        in.first = xd_mod_rows(x, l->first, &w->mod, 3);
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

static const xd_block kind_text = { XD_HUNYUANVIDEO_REFINER, sizeof(xd_hunyuanvideo_refiner),
                                    refiner_weights, forward_refiner };
static const xd_block kind_pair = { "transformer_blocks.%d", sizeof(xd_pair), xd_pair_weights,
                                    forward_pair };
static const xd_block kind_solo = { "single_transformer_blocks.%d", sizeof(xd_solo),
                                    xd_solo_weights, forward_solo };

static const xd_block *block(const void *c_, int layer)
{
    const cfg *c = c_;
    int        i = layer - c->nrefiners;
    return i < 0 ? &kind_text : i < c->of.dual.ndouble ? &kind_pair : &kind_solo;
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
