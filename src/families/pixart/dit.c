/* dit.c - runs the transformers of PixArt-alpha (Chen et al. 2023) and PixArt-Sigma (2024) like
 * diffusers' PixArtTransformer2DModel and the older Transformer2DModel with norm_type
 * ada_norm_single, and that of Latte (Ma et al. 2024) like LatteTransformer3DModel.
 *
 * The timestep enters as one modulation [6,D] for all blocks (adaLN-single), to which each block
 * adds its own table. Text enters by cross-attention; the input of the cross-attention is not
 * normalized.
 *
 * In Latte, the blocks of PixArt-alpha alternate with temporal blocks. The former attend within
 * each frame, the latter over all frames at one place, and read no text. The position of the frame
 * enters before the first temporal block. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/minmax.h"
#include "dit/layers.h"
#include "exec/tables.h"

typedef struct cfg {
    int64_t head_dim, in_ch, out_ch, cross, caption, sample, patch, vectors;
    int64_t frames; /* of a video: max number of frames; 0: the model makes images */
    int     heads, nlayers, bias, affine, micro, only_cross, double_self;
    float   eps;
    double  scale; /* interpolation_scale */
    char    act_fn[XD_FIELD_TEXT], norm[XD_FIELD_TEXT], attention[XD_FIELD_TEXT];
    xd_act  act;
    int64_t dim; /* D = heads * head_dim */
} cfg;

/* All model classes have these config keys, with different defaults. */
#define AT(m) offsetof(cfg, m)
#define ROWS(HEAD, IN, LAYERS, CROSS, BIAS, SAMPLE, PATCH, ACT, NORM, AFFINE, EPS) \
    { "num_attention_heads", AT(heads), 'i', 16, NULL }, \
    { "attention_head_dim", AT(head_dim), 'l', HEAD, NULL }, \
    { "in_channels", AT(in_ch), 'l', IN, NULL }, \
    { "out_channels", AT(out_ch), 'l', 0, NULL }, \
    { "num_layers", AT(nlayers), 'i', LAYERS, NULL }, \
    { "cross_attention_dim", AT(cross), 'l', CROSS, NULL }, \
    { "attention_bias", AT(bias), 'b', BIAS, NULL }, \
    { "sample_size", AT(sample), 'l', SAMPLE, NULL }, \
    { "patch_size", AT(patch), 'l', PATCH, NULL }, \
    { "activation_fn", AT(act_fn), 's', 0, ACT }, \
    { "norm_type", AT(norm), 's', 0, NORM }, \
    { "norm_elementwise_affine", AT(affine), 'b', AFFINE, NULL }, \
    { "norm_eps", AT(eps), 'f', EPS, NULL }, \
    { "interpolation_scale", AT(scale), 'd', NAN, NULL }, \
    { "use_additional_conditions", AT(micro), 'b', -1, NULL }, \
    { "caption_channels", AT(caption), 'l', 0, NULL }, \
    { "attention_type", AT(attention), 's', 0, "default" }, \
    { "num_vector_embeds", AT(vectors), 'l', 0, NULL }, \
    { "only_cross_attention", AT(only_cross), 'b', 0, NULL }, \
    { "double_self_attention", AT(double_self), 'b', 0, NULL }, \
    { "dropout", 0, '-', 0, NULL }, \
    { "norm_num_groups", 0, '-', 0, NULL }, \
    { "num_embeds_ada_norm", 0, '-', 0, NULL }, \
    { "upcast_attention", 0, '-', 0, NULL }, \
    { "use_linear_projection", 0, '-', 0, NULL }, \
    { NULL, 0, 0, 0, NULL }

static const xd_field fields[] = {
    ROWS(72, 4, 28, 1152, 1, 128, 2, "gelu-approximate", "ada_norm_single", 0, 1e-6),
};
static const xd_field fields_2d[] = {
    ROWS(88, 0, 1, 0, 0, 0, 0, "geglu", "layer_norm", 1, 1e-5),
};
static const xd_field fields_video[] = {
    { "video_length", AT(frames), 'l', 16, NULL },
    ROWS(88, 0, 1, 0, 0, 64, 0, "geglu", "layer_norm", 1, 1e-5),
};

