/* dit.c - runs Chroma's transformer (lodestones 2025) like diffusers' ChromaTransformer2DModel.
 *
 * Chroma has double and single blocks (dit/dual.h) without modulation layers. In place of
 * modulation layers, a small network, the approximator, computes each modulation vector of a step
 * from the timestep and the vector's index. Chroma has no pooled text and no distilled guidance
 * scale. */
#include <math.h>
#include <stddef.h>

#include "dit/dual.h"

/* PACK: latent cells per side of a token; MOST_LAYERS: max layers of the approximator */
enum { PACK = 2, MOST_LAYERS = 16 };
static const float rms_eps = 1.1920929e-7f; /* default epsilon of torch.nn.RMSNorm for f32 */

typedef struct cfg {
    xd_dual_cfg dual;
    int64_t     sinusoids, hidden; /* widths in the approximator */
    int         napprox;
} cfg;

#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    XD_DUAL_FIELDS(64, 19, 38, 24, 4096),
    { "approximator_num_channels", AT(sinusoids), 'l', 64, NULL },
    { "approximator_hidden_dim", AT(hidden), 'l', 5120, NULL },
    { "approximator_layers", AT(napprox), 'i', 5, NULL },
    { NULL, 0, 0, 0, NULL },
};

typedef struct glob {
    xd_lin    latents, text, out;
    xd_lin    first, last; /* first and last layer of the approximator */
    xd_mlp    layer[MOST_LAYERS];
    xd_tensor norm[MOST_LAYERS];
} glob;

typedef struct local {
    /* [n,D] F32: modulation vectors that this rank's pipeline stage reads */
    xd_tensor mod;
    xd_tensor cos, sin; /* [n,head_dim/2] F32: RoPE of this rank's tokens */
} local;

/* ---- configuration ------------------------------------------------------------------------ */

static xd_status check_config(void *c_, xd_err *e)
{
    cfg                  *c = c_;
    const xd_config_range r[] = {
        { "approximator_num_channels", c->sinusoids, 8, 65536 },
        { "approximator_hidden_dim", c->hidden, 1, 1 << 24 },
        { "approximator_layers", c->napprox, 0, MOST_LAYERS },
    };
    if (xd_dual_check(&c->dual, PACK * PACK, e) != XD_OK ||
        xd_check_ranges(r, sizeof r / sizeof r[0], e) != XD_OK)
        return XD_EFORMAT;
    if (c->sinusoids % 8)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: approximator_num_channels %lld does not divide "
                       "by 8",
                       (long long)c->sinusoids);
    if (c->dual.patch != 1 || c->dual.in_ch % (PACK * PACK) || c->dual.out_ch != c->dual.in_ch)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: patch_size %lld, in_channels %lld and "
                       "out_channels %lld: only patch_size 1 and equal channels that divide by %d "
                       "are supported",
                       (long long)c->dual.patch, (long long)c->dual.in_ch,
                       (long long)c->dual.out_ch, PACK * PACK);
    return xd_dual_axes(&c->dual.axes, "axes_dims_rope", NULL, c->dual.head_dim, e);
}

static void info(const void *c_, xd_dit_info *out)
{
    const xd_dual_cfg *c = c_;
    *out = (xd_dit_info){
        .nlayers = xd_dual_nlayers(c),
        .heads = c->heads,
        .head_dim = (int)c->head_dim,
        .patch = { 1, PACK, PACK },
        .dim = c->dim,
        .lat_ch = c->in_ch / (PACK * PACK),
        .sample = { 1, 128, 128 },
        .text_dim = c->joint,
        .txt_flows = 1,
        .sites = 1,
        .local_size = sizeof(local),
    };
}

/* ---- weights ------------------------------------------------------------------------------ */

static void plain(xd_decl *d, xd_lin *w, const char *name, int64_t in, int64_t out)
{
    xd_w_linear(d, w, name, &(xd_linear_spec){ .in = in, .out = out, .bias = 1 });
}

