/* dit15.c - runs the transformer of HunyuanVideo-1.5 (Wu et al. 2025, arXiv:2511.18870) like
 * diffusers' HunyuanVideo15Transformer3DModel.
 *
 * The network has double blocks only. Its text rows come from three encoders: a language model,
 * whose rows pass through the refiner's blocks first, ByT5, which reads the quoted texts of a
 * prompt, and an image encoder. To the rows of each encoder a learned row is added, the type of the
 * encoder. diffusers masks rows of padding and the image rows of text to video; such rows are never
 * made here, which gives the same result. The order of the text rows does not change the result. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "families/hunyuanvideo/common.h"

/* GLYPHS: width of the hidden layers that project ByT5's rows, which no config has. */
enum { GLYPHS = 2048, MAX_REFINERS = 16, MAX_SIDE = 1 << 14, CELL = 16, FRAMES = 31 };

/* Numbers of the encoders' types, which are rows of cond_type_embed. */
enum { TYPE_TEXT, TYPE_GLYPHS, TYPE_IMAGE, TYPES };

static const float eps = 1e-5f; /* of the norms of encoders' rows */

typedef struct cfg {
    xd_hunyuanvideo_cfg of; /* dual.in_ch counts the condition channels, dual.out_ch does not */
    int64_t             glyphs, image, frames, target;
    int                 nrefiners, meanflow, sees;
    double              ratio;
    char                norm[XD_FIELD_TEXT], task[XD_FIELD_TEXT];
} cfg;

#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    { "in_channels", AT(of.dual.in_ch), 'l', 65, NULL },
    { "out_channels", AT(of.dual.out_ch), 'l', 32, NULL },
    { "num_attention_heads", AT(of.dual.heads), 'i', 16, NULL },
    { "attention_head_dim", AT(of.dual.head_dim), 'l', 128, NULL },
    { "num_layers", AT(of.dual.ndouble), 'i', 54, NULL },
    { "num_refiner_layers", AT(nrefiners), 'i', 2, NULL },
    { "mlp_ratio", AT(ratio), 'd', 4, NULL },
    { "patch_size", AT(of.dual.patch), 'l', 1, NULL },
    { "patch_size_t", AT(frames), 'l', 1, NULL },
    { "qk_norm", AT(norm), 's', 0, "rms_norm" },
    { "text_embed_dim", AT(of.dual.joint), 'l', 3584, NULL },
    { "text_embed_2_dim", AT(glyphs), 'l', 1472, NULL },
    { "image_embed_dim", AT(image), 'l', 1152, NULL },
    { "rope_theta", AT(of.theta), 'd', 256, NULL },
    { "rope_axes_dim", AT(of.dual.axes), 'L', 0, NULL },
    { "target_size", AT(target), 'l', 640, NULL },
    { "task_type", AT(task), 's', 0, "i2v" },
    { "use_meanflow", AT(meanflow), 'b', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

typedef struct affine { xd_tensor gain, bias; } affine;

typedef struct glob {
    xd_lin                  latents, mod, out;
    xd_mlp                  time, next; /* next: embedding of the next timestep, with meanflow */
    xd_hunyuanvideo_text    text;
    xd_hunyuanvideo_refiner refiner[MAX_REFINERS];
    affine                  glyph_norm, image_in, image_out;
    xd_lin                  glyph[3], image[2];
    xd_tensor               type; /* [TYPES,D]: row of each encoder's type */
} glob;

typedef struct local {
    xd_tensor active;   /* [1,D]: silu of the embedding of the timestep */
    xd_tensor cos, sin; /* [n,head_dim/2] F32: RoPE of this rank's tokens */
} local;

/* ---- configuration ------------------------------------------------------------------------ */

static xd_status check_kind(cfg *c, xd_err *e)
{
    const xd_dual_cfg *d = &c->of.dual;
    if (c->ratio != 4 || strcmp(c->norm, "rms_norm") != 0)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: mlp_ratio %g and qk_norm '%s': only 4 and rms_norm are "
                       "supported",
                       c->ratio, c->norm);
    if (strcmp(c->task, "t2v") != 0 && strcmp(c->task, "i2v") != 0)
        return xd_fail(e, XD_EUNSUPPORTED, "transformer: task_type '%s' is not t2v or i2v",
                       c->task);
    c->sees = c->task[0] == 'i';
    if (d->in_ch != 2 * d->out_ch + 1)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: in_channels %lld is not 2 x out_channels %lld + 1, for noise, "
                       "image and mask",
                       (long long)d->in_ch, (long long)d->out_ch);
    if (!(c->of.theta > 1))
        return xd_fail(e, XD_EFORMAT, "transformer: rope_theta %g is not above 1", c->of.theta);
    return XD_OK;
}