typedef struct blk {
    xd_tensor mod; /* [6,D]: table added to the modulation */
    xd_lin    qkv, out, q, kv, cross, up, down;
} blk;

typedef struct glob {
    xd_lin    patch; /* [D, C p^2]: patch embedding */
    /* size, ratio: not declared if the model does not read the image size */
    xd_mlp    time, size, ratio;
    xd_lin    adaln;   /* [6D, D]: modulation of all blocks */
    xd_mlp    caption; /* text layers; only if the config has caption_channels */
    xd_tensor mod;     /* [2,D]: modulation table of the last norm */
    xd_lin    out;     /* [p^2 Cout, D]: output layer */
} glob;

typedef struct local {
    xd_tensor emb; /* [1,D] F32: embedding of timestep and size */
    xd_tensor mod; /* [6,D] F32: shift, scale, gate of attention and MLP */
} local;

typedef struct kept {
    /* [blocks of this stage that read text, m, 2 x this rank's part of D]: keys and values of the
     * text */
    xd_tensor kv;
} kept;

/* ---- configuration ------------------------------------------------------------------------ */

static xd_status check_kind(cfg *c, xd_err *e)
{
    if (strcmp(c->norm, "ada_norm_single") != 0)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: norm_type is '%s', not 'ada_norm_single': "
                       "this is neither a PixArt nor a Latte",
                       c->norm);
    if (strcmp(c->attention, "default") != 0)
        return xd_fail(e, XD_EUNSUPPORTED, "transformer: attention_type '%s' is not 'default'",
                       c->attention);
    if (c->affine || c->only_cross || c->double_self || c->vectors)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: norm_elementwise_affine, "
                       "only_cross_attention, double_self_attention and num_vector_embeds are not "
                       "supported for PixArt");
    if (strcmp(c->act_fn, "gelu-approximate") != 0 && strcmp(c->act_fn, "gelu") != 0)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: activation_fn '%s' is not "
                       "'gelu-approximate' or 'gelu'",
                       c->act_fn);
    c->act = strcmp(c->act_fn, "gelu") == 0 ? XD_GELU_ERF : XD_GELU_TANH;
    return XD_OK;
}

static xd_status check_sizes(cfg *c, xd_err *e)
{
    const xd_config_range r[] = {
        { "num_attention_heads", c->heads, 1, 4096 },
        { "attention_head_dim", c->head_dim, 8, 512 },
        { "in_channels", c->in_ch, 1, 65536 },
        { "num_layers", c->nlayers, 0, 10000 },
        { "cross_attention_dim", c->cross, 1, 1 << 24 },
        { "caption_channels", c->caption, 0, 1 << 24 },
        { "patch_size", c->patch, 1, 256 },
        { "sample_size", c->sample, c->patch, 1 << 20 },
        { "video_length", c->frames, 0, 1 << 20 },
    };
    if (xd_check_ranges(r, sizeof r / sizeof r[0], e) != XD_OK)
        return XD_EFORMAT;
    return XD_OK;
}

static xd_status check_config(void *c_, xd_err *e)
{
    cfg      *c = c_;
    xd_status s = check_kind(c, e);
    if (s != XD_OK || (s = check_sizes(c, e)) != XD_OK)
        return s;
    c->dim = c->heads * c->head_dim;
    if (c->micro < 0)
        c->micro = c->sample == 128 && !c->frames;
    if (c->out_ch == 0)
        c->out_ch = c->in_ch;
    if (isnan(c->scale))
        c->scale = c->sample / 64 > 1 ? (double)(c->sample / 64) : 1.0;
    if (!(c->scale > 0) || isinf(c->scale))
        return xd_fail(e, XD_EFORMAT, "transformer: interpolation_scale %g is not above 0",
                       c->scale);
    if (c->out_ch != c->in_ch && c->out_ch != 2 * c->in_ch)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: out_channels %lld is neither in_channels "
                       "%lld nor twice that (with a learned sigma)",
                       (long long)c->out_ch, (long long)c->in_ch);
    if (c->dim % 4 || (c->micro && c->dim % 3))
        return xd_fail(e, XD_EFORMAT,
                       "transformer: the width %lld (num_attention_heads %d x "
                       "attention_head_dim %lld) does not divide by 4%s",
                       (long long)c->dim, c->heads, (long long)c->head_dim,
                       c->micro ? " and 3" : "");
    if (c->caption && c->cross != c->dim)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: cross_attention_dim %lld is not the width %lld "
                       "to which caption_channels are projected",
                       (long long)c->cross, (long long)c->dim);
    return XD_OK;
}