static void approximator_weights(xd_decl *d, const cfg *c, glob *g)
{
    xd_w_enter(d, "distilled_guidance_layer");
    plain(d, &g->first, "in_proj", c->sinusoids, c->hidden);
    for (int i = 0; i < c->napprox; i++) {
        xd_w_enter(d, "layers.%d", i);
        plain(d, &g->layer[i].a, "linear_1", c->hidden, c->hidden);
        plain(d, &g->layer[i].b, "linear_2", c->hidden, c->hidden);
        xd_w_leave(d);
        xd_w_enter(d, "norms.%d", i);
        xd_w_vec(d, &g->norm[i], "weight", 1, &c->hidden);
        xd_w_leave(d);
    }
    plain(d, &g->last, "out_proj", c->hidden, c->dual.dim);
    xd_w_leave(d);
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    plain(d, &g->latents, "x_embedder", c->dual.in_ch, c->dual.dim);
    plain(d, &g->text, "context_embedder", c->dual.joint, c->dual.dim);
    approximator_weights(d, c, g);
    plain(d, &g->out, "proj_out", c->dual.dim, c->dual.out_ch);
}

/* ---- modulation --------------------------------------------------------------------------- */

/* Groups of modulation vectors, in the order of the approximator's vector indices: three vectors
 * for each single block, six for the image in each double block, six for the text in each double
 * block, two for the output layer. */
enum part { SOLO, IMAGE, TEXT, HEAD, PARTS };

/* Computes, for each group, the range of modulation vectors that the blocks of this pipeline stage
 * and the output layer read. */
static void parts_of(const xd_net *n, xd_span part[PARTS])
{
    const xd_dual_cfg *c = n->cfg;
    int64_t            nd = c->ndouble, ns = c->nsingle;
    int64_t            d0 = n->first < nd ? n->first : nd, d1 = n->last < nd ? n->last : nd;
    int64_t            s0 = n->first - d0, s1 = n->last - d1;
    part[SOLO] = (xd_span){ 3 * s0, 3 * (s1 - s0) };
    part[IMAGE] = (xd_span){ 3 * ns + 6 * d0, 6 * (d1 - d0) };
    part[TEXT] = (xd_span){ 3 * ns + 6 * nd + 6 * d0, 6 * (d1 - d0) };
    part[HEAD] = (xd_span){ 3 * ns + 12 * nd, 2 };
}

/* Returns `count` modulation vectors of group p, beginning with vector `at`. */
static xd_tensor vectors(const xd_net *n, const local *l, enum part p, int64_t at, int64_t count)
{
    xd_span part[PARTS];
    int64_t row = 0;
    parts_of(n, part);
    for (int i = 0; i < (int)p; i++)
        row += part[i].n;
    return xd_rows(l->mod, row + at - part[p].start, count);
}

typedef struct inputs {
    const xd_net *n;
    double        t;
} inputs;

/* Fills the approximator's input. The input row for a modulation vector has sinusoids of the
 * timestep, of a guidance scale of 0, and of 1000 times the vector's index. */
static void fill_inputs(void *ctx, float *buf)
{
    const inputs *in = ctx;
    int64_t       k = ((const cfg *)in->n->cfg)->sinusoids / 4;
    xd_span       part[PARTS];
    parts_of(in->n, part);
    for (int p = 0; p < PARTS; p++)
        for (int64_t i = 0; i < part[p].n; i++, buf += 4 * k) {
            xd_time_row(buf, in->t, k, 1, 0);
            xd_time_row(buf + k, 0, k, 1, 0);
            xd_time_row(buf + 2 * k, 1000.0 * (double)(part[p].start + i), 2 * k, 1, 0);
        }
}

/* Runs the approximator for the modulation vectors that this rank's pipeline stage reads. Each
 * modulation vector depends only on its own row of inputs. */