static xd_status check_config(void *c_, xd_err *e)
{
    cfg                  *c = c_;
    xd_dual_cfg          *d = &c->of.dual;
    const xd_config_range r[] = {
        { "text_embed_dim", d->joint, 1, 1 << 24 },
        { "text_embed_2_dim", c->glyphs, 1, 1 << 24 },
        { "image_embed_dim", c->image, 1, 1 << 24 },
        { "num_refiner_layers", c->nrefiners, 0, MAX_REFINERS },
        { "out_channels", d->out_ch, 1, 65536 },
        { "patch_size", d->patch, 1, 64 },
        { "patch_size_t", c->frames, 1, 64 },
        { "target_size", c->target, CELL, MAX_SIDE },
    };
    if (xd_check_ranges(r, sizeof r / sizeof *r, e) != XD_OK || xd_dual_check(d, 3, e) != XD_OK)
        return XD_EFORMAT;
    xd_status s = check_kind(c, e);
    d->modulated = 1;
    return s == XD_OK ? xd_dual_axes(&d->axes, "rope_axes_dim", NULL, d->head_dim, e) : s;
}

static int nlayers(const void *c)
{
    return ((const cfg *)c)->of.dual.ndouble;
}

/* Fills the description of the model. The sample is that of the pipeline's default size: 121 frames
 * in the aspect ratio 16:9. */
static void info(const void *c_, xd_dit_info *out)
{
    const cfg         *c = c_;
    const xd_dual_cfg *d = &c->of.dual;
    int64_t            height = 9, width = 16;
    xd_hunyuanvideo_bucket(c->target, &height, &width);
    *out = (xd_dit_info){
        .nlayers = d->ndouble,
        .heads = d->heads,
        .head_dim = (int)d->head_dim,
        .patch = { (int)c->frames, (int)d->patch, (int)d->patch },
        .dim = d->dim,
        .lat_ch = d->out_ch,
        .extra_ch = c->sees ? d->out_ch + 1 : 0,
        .sample = { FRAMES, height / CELL, width / CELL },
        .area = c->target * c->target,
        .text_dim = d->joint > c->glyphs ? d->joint : c->glyphs,
        .text_cols = { d->joint, c->glyphs },
        .image_dim = c->sees ? c->image : 0,
        .txt_flows = 1,
        .sites = 1,
        .local_size = sizeof(local),
    };
    if (out->image_dim > out->text_dim)
        out->text_dim = out->image_dim;
}

/* ---- weights ------------------------------------------------------------------------------ */

static int64_t active_width(const void *c)
{
    return ((const xd_dual_cfg *)c)->dim;
}

static int64_t mod_width(const void *c, int layer)
{
    (void)layer;
    return 12 * ((const xd_dual_cfg *)c)->dim;
}

static void w_linear(xd_decl *d, xd_lin *w, const char *name, int64_t in, int64_t out)
{
    xd_w_linear(d, w, name, &(xd_linear_spec){ .in = in, .out = out, .bias = 1 });
}

static void w_norm(xd_decl *d, affine *w, const char *name, int64_t n)
{
    xd_w_affine(d, name, &w->gain, &w->bias, n);
}

/* Declares the layers that project the rows of the encoders to the width of the blocks. */
static void row_weights(xd_decl *d, const cfg *c, glob *g)
{
    int64_t D = c->of.dual.dim, E = c->image;
    xd_hunyuanvideo_text_weights(d, &c->of.dual, &g->text);
    for (int i = 0; i < c->nrefiners; i++) {
        xd_w_enter(d, XD_HUNYUANVIDEO_REFINER, i);
        xd_hunyuanvideo_refiner_weights(d, &c->of.dual, 0, &g->refiner[i]);
        xd_w_leave(d);
    }
    xd_w_enter(d, "context_embedder_2");
    w_norm(d, &g->glyph_norm, "norm", c->glyphs);
    w_linear(d, &g->glyph[0], "linear_1", c->glyphs, GLYPHS);
    w_linear(d, &g->glyph[1], "linear_2", GLYPHS, GLYPHS);
    w_linear(d, &g->glyph[2], "linear_3", GLYPHS, D);
    xd_w_leave(d);
    xd_w_enter(d, "image_embedder");
    w_norm(d, &g->image_in, "norm_in", E);
    w_linear(d, &g->image[0], "linear_1", E, E);
    w_linear(d, &g->image[1], "linear_2", E, D);
    w_norm(d, &g->image_out, "norm_out", D);
    xd_w_leave(d);
    xd_w_vec(d, &g->type, "cond_type_embed.weight", 2, (int64_t[]){ TYPES, D });
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    int64_t    D = c->of.dual.dim, p = c->of.dual.patch, t = c->frames;
    xd_w_linear_as(d, &g->latents, "x_embedder.proj", 5,
                   (int64_t[]){ D, c->of.dual.in_ch, t, p, p }, 1);
    row_weights(d, c, g);
    xd_w_enter(d, "time_embed");
    xd_mlp_weights(d, "timestep_embedder", &g->time, XD_SINUSOIDS, D, D);
    if (c->meanflow)
        xd_mlp_weights(d, "timestep_embedder_r", &g->next, XD_SINUSOIDS, D, D);
    xd_w_leave(d);
    w_linear(d, &g->mod, "norm_out.linear", D, 2 * D);
    w_linear(d, &g->out, "proj_out", D, c->of.dual.out_ch * t * p * p);
}