static int nlayers(const void *c_)
{
    const cfg *c = c_;
    return c->frames ? 2 * c->nlayers : c->nlayers;
}

static int is_temporal(const cfg *c, int layer)
{
    return c->frames && layer % 2;
}

/* Returns how many blocks of this stage before block `layer` read the text. */
static int64_t readers_before(const xd_net *n, int layer)
{
    int64_t count = 0;
    for (int i = n->first; i < layer; i++)
        count += !is_temporal(n->cfg, i);
    return count;
}

static void info(const void *c_, xd_dit_info *out)
{
    const cfg *c = c_;
    *out = (xd_dit_info){
        .nlayers = nlayers(c),
        .heads = c->heads,
        .head_dim = (int)c->head_dim,
        .patch = { 1, (int)c->patch, (int)c->patch },
        .dim = c->dim,
        .lat_ch = c->in_ch,
        .sample = { c->frames ? c->frames : 1, c->sample, c->sample },
        .most = { c->frames },
        .grouped = c->frames > 0,
        .text_dim = c->caption ? c->caption : c->cross,
        .micro = c->micro,
        .sites = 1,
        .local_size = sizeof(local),
        .kept_size = sizeof(kept),
    };
}

/* ---- weights ------------------------------------------------------------------------------ */

/* Declares the weights of the cross-attention to the text. */
static void text_weights(xd_decl *d, const cfg *c, blk *w)
{
    static const char *const kv[] = { "to_k", "to_v" };
    int64_t                  D = c->dim, hd = c->head_dim;
    xd_w_enter(d, "attn2");
    xd_w_linear(
        d, &w->q, "to_q",
        &(xd_linear_spec){ .in = D, .out = D, .split = XD_COL, .unit = hd, .bias = c->bias });
    xd_w_fused(d, &w->kv,
               &(xd_fused_spec){ .n = 2,
                                 .names = kv,
                                 .in = c->cross,
                                 .out = { D, D },
                                 .split = XD_COL,
                                 .unit = hd,
                                 .bias = c->bias });
    xd_w_linear(d, &w->cross, "to_out.0",
                &(xd_linear_spec){ .in = D, .out = D, .split = XD_ROW, .unit = hd, .bias = 1 });
    xd_w_leave(d);
}

static void blk_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    static const char *const qkv[] = { "to_q", "to_k", "to_v" };
    const cfg               *c = c_;
    blk                     *w = w_;
    int64_t                  D = c->dim, hd = c->head_dim;

    xd_w_vec(d, &w->mod, "scale_shift_table", 2, (int64_t[]){ 6, D });
    xd_w_enter(d, "attn1");
    xd_w_fused(d, &w->qkv,
               &(xd_fused_spec){ .n = 3,
                                 .names = qkv,
                                 .in = D,
                                 .out = { D, D, D },
                                 .split = XD_COL,
                                 .unit = hd,
                                 .bias = c->bias });
    xd_w_linear(d, &w->out, "to_out.0",
                &(xd_linear_spec){ .in = D, .out = D, .split = XD_ROW, .unit = hd, .bias = 1 });
    xd_w_leave(d);
    if (!is_temporal(c, layer))
        text_weights(d, c, w);
    xd_w_linear(d, &w->up, "ff.net.0.proj",
                &(xd_linear_spec){ .in = D, .out = 4 * D, .split = XD_COL, .bias = 1 });
    xd_w_linear(d, &w->down, "ff.net.2",
                &(xd_linear_spec){ .in = 4 * D, .out = D, .split = XD_ROW, .bias = 1 });
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    int64_t    D = c->dim, p = c->patch;

    xd_w_linear_as(d, &g->patch, "pos_embed.proj", 4, (int64_t[]){ D, c->in_ch, p, p }, 1);
    xd_mlp_weights(d, "adaln_single.emb.timestep_embedder", &g->time, XD_SINUSOIDS, D, D);
    if (c->micro) {
        xd_mlp_weights(d, "adaln_single.emb.resolution_embedder", &g->size, XD_SINUSOIDS, D / 3,
                       D / 3);
        xd_mlp_weights(d, "adaln_single.emb.aspect_ratio_embedder", &g->ratio, XD_SINUSOIDS, D / 3,
                       D / 3);
    }
    xd_w_linear(d, &g->adaln, "adaln_single.linear",
                &(xd_linear_spec){ .in = D, .out = 6 * D, .bias = 1, .few = 1 });
    if (c->caption)
        xd_mlp_weights(d, "caption_projection", &g->caption, c->caption, D, D);
    xd_w_vec(d, &g->mod, "scale_shift_table", 2, (int64_t[]){ 2, D });
    xd_w_linear(d, &g->out, "proj_out",
                &(xd_linear_spec){ .in = D, .out = p * p * c->out_ch, .bias = 1 });
}