static xd_tensor approximate(xd_exec *x, const xd_net *n, double t)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    inputs      in = { n, t };
    xd_span     part[PARTS];
    int64_t     rows = 0;
    parts_of(n, part);
    for (int p = 0; p < PARTS; p++)
        rows += part[p].n;
    xd_tensor out = xd_new_f32(x, rows, c->dual.dim);
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor v = xd_new_f32(x, rows, c->sinusoids);
    xd_fill(x, v, fill_inputs, &in);
    xd_tensor h = xd_linear_f32(x, v, &g->first);
    for (int i = 0; i < c->napprox; i++) {
        size_t    inner = xd_arena_mark(x->tmp);
        xd_tensor y = xd_rms_norm(x, h, g->norm[i], rms_eps);
        y = xd_linear_act(x, y, &g->layer[i].a, XD_SILU);
        xd_linear_add(x, h, (xd_tensor){ 0 }, y, &g->layer[i].b);
        xd_arena_rewind(x->tmp, inner);
    }
    xd_linear_into(x, out, h, &g->last);
    xd_arena_rewind(x->tmp, mark);
    return out;
}

static void cond(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const xd_dual_cfg *c = n->cfg;
    local             *l = s->local;
    l->mod = approximate(x, n, in->t);
    l->cos = xd_dual_angles(x, in->cond, &c->axes, cos);
    l->sin = xd_dual_angles(x, in->cond, &c->axes, sin);
}

/* ---- running ------------------------------------------------------------------------------ */

static void embed(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    xd_dual_embed(x, in, s->h, &g->text, &g->latents);
}

static void forward_pair(xd_exec *x, const xd_net *n, const void *w, xd_state *s)
{
    const xd_dual_cfg *c = n->cfg;
    const local       *l = s->local;
    int64_t            img = 3 * (int64_t)c->nsingle + 6 * (int64_t)x->layer;
    int64_t            txt = 6 * (int64_t)c->ndouble;
    xd_dual_in         in = { .txt = vectors(n, l, TEXT, img + txt, 6),
                              .img = vectors(n, l, IMAGE, img, 6),
                              .cos = l->cos,
                              .sin = l->sin,
                              .head_dim = c->head_dim };
    xd_pair_run(x, s->h, w, &in);
}

static void forward_solo(xd_exec *x, const xd_net *n, const void *w, xd_state *s)
{
    const xd_dual_cfg *c = n->cfg;
    const local       *l = s->local;
    xd_dual_in         in = { .img = vectors(n, l, SOLO, 3 * (int64_t)(x->layer - c->ndouble), 3),
                              .cos = l->cos,
                              .sin = l->sin,
                              .head_dim = c->head_dim };
    xd_solo_run(x, s->h, w, &in);
}

/* Computes the network's output. The final modulation has two rows: shift, then scale. */
static xd_tensor head(xd_exec *x, const xd_net *n, xd_state *s)
{
    const glob        *g = n->glob;
    const xd_dual_cfg *c = n->cfg;
    int64_t            at = 3 * (int64_t)c->nsingle + 12 * (int64_t)c->ndouble;
    xd_tensor          mod = vectors(n, s->local, HEAD, at, 2);
    return xd_dual_head(x, s->h, xd_rows(mod, 1, 1), xd_rows(mod, 0, 1), &g->out);
}

static const xd_block kind_pair = { "transformer_blocks.%d", sizeof(xd_pair), xd_pair_weights,
                                    forward_pair };
static const xd_block kind_solo = { "single_transformer_blocks.%d", sizeof(xd_solo),
                                    xd_solo_weights, forward_solo };

static const xd_block *block(const void *c, int layer)
{
    return layer < ((const xd_dual_cfg *)c)->ndouble ? &kind_pair : &kind_solo;
}

extern const xd_dit xd_dit_chroma;

const xd_dit xd_dit_chroma = {
    .net = { .name = "chroma",
             .classes = { "ChromaTransformer2DModel" },
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