/* ---- text --------------------------------------------------------------------------------- */

static void add_type(xd_exec *x, const glob *g, xd_tensor rows, int type)
{
    xd_tensor row = xd_rows(g->type, type, 1), every = row;
    every.d[0] = rows.d[0], every.s[0] = 0; /* the same row for all rows */
    xd_tensor copy = xd_new_f32(x, rows.d[0], rows.d[1]);
    xd_copy_to(x, copy, every);
    xd_add(x, rows, copy);
}

/* Writes the rows of the language model's tokens to `to`. */
static void text_rows(xd_exec *x, const xd_net *n, const xd_input *in, xd_tensor to)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    xd_tensor   rows = xd_cols(xd_rows(in->cond->tok, 0, to.d[0]), 0, c->of.dual.joint);
    xd_tensor   gates = xd_hunyuanvideo_gates(x, &g->text, in->t, rows);
    xd_linear_into(x, to, rows, &g->text.in);
    for (int i = 0; i < c->nrefiners; i++) {
        size_t mark = xd_arena_mark(x->tmp);
        xd_hunyuanvideo_refine(x, &g->refiner[i], to, gates, c->of.dual.head_dim, 1);
        xd_arena_rewind(x->tmp, mark);
    }
    add_type(x, g, to, TYPE_TEXT);
}

/* Projects ByT5's rows: a norm, then three linear layers with GELU between them. */
static void glyph_rows(xd_exec *x, const glob *g, xd_tensor rows, xd_tensor to)
{
    xd_tensor y = xd_layer_norm(x, rows, g->glyph_norm.gain, g->glyph_norm.bias, eps);
    for (int i = 0; i < 2; i++)
        y = xd_linear_act(x, y, &g->glyph[i], XD_GELU_ERF);
    xd_linear_into(x, to, y, &g->glyph[2]);
    add_type(x, g, to, TYPE_GLYPHS);
}

static void image_rows(xd_exec *x, const glob *g, xd_tensor rows, xd_tensor to)
{
    xd_tensor y = xd_layer_norm(x, rows, g->image_in.gain, g->image_in.bias, eps);
    y = xd_linear(x, xd_linear_act(x, y, &g->image[0], XD_GELU_ERF), &g->image[1]);
    xd_copy_to(x, to, xd_layer_norm(x, y, g->image_out.gain, g->image_out.bias, eps));
    add_type(x, g, to, TYPE_IMAGE);
}

/* Numbers of rows of each encoder. */
typedef struct parts { int64_t text, glyphs, image; } parts;

/* Returns the numbers of rows of each encoder in the text. If the text is not an encoded prompt,
 * but has rows for counting or measuring, only their sum is known: some rows then count as ByT5's,
 * and while memory is counted, all rows count as the language model's too, so that the memory is
 * enough for every prompt with this number of rows. */
static parts parts_of(const xd_exec *x, const xd_cond *t)
{
    int64_t n = t->tok.d[0], image = t->real[2] < n ? t->real[2] : n - 1;
    if (t->real[0] + t->real[1] + t->real[2] == n)
        return (parts){ t->real[0], t->real[1], t->real[2] };
    int64_t text = n - image, glyphs = t->real[1] < text / 2 ? t->real[1] : text / 2;
    if (xd_counting(x))
        return (parts){ n, t->real[1] < n ? t->real[1] : n, image };
    return (parts){ text - glyphs, glyphs, image };
}

/* Writes this rank's text rows to h. Every rank that has text rows computes the rows of all ranks,
 * because the refiner attends to all rows of the language model but to no other rows, and its few
 * blocks take little time. */