/* ---- conditioning ------------------------------------------------------------------------- */

/* Adds the embeddings of height, width and aspect ratio to the timestep embedding; each has D/3
 * features. */
static void add_micro(xd_exec *x, const glob *g, const double size[2], xd_tensor emb)
{
    double    ratio = (double)(float)(size[0] / size[1]);
    xd_tensor s = xd_mlp_timesteps(x, size, 2, &g->size),
              r = xd_mlp_timesteps(x, &ratio, 1, &g->ratio);
    int64_t   third = s.d[1];
    for (int i = 0; i < 2; i++)
        xd_add(x, xd_cols(emb, i * third, third), xd_rows(s, i, 1));
    xd_add(x, xd_cols(emb, 2 * third, third), r);
}

static void cond(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    local      *l = s->local;

    l->emb = xd_mlp_timesteps(x, &in->t, 1, &g->time);
    if (c->micro)
        add_micro(x, g, in->size, l->emb);
    xd_tensor a = xd_gated(x, l->emb, (xd_tensor){ 0 }, XD_SILU);
    l->mod = xd_reshape(xd_linear_f32(x, a, &g->adaln), 2, (int64_t[]){ 6, l->emb.d[1] });
}

static void keep_text(xd_exec *x, const xd_net *n, const xd_cond *text, void *kept_)
{
    kept   *k = kept_;
    int64_t blocks = readers_before(n, n->last);
    int     first = n->first + is_temporal(n->cfg, n->first);
    int64_t width = blocks ? ((const blk *)n->layer[first])->kv.w.out : 0;
    k->kv = xd_new_as(x, x->act, 3, (int64_t[]){ blocks, text->tok.d[0], width });
}

static void read_text(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept_)
{
    const kept *k = kept_;
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    size_t      mark = xd_arena_mark(x->tmp);
    xd_tensor   t = in->cond->tok;
    t = xd_as(x, c->caption ? xd_mlp_run(x, t, &g->caption, XD_GELU_TANH) : t, x->act);
    for (int i = n->first; i < n->last; i++)
        if (!is_temporal(c, i))
            xd_linear_into(x, xd_text_kv(k->kv, readers_before(n, i)), t,
                           &((const blk *)xd_net_layer(x, n, i))->kv);
    xd_arena_rewind(x->tmp, mark);
}

/* ---- positions ---------------------------------------------------------------------------- */

typedef struct axis {
    int64_t n, width;
    double  base, scale;
} axis;

/* Fills the position embedding [n,width] of the n rows or columns of the grid: sines, then cosines.
 * Positions are scaled so that each side of the grid has the length base / scale, independent of
 * the number of tokens along the side. Positions are f32 and angles f64, as in diffusers. */
static void fill_axis(void *ctx, float *buf)
{
    const axis *a = ctx;
    int64_t     half = a->width / 2;
    for (int64_t k = 0; k < half; k++) {
        double omega = 1.0 / pow(10000.0, (double)k / (double)half);
        for (int64_t i = 0; i < a->n; i++) {
            float p = (float)i / (float)((double)a->n / a->base) / (float)a->scale;
            buf[i * a->width + k] = (float)sin((double)p * omega);
            buf[i * a->width + half + k] = (float)cos((double)p * omega);
        }
    }
}

