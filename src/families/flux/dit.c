/* dit.c - runs the transformer of FLUX.1 (Black Forest Labs 2024) like diffusers'
 * FluxTransformer2DModel.
 *
 * Double blocks have separate weights for text and image and one joint attention. Single blocks
 * treat text and image as one sequence and compute attention and feed-forward in parallel.
 * Positions enter by RoPE. The position of an image token is (0, row, column). The position of a
 * token of a reference image (FLUX.1 Kontext) is (1, row, column); apart from that, tokens of
 * reference images are treated like image tokens. Text tokens have position 0, where RoPE is the
 * identity. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "dit/dual.h"

enum { PACK = 2 }; /* latent cells per side of a token */

typedef struct cfg {
    xd_dual_cfg dual;
    int64_t     pooled;
    int         guided;
} cfg;

#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    XD_DUAL_FIELDS(64, 19, 38, 24, 4096),
    { "pooled_projection_dim", AT(pooled), 'l', 768, NULL },
    { "guidance_embeds", AT(guided), 'b', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

typedef struct glob {
    xd_lin latents, text, mod, out;
    xd_mlp time, guidance, pooled;
} glob;

typedef struct local {
    /* [1,D]: silu of the sum of the embeddings of timestep, guidance and pooled text */
    xd_tensor active;
    xd_tensor cos, sin; /* [n,head_dim/2] F32: RoPE of this rank's tokens */
} local;

/* ---- configuration ------------------------------------------------------------------------ */

static xd_status check_config(void *c_, xd_err *e)
{
    cfg                  *c = c_;
    xd_dual_cfg          *d = &c->dual;
    const xd_config_range r = { "pooled_projection_dim", c->pooled, 1, 1 << 24 };
    if (xd_dual_check(d, PACK * PACK, e) != XD_OK || xd_check_ranges(&r, 1, e) != XD_OK)
        return XD_EFORMAT;
    if (d->patch != 1 || d->in_ch % (PACK * PACK) || d->out_ch % (PACK * PACK) || d->out_ch < 1 ||
        d->out_ch > d->in_ch)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: patch_size %lld, in_channels %lld and "
                       "out_channels %lld: only patch_size 1 and channels that divide by %d, no "
                       "fewer in than out, are supported",
                       (long long)d->patch, (long long)d->in_ch, (long long)d->out_ch, PACK * PACK);
    d->modulated = 1;
    return xd_dual_axes(&d->axes, "axes_dims_rope", NULL, d->head_dim, e);
}

static void info(const void *c_, xd_dit_info *out)
{
    const cfg         *c = c_;
    const xd_dual_cfg *d = &c->dual;
    *out = (xd_dit_info){
        .nlayers = xd_dual_nlayers(d),
        .heads = d->heads,
        .head_dim = (int)d->head_dim,
        .patch = { 1, PACK, PACK },
        .dim = d->dim,
        .lat_ch = d->out_ch / (PACK * PACK),
        .extra_ch = (d->in_ch - d->out_ch) / (PACK * PACK),
        .sample = { 1, 128, 128 },
        .text_dim = d->joint,
        .pooled_dim = c->pooled,
        .guided = c->guided,
        .txt_flows = 1,
        .sites = 1,
        .refs = 1,
        .local_size = sizeof(local),
    };
}

/* ---- weights ------------------------------------------------------------------------------ */

static int64_t active_width(const void *c)
{
    return ((const xd_dual_cfg *)c)->dim;
}