static void embed_text(xd_exec *x, const xd_net *n, const xd_input *in, xd_tensor h)
{
    const glob    *g = n->glob;
    const cfg     *c = n->cfg;
    const xd_cond *t = in->cond;
    parts          p = parts_of(x, t);
    size_t         mark = xd_arena_mark(x->tmp);
    if (!xd_check(x, t->tok.d[0] == x->lay->len[XD_TXT], "%lld rows of text for %lld text tokens",
                  (long long)t->tok.d[0], (long long)x->lay->len[XD_TXT]))
        return;
    xd_tensor all = xd_new_f32(x, t->tok.d[0], h.d[1]);
    size_t    above = xd_arena_mark(x->tmp);
    text_rows(x, n, in, xd_rows(all, 0, p.text));
    xd_arena_rewind(x->tmp, above);
    int64_t at = t->tok.d[0] - p.glyphs - p.image;
    if (p.glyphs)
        glyph_rows(x, g, xd_cols(xd_rows(t->tok, at, p.glyphs), 0, c->glyphs),
                   xd_rows(all, at, p.glyphs));
    xd_arena_rewind(x->tmp, above);
    if (p.image)
        image_rows(x, g, xd_cols(xd_rows(t->tok, at + p.glyphs, p.image), 0, c->image),
                   xd_rows(all, at + p.glyphs, p.image));
    xd_copy_own_rows(x, XD_TXT, h, all);
    xd_arena_rewind(x->tmp, mark);
}

/* ---- running ------------------------------------------------------------------------------ */

static xd_tensor active(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    xd_tensor   emb = xd_mlp_timesteps(x, &in->t, 1, &g->time);
    (void)kept;
    if (c->meanflow && in->next)
        xd_add(x, emb, xd_mlp_timesteps(x, in->next, 1, &g->next));
    return xd_gated(x, emb, (xd_tensor){ 0 }, XD_SILU);
}

static void cond(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const cfg *c = n->cfg;
    local     *l = s->local;
    l->active = xd_mods_input(x, n, in, s->kept, active);
    l->cos = xd_hunyuanvideo_angles(x, in->cond, &c->of, cos);
    l->sin = xd_hunyuanvideo_angles(x, in->cond, &c->of, sin);
}

/* Returns the features of the latents and of the condition, which are zeros without an image. */
static xd_tensor join_condition(xd_exec *x, const xd_input *in, int64_t features)
{
    static const float nothing = 0;
    if (in->extra.nd)
        return xd_join_channels(x, in);
    int64_t   n = in->lat.d[0], F = in->lat.d[1];
    xd_tensor all = xd_new_f32(x, n, features), zero = xd_new_f32(x, 1, 1);
    xd_put(x, zero, &nothing);
    zero.d[0] = n, zero.d[1] = features - F;
    zero.s[0] = zero.s[1] = 0;
    xd_copy_to(x, xd_cols(all, 0, F), in->lat);
    xd_copy_to(x, xd_cols(all, F, features - F), zero);
    return all;
}

static void embed(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    int64_t     ntxt = xd_n(x, XD_TXT), nimg = xd_n(x, XD_IMG);
    if (!xd_check(x, in->lat.d[0] == nimg && s->h.d[0] == ntxt + nimg,
                  "%lld video and %lld text tokens do not match %lld rows of state",
                  (long long)nimg, (long long)ntxt, (long long)s->h.d[0]))
        return;
    size_t mark = xd_arena_mark(x->tmp);
    if (ntxt)
        embed_text(x, n, in, xd_rows(s->h, 0, ntxt));
    xd_linear_into(x, xd_rows(s->h, ntxt, nimg), join_condition(x, in, g->latents.w.in),
                   &g->latents);
    xd_arena_rewind(x->tmp, mark);
}

static void forward(xd_exec *x, const xd_net *n, const void *w, xd_state *s)
{
    const local *l = s->local;
    const cfg   *c = n->cfg;
    xd_hunyuanvideo_pair(
        x, s->h, w, l->active,
        (xd_dual_in){ .cos = l->cos, .sin = l->sin, .head_dim = c->of.dual.head_dim });
}

/* Computes the network's output. The final modulation has two rows: scale, then shift. */
static xd_tensor head(xd_exec *x, const xd_net *n, xd_state *s)
{
    const glob  *g = n->glob;
    const local *l = s->local;
    xd_tensor    mod = xd_mod_rows(x, l->active, &g->mod, 2);
    return xd_dual_head(x, s->h, xd_rows(mod, 0, 1), xd_rows(mod, 1, 1), &g->out);
}

static const xd_block kind = { "transformer_blocks.%d", sizeof(xd_pair), xd_pair_weights, forward };

static const xd_block *block(const void *c, int layer)
{
    (void)c, (void)layer;
    return &kind;
}

extern const xd_dit xd_dit_hunyuanvideo15;

const xd_dit xd_dit_hunyuanvideo15 = {
    .net = { .name = "hunyuanvideo15",
             .classes = { "HunyuanVideo15Transformer3DModel" },
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