static xd_tensor axis_table(xd_exec *x, const cfg *c, int64_t n, int64_t width)
{
    axis      a = { n, width, (double)(c->sample / c->patch), c->scale };
    xd_tensor t;
    if (!xd_table_find(x, &(xd_table_key){ .fill = fill_axis }, XD_F32, (int64_t[]){ n, width },
                       &t))
        xd_fill(x, t, fill_axis, &a);
    return t;
}

/* Fills `to` with the position embedding of consecutive tokens, beginning with token `at`. The
 * first half of the features encodes the token's column, the second half the row. The tokens must
 * be part of one row of the grid, or several complete rows. */
static void set_lines(xd_exec *x, xd_tensor to, xd_tensor across, xd_tensor down, int64_t at)
{
    int64_t   H = x->lay->grid[1], W = x->lay->grid[2], half = to.d[1] / 2;
    int64_t   lines = xd_ceil_div(to.d[0], W), len = to.d[0] / lines;
    xd_tensor out = xd_view(to.p, to.type, 3, (int64_t[]){ lines, len, to.d[1] });
    out.s[0] = len * to.s[0], out.s[1] = to.s[0];
    xd_tensor columns = xd_cols(out, 0, half), row = columns;
    columns.p = xd_rows(across, at % W, 1).p;
    columns.s[0] = 0, columns.s[1] = across.s[0];
    row.p = xd_rows(down, at / W % H, 1).p;
    row.s[0] = down.s[0], row.s[1] = 0;
    xd_copy_to(x, xd_cols(out, 0, half), columns);
    xd_copy_to(x, xd_cols(out, half, half), row);
}

/* Fills h with the position embedding of this rank's tokens. One call of set_lines fills as many
 * consecutive complete rows of the grid as possible. */
static void add_positions(xd_exec *x, const cfg *c, xd_tensor h)
{
    int64_t   H = x->lay->grid[1], W = x->lay->grid[2], half = h.d[1] / 2, n = h.d[0] / x->B;
    xd_tensor across = axis_table(x, c, W, half), down = axis_table(x, c, H, half);
    for (int64_t row = 0, len; row < n; row += len) {
        int64_t at = xd_where(x, XD_IMG, row), run = xd_where_run(x, XD_IMG, row);
        len = at % W || run < W ? xd_min(W - at % W, run) : xd_min(run / W, H - at / W % H) * W;
        for (int64_t b = 0; b < x->B; b++)
            set_lines(x, xd_rows(h, b * n + row, len), across, down, at);
    }
}

/* Adds the position of its frame to each of this rank's tokens. */
static void add_times(xd_exec *x, const cfg *c, xd_tensor h)
{
    int64_t   T = x->lay->grid[0], P = x->lay->grid[1] * x->lay->grid[2];
    axis      a = { T, c->dim, (double)T, 1 };
    xd_tensor t;
    if (!xd_table_find(x, &(xd_table_key){ .fill = fill_axis }, XD_F32, (int64_t[]){ T, c->dim },
                       &t))
        xd_fill(x, t, fill_axis, &a);
    for (int64_t row = 0, len; row < h.d[0]; row += len) {
        int64_t at = xd_where(x, XD_IMG, row);
        len = xd_min(P - at % P, xd_where_run(x, XD_IMG, row));
        xd_tensor time = xd_rows(t, at / P, 1);
        time.d[0] = len, time.s[0] = 0;
        xd_add(x, xd_rows(h, row, len), time);
    }
}

static void embed(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    int64_t     rows = x->B * xd_n(x, XD_IMG);
    if (!xd_check(x, in->lat.d[0] == rows && s->h.d[0] == rows,
                  "%lld image tokens do not match %lld rows of state and %lld of latents",
                  (long long)rows, (long long)s->h.d[0], (long long)in->lat.d[0]))
        return;
    size_t mark = xd_arena_mark(x->tmp);
    add_positions(x, n->cfg, s->h);
    xd_linear_add(x, s->h, (xd_tensor){ 0 }, in->lat, &g->patch);
    xd_arena_rewind(x->tmp, mark);
}