static int64_t mod_width(const void *c_, int layer)
{
    const xd_dual_cfg *c = c_;
    return (layer < c->ndouble ? 12 : 3) * c->dim;
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    int64_t    D = c->dual.dim;
    xd_w_linear(d, &g->latents, "x_embedder",
                &(xd_linear_spec){ .in = c->dual.in_ch, .out = D, .bias = 1 });
    xd_w_linear(d, &g->text, "context_embedder",
                &(xd_linear_spec){ .in = c->dual.joint, .out = D, .bias = 1 });
    xd_mlp_weights(d, "time_text_embed.timestep_embedder", &g->time, XD_SINUSOIDS, D, D);
    if (c->guided)
        xd_mlp_weights(d, "time_text_embed.guidance_embedder", &g->guidance, XD_SINUSOIDS, D, D);
    xd_mlp_weights(d, "time_text_embed.text_embedder", &g->pooled, c->pooled, D, D);
    xd_w_linear(d, &g->mod, "norm_out.linear",
                &(xd_linear_spec){ .in = D, .out = 2 * D, .bias = 1 });
    xd_w_linear(d, &g->out, "proj_out",
                &(xd_linear_spec){ .in = D, .out = c->dual.out_ch, .bias = 1 });
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
    const xd_dual_cfg *c = n->cfg;
    local             *l = s->local;
    l->active = xd_mods_input(x, n, in, s->kept, active);
    l->cos = xd_dual_angles(x, NULL, &c->axes, cos);
    l->sin = xd_dual_angles(x, NULL, &c->axes, sin);
}

static void embed(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    xd_dual_embed(x, in, s, &g->text, &g->latents);
}

/* ---- step caches -------------------------------------------------------------------------- */

/* Returns the image tokens as the attention of the first block reads them: normalized and
 * modulated. The first block may be a double or a single block. */
static xd_tensor probe(xd_exec *x, const xd_net *n, xd_state *s)
{
    const xd_pair *w = xd_net_layer(x, n, 0);
    const local   *l = s->local;
    int64_t        rows = xd_n(x, XD_IMG);
    xd_tensor out = xd_new_f32(x, rows, s->h.d[1]), mod = xd_mod_rows(x, l->active, &w->img.mod, 6);
    xd_norm_into(x, &(xd_norm){ .out = out,
                                .in = xd_rows(s->h, s->h.d[0] - rows, rows),
                                .scale = xd_rows(mod, 1, 1),
                                .shift = xd_rows(mod, 0, 1),
                                .eps = 1e-6f });
    return out;
}

/* Writes the polynomial that TeaCache4FLUX publishes for FLUX.1-dev. */
static int change_poly(const void *c, double poly[5])
{
    static const double of_dev[] = { 4.98651651e+02, -2.83781631e+02, 5.58554382e+01,
                                     -3.82021401e+00, 2.64230861e-01 };
    if (!((const xd_dual_cfg *)c)->ndouble)
        return 0;
    memcpy(poly, of_dev, sizeof of_dev);
    return 1;
}

/* ---- running ------------------------------------------------------------------------------ */

static void forward_pair(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const xd_pair *w = w_;
    const local   *l = s->local;
    xd_dual_in     in = { .txt = xd_mod_rows(x, l->active, &w->txt.mod, 6),
                          .img = xd_mod_rows(x, l->active, &w->img.mod, 6),
                          .cos = l->cos,
                          .sin = l->sin,
                          .head_dim = ((const xd_dual_cfg *)n->cfg)->head_dim };
    xd_pair_run(x, s->h, w, &in);
}

static void forward_solo(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const xd_solo *w = w_;
    const local   *l = s->local;
    xd_dual_in     in = { .img = xd_mod_rows(x, l->active, &w->mod, 3),
                          .cos = l->cos,
                          .sin = l->sin,
                          .head_dim = ((const xd_dual_cfg *)n->cfg)->head_dim };
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

static const xd_block kind_pair = { "transformer_blocks.%d", sizeof(xd_pair), xd_pair_weights,
                                    forward_pair };
static const xd_block kind_solo = { "single_transformer_blocks.%d", sizeof(xd_solo),
                                    xd_solo_weights, forward_solo };

static const xd_block *block(const void *c, int layer)
{
    return layer < ((const xd_dual_cfg *)c)->ndouble ? &kind_pair : &kind_solo;
}

extern const xd_dit xd_dit_flux;

const xd_dit xd_dit_flux = {
    .net = { .name = "flux",
             .classes = { "FluxTransformer2DModel" },
             .fields = fields,
             .cfg_size = sizeof(cfg),
             .glob_size = sizeof(glob),
             .check = check_config,
             .nlayers = xd_dual_nlayers,
             .block = block,
             .weights = weights },
    .input = "x_embedder.weight",
    .info = info,
    .active = active,
    .active_width = active_width,
    .mod_width = mod_width,
    .cond = cond,
    .embed = embed,
    .head = head,
    .probe = probe,
    .change_poly = change_poly,
};