/* ---- running ------------------------------------------------------------------------------ */

static void run_block(xd_exec *x, const xd_net *n, const blk *w, xd_state *s, xd_group group)
{
    const cfg   *c = n->cfg;
    const local *l = s->local;
    const kept  *k = s->kept;
    xd_tensor    h = s->h, none = { 0 }, mod = xd_mod_table(x, w->mod, l->mod), m[6];
    int64_t      hd = c->head_dim;
    for (int i = 0; i < 6; i++)
        m[i] = xd_rows(mod, i, 1);

    xd_norm   a = { .in = h, .scale = m[1], .shift = m[0], .eps = c->eps };
    xd_tensor y = xd_linear(x, xd_norm_for(x, &a, &w->qkv, NULL), &w->qkv);
    xd_tensor o = xd_attn_grouped(x, group, xd_heads(xd_seg(y, &w->qkv, 0), hd),
                                  xd_heads(xd_seg(y, &w->qkv, 1), hd),
                                  xd_heads(xd_seg(y, &w->qkv, 2), hd), 0);
    xd_linear_add(x, h, m[2], xd_flat(o), &w->out);

    if (group != XD_GROUP_PLACE) {
        o = xd_attn_text(x, xd_linear(x, h, &w->q), xd_text_kv(k->kv, readers_before(n, x->layer)),
                         &w->kv, hd);
        xd_linear_add(x, h, none, o, &w->cross);
    }

    a.scale = m[4], a.shift = m[3];
    xd_tensor u = xd_linear_act(x, xd_norm_for(x, &a, &w->up, NULL), &w->up, c->act);
    xd_linear_add(x, h, m[5], u, &w->down);
}

static void forward(xd_exec *x, const xd_net *n, const void *w, xd_state *s)
{
    run_block(x, n, w, s, ((const cfg *)n->cfg)->frames ? XD_GROUP_FRAME : XD_GROUP_NONE);
}

static void forward_temporal(xd_exec *x, const xd_net *n, const void *w, xd_state *s)
{
    if (x->layer == 1 && x->lay->grid[0] > 1)
        add_times(x, n->cfg, s->h);
    run_block(x, n, w, s, XD_GROUP_PLACE);
}

/* Computes the network's output. proj_out's outputs are in the order (row, column, channel), and
 * include channels for noise and variance. The result has the order (channel, row, column), and
 * only the channels of the noise. */
static xd_tensor head(xd_exec *x, const xd_net *n, xd_state *s)
{
    const glob  *g = n->glob;
    const cfg   *c = n->cfg;
    const local *l = s->local;
    xd_tensor    m = xd_mod_table(x, g->mod, l->emb);
    return xd_patch_head(x, s->h, xd_rows(m, 1, 1), xd_rows(m, 0, 1), &g->out, c->in_ch,
                         c->patch * c->patch);
}

static const xd_block kind = { "transformer_blocks.%d", sizeof(blk), blk_weights, forward };
static const xd_block temporal = { "temporal_transformer_blocks.%d", sizeof(blk), blk_weights,
                                   forward_temporal };

static const xd_block *block(const void *c, int layer)
{
    return is_temporal(c, layer) ? &temporal : &kind;
}

#define DIT(NAME, CLASS, FIELDS) { \
    .net = { .name = NAME, .classes = { CLASS }, .fields = FIELDS, .cfg_size = sizeof(cfg), \
             .glob_size = sizeof(glob), .check = check_config, .nlayers = nlayers, .block = block, \
             .weights = weights }, \
    .info = info, .keep = keep_text, .read = read_text, .cond = cond, .embed = embed, .head = head }

extern const xd_dit xd_dit_pixart, xd_dit_pixart_2d, xd_dit_latte;

const xd_dit xd_dit_pixart = DIT("pixart", "PixArtTransformer2DModel", fields);
const xd_dit xd_dit_pixart_2d = DIT("pixart", "Transformer2DModel", fields_2d);
const xd_dit xd_dit_latte = DIT("latte", "LatteTransformer3DModel", fields_video);
