/* dit.c - runs the transformers of CogVideoX and CogVideoX1.5 (Yang et al. 2024, arXiv:2408.06072)
 * like diffusers' CogVideoXTransformer3DModel.
 *
 * Text and video tokens form one sequence, and a block has the same weights for both; only the
 * modulation of norms and gates differs between text and video. Positions enter as sinusoids added
 * to the input (CogVideoX-2b), by RoPE over (frame, row, column) (CogVideoX-5b and 1.5), or by RoPE
 * and a learned table (CogVideoX-5b for image to video). */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "dit/layers.h"
#include "exec/tables.h"

static const float  qk_eps = 1e-6f;
static const double theta = 10000.0;
/* The value that the pipelines pass for the model input `ofs`. */
static const double offset = 2.0;

typedef struct cfg {
    int64_t head_dim, in_ch, out_ch, temb, ofs, text, patch, patch_t, width, height, frames,
        most_text;
    int     heads, nlayers, bias, flip, ratio, affine, rope, learned, patch_bias;
    double  freq_shift, space, time;
    float   eps;
    char    act_fn[XD_FIELD_TEXT], time_act[XD_FIELD_TEXT];
    int64_t dim; /* D = heads * head_dim */
} cfg;

#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    { "num_attention_heads", AT(heads), 'i', 30, NULL },
    { "attention_head_dim", AT(head_dim), 'l', 64, NULL },
    { "in_channels", AT(in_ch), 'l', 16, NULL },
    { "out_channels", AT(out_ch), 'l', 16, NULL },
    { "flip_sin_to_cos", AT(flip), 'b', 1, NULL },
    { "freq_shift", AT(freq_shift), 'd', 0, NULL },
    { "time_embed_dim", AT(temb), 'l', 512, NULL },
    { "ofs_embed_dim", AT(ofs), 'l', 0, NULL },
    { "text_embed_dim", AT(text), 'l', 4096, NULL },
    { "num_layers", AT(nlayers), 'i', 30, NULL },
    { "dropout", 0, '-', 0, NULL },
    { "attention_bias", AT(bias), 'b', 1, NULL },
    { "sample_width", AT(width), 'l', 90, NULL },
    { "sample_height", AT(height), 'l', 60, NULL },
    { "sample_frames", AT(frames), 'l', 49, NULL },
    { "patch_size", AT(patch), 'l', 2, NULL },
    { "patch_size_t", AT(patch_t), 'l', 0, NULL },
    { "temporal_compression_ratio", AT(ratio), 'i', 4, NULL },
    { "max_text_seq_length", AT(most_text), 'l', 226, NULL },
    { "activation_fn", AT(act_fn), 's', 0, "gelu-approximate" },
    { "timestep_activation_fn", AT(time_act), 's', 0, "silu" },
    { "norm_elementwise_affine", AT(affine), 'b', 1, NULL },
    { "norm_eps", AT(eps), 'f', 1e-5, NULL },
    { "spatial_interpolation_scale", AT(space), 'd', 1.875, NULL },
    { "temporal_interpolation_scale", AT(time), 'd', 1.0, NULL },
    { "use_rotary_positional_embeddings", AT(rope), 'b', 0, NULL },
    { "use_learned_positional_embeddings", AT(learned), 'b', 0, NULL },
    { "patch_bias", AT(patch_bias), 'b', 1, NULL },
    { NULL, 0, 0, 0, NULL },
};

typedef struct zero {     /* a norm and its modulations, one for video, one for text */
    xd_lin    mod;        /* [6D, time_embed_dim]: shift, scale, gate of video, then text */
    xd_tensor gain, bias; /* [D]: gain and bias of the norm, or absent */
} zero;

typedef struct blk {
    zero      before, after; /* norm before attention; norm before the feed-forward */
    xd_lin    qkv, out, up, down;
    xd_tensor q_gain, q_bias, k_gain, k_bias; /* [head_dim]: norms of queries and keys */
} blk;

typedef struct glob {
    xd_lin    patch, text, mod, out;
    xd_mlp    time, ofs;
    xd_tensor places; /* [text + tokens of the sample, D]: learned position table */
    xd_tensor gain, bias, out_gain, out_bias; /* [D]: gains and biases of the final norms */
} glob;

typedef struct local {
    xd_tensor active;   /* [1, time_embed_dim]: silu of the time embedding */
    xd_tensor cos, sin; /* [n,head_dim/2] F32: RoPE of video tokens, or absent */
} local;

/* ---- configuration ------------------------------------------------------------------------ */

static int64_t frames_of(const cfg *c)
{
    return (c->frames - 1) / c->ratio + 1;
}

static xd_status check_kind(const cfg *c, xd_err *e)
{
    if (strcmp(c->act_fn, "gelu-approximate") != 0 || strcmp(c->time_act, "silu") != 0)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: activation_fn '%s' and timestep_activation_fn '%s': only "
                       "gelu-approximate and silu are supported",
                       c->act_fn, c->time_act);
    if (c->learned && !c->rope)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: learned positions without rotary ones are not supported");
    if (c->rope && c->head_dim % 16)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: attention_head_dim %lld is not a multiple of "
                       "16, which RoPE over three axes needs",
                       (long long)c->head_dim);
    if (!c->rope && c->dim % 16)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: the width %lld is not a multiple of 16, as "
                       "sinusoids over three axes need",
                       (long long)c->dim);
    if (!(c->space > 0) || !(c->time > 0))
        return xd_fail(e, XD_EFORMAT,
                       "transformer: the interpolation scales %g and %g are not "
                       "above 0",
                       c->space, c->time);
    return XD_OK;
}

static xd_status check_config(void *c_, xd_err *e)
{
    cfg                  *c = c_;
    const xd_config_range r[] = {
        { "num_attention_heads", c->heads, 1, 4096 },
        { "attention_head_dim", c->head_dim, 8, 512 },
        { "out_channels", c->out_ch, 1, 65536 },
        { "in_channels", c->in_ch, c->out_ch, 65536 },
        { "num_layers", c->nlayers, 0, 10000 },
        { "time_embed_dim", c->temb, 1, 1 << 20 },
        { "ofs_embed_dim", c->ofs, 0, 1 << 20 },
        { "text_embed_dim", c->text, 1, 1 << 24 },
        { "patch_size", c->patch, 1, 256 },
        { "patch_size_t", c->patch_t, 0, 256 },
        { "sample_width", c->width, c->patch, 1 << 16 },
        { "sample_height", c->height, c->patch, 1 << 16 },
        { "sample_frames", c->frames, 1, 1 << 16 },
        { "temporal_compression_ratio", c->ratio, 1, 256 },
        { "max_text_seq_length", c->most_text, 1, 1 << 16 },
    };
    if (xd_check_ranges(r, sizeof r / sizeof r[0], e) != XD_OK)
        return XD_EFORMAT;
    c->dim = c->heads * c->head_dim;
    if (c->ofs && c->ofs != c->temb)
        return xd_fail(e, XD_EFORMAT, "transformer: ofs_embed_dim %lld is not time_embed_dim %lld",
                       (long long)c->ofs, (long long)c->temb);
    return check_kind(c, e);
}

static void info(const void *c_, xd_dit_info *out)
{
    const cfg *c = c_;
    *out = (xd_dit_info){
        .nlayers = c->nlayers,
        .heads = c->heads,
        .head_dim = (int)c->head_dim,
        .patch = { c->patch_t ? (int)c->patch_t : 1, (int)c->patch, (int)c->patch },
        .dim = c->dim,
        .lat_ch = c->out_ch,
        .extra_ch = c->in_ch - c->out_ch,
        .sample = { frames_of(c), c->height, c->width },
        .fixed = c->learned,
        .text_dim = c->text,
        /* The default number of text rows is the pipeline's for models with RoPE, and the config's
         * for models with sinusoids. */
        .text_default = c->rope ? 0 : c->most_text,
        .txt_flows = 1,
        .sites = 1,
        .local_size = sizeof(local),
        .probe_dim = c->temb,
    };
}

static int nlayers(const void *c)
{
    return ((const cfg *)c)->nlayers;
}

/* ---- weights ------------------------------------------------------------------------------ */

static void declare_norm(xd_decl *d, const cfg *c, const char *name, xd_tensor *gain,
                         xd_tensor *bias)
{
    if (c->affine)
        xd_w_affine(d, name, gain, bias, c->dim);
}

static void zero_weights(xd_decl *d, const cfg *c, const char *name, zero *w)
{
    xd_w_enter(d, "%s", name);
    xd_w_linear(d, &w->mod, "linear",
                &(xd_linear_spec){ .in = c->temb, .out = 6 * c->dim, .bias = 1, .few = 1 });
    declare_norm(d, c, "norm", &w->gain, &w->bias);
    xd_w_leave(d);
}

static int64_t active_width(const void *c)
{
    return ((const cfg *)c)->temb;
}

static int64_t mod_width(const void *c, int layer)
{
    (void)layer;
    return 12 * ((const cfg *)c)->dim;
}

static void blk_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    static const char *const qkv[] = { "to_q", "to_k", "to_v" };
    const cfg               *c = c_;
    blk                     *w = w_;
    int64_t                  D = c->dim, hd = c->head_dim;
    (void)layer;
    zero_weights(d, c, "norm1", &w->before);
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
    xd_w_vec(d, &w->q_gain, "norm_q.weight", 1, &hd);
    xd_w_vec(d, &w->q_bias, "norm_q.bias", 1, &hd);
    xd_w_vec(d, &w->k_gain, "norm_k.weight", 1, &hd);
    xd_w_vec(d, &w->k_bias, "norm_k.bias", 1, &hd);
    xd_w_leave(d);
    zero_weights(d, c, "norm2", &w->after);
    xd_w_linear(d, &w->up, "ff.net.0.proj",
                &(xd_linear_spec){ .in = D, .out = 4 * D, .split = XD_COL, .bias = 1 });
    xd_w_linear(d, &w->down, "ff.net.2",
                &(xd_linear_spec){ .in = 4 * D, .out = D, .split = XD_ROW, .bias = 1 });
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    int64_t    D = c->dim, p = c->patch, t = c->patch_t;
    int64_t    tokens = frames_of(c) * (c->height / p) * (c->width / p);
    if (t)
        xd_w_linear(d, &g->patch, "patch_embed.proj",
                    &(xd_linear_spec){ .in = c->in_ch * t * p * p, .out = D, .bias = 1 });
    else
        xd_w_linear_as(d, &g->patch, "patch_embed.proj", 4, (int64_t[]){ D, c->in_ch, p, p },
                       c->patch_bias);
    xd_w_linear(d, &g->text, "patch_embed.text_proj",
                &(xd_linear_spec){ .in = c->text, .out = D, .bias = 1 });
    if (c->learned)
        xd_w_table_as(d, &g->places, "patch_embed.pos_embedding", 3,
                      (int64_t[]){ 1, c->most_text + tokens, D });
    xd_mlp_weights(d, "time_embedding", &g->time, D, c->temb, c->temb);
    if (c->ofs)
        xd_mlp_weights(d, "ofs_embedding", &g->ofs, c->ofs, c->ofs, c->ofs);
    declare_norm(d, c, "norm_final", &g->gain, &g->bias);
    xd_w_linear(d, &g->mod, "norm_out.linear",
                &(xd_linear_spec){ .in = c->temb, .out = 2 * D, .bias = 1 });
    declare_norm(d, c, "norm_out.norm", &g->out_gain, &g->out_bias);
    xd_w_linear(d, &g->out, "proj_out",
                &(xd_linear_spec){ .in = D, .out = (t ? t : 1) * p * p * c->out_ch, .bias = 1 });
}

/* ---- rotary positions --------------------------------------------------------------------- */

/* Fills the RoPE angles of video tokens. In CogVideoX1.5 the positions are token indices. In
 * earlier models, positions are scaled from the grid of tokens to the grid of the training size. */
static void fill_angles(void *ctx, float *buf)
{
    const xd_rope *t = ctx;
    const cfg     *c = t->cfg;
    int64_t        H = t->x->lay->grid[1], W = t->x->lay->grid[2], hd = c->head_dim;
    xd_grid_side   rows = { H, 0, 0, 1 }, cols = { W, 0, 0, 1 };
    /* one value per pair of features; a head has at most 512 features */
    float          time[64], side[96];
    xd_rope_frequencies(time, hd / 4);
    xd_rope_frequencies(side, hd / 8 * 3);
    if (!c->patch_t)
        xd_grid_crop(c->height / c->patch, c->width / c->patch, H, W, &rows, &cols);
    for (int64_t i = 0; i < xd_n(t->x, XD_IMG); i++) {
        int64_t at = xd_where(t->x, XD_IMG, i);
        buf = xd_rope_angles(buf, hd / 4, time, (float)(at / (H * W)), t->fn);
        buf = xd_rope_angles(buf, hd / 8 * 3, side, xd_grid_at(&rows, at / W % H), t->fn);
        buf = xd_rope_angles(buf, hd / 8 * 3, side, xd_grid_at(&cols, at % W), t->fn);
    }
}

/* Returns the embedding of timestep t, and of `ofs` if the model has it: [1, time_embed_dim]
 * F32. */
static xd_tensor embed_time(xd_exec *x, const xd_net *n, double t)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    xd_tensor   waves = xd_time_embed(x, &t, 1, c->dim, c->flip, c->freq_shift);
    xd_tensor   emb = xd_mlp_run(x, waves, &g->time, XD_SILU);
    if (c->ofs) {
        waves = xd_time_embed(x, &offset, 1, c->ofs, c->flip, c->freq_shift);
        xd_add(x, emb, xd_mlp_run(x, waves, &g->ofs, XD_SILU));
    }
    return emb;
}

static xd_tensor active(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept)
{
    (void)kept;
    return xd_gated(x, embed_time(x, n, in->t), (xd_tensor){ 0 }, XD_SILU);
}

static void cond(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const cfg *c = n->cfg;
    local     *l = s->local;
    l->active = xd_mods_input(x, n, in, s->kept, active);
    if (c->rope) {
        l->cos = xd_rope_table(x, xd_n(x, XD_IMG), c->head_dim / 2, fill_angles, c, cos);
        l->sin = xd_rope_table(x, xd_n(x, XD_IMG), c->head_dim / 2, fill_angles, c, sin);
    }
}

/* ---- embedding ---------------------------------------------------------------------------- */

typedef struct waves { /* arguments of the function fill_waves */
    const xd_exec *x;
    const cfg     *c;
} waves;

/* Writes the sinusoids of one position, `width` values: all sines, then all cosines. */
static float *sinusoids(float *row, int64_t width, double pos)
{
    int64_t half = width / 2;
    for (int64_t k = 0; k < half; k++) {
        double a = pos / pow(theta, (double)k / (double)half);
        row[k] = (float)sin(a);
        row[half + k] = (float)cos(a);
    }
    return row + width;
}

/* Fills the position embedding of the video tokens. The first quarter of the features encodes the
 * token's frame, the next 3/8 its column, the last 3/8 its row. */
static void fill_waves(void *ctx, float *buf)
{
    const waves *w = ctx;
    const cfg   *c = w->c;
    int64_t      H = w->x->lay->grid[1], W = w->x->lay->grid[2], D = c->dim;
    for (int64_t i = 0; i < xd_n(w->x, XD_IMG); i++) {
        int64_t at = xd_where(w->x, XD_IMG, i);
        buf = sinusoids(buf, D / 4, (double)((float)(at / (H * W)) / (float)c->time));
        buf = sinusoids(buf, 3 * D / 8, (double)((float)(at % W) / (float)c->space));
        buf = sinusoids(buf, 3 * D / 8, (double)((float)(at / W % H) / (float)c->space));
    }
}

typedef struct places {
    const xd_exec *x;
    xd_stream_id   stream;
} places;

static int64_t place_of(const void *ctx, int64_t i)
{
    const places *p = ctx;
    return xd_where(p->x, p->stream, i);
}

static int fits_table(xd_exec *x, const cfg *c)
{
    const int64_t *n = x->lay->grid;
    return xd_check(x,
                    !c->learned ||
                        (n[0] == frames_of(c) && n[1] == c->height / c->patch &&
                         n[2] == c->width / c->patch && x->lay->len[XD_TXT] <= c->most_text),
                    "this model has learned positions for %lld x %lld x %lld tokens and %lld of "
                    "text only",
                    (long long)frames_of(c), (long long)(c->height / c->patch),
                    (long long)(c->width / c->patch), (long long)c->most_text);
}

static void embed(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    int64_t     ntxt = xd_n(x, XD_TXT), nimg = xd_n(x, XD_IMG);
    if (!xd_check(x, in->lat.d[0] == nimg && in->txt.d[0] == ntxt && s->h.d[0] == nimg + ntxt,
                  "%lld video and %lld text tokens do not match %lld rows of state",
                  (long long)nimg, (long long)ntxt, (long long)s->h.d[0]) ||
        !fits_table(x, c))
        return;
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor txt = xd_rows(s->h, 0, ntxt), img = xd_rows(s->h, ntxt, nimg);
    if (ntxt)
        xd_linear_into(x, txt, in->txt, &g->text);
    xd_linear_into(x, img, xd_join_channels(x, in), &g->patch);
    if (c->learned) {
        xd_tensor frames = xd_rows(g->places, c->most_text, g->places.d[0] - c->most_text);
        xd_add(x, txt, xd_lookup_places(x, g->places, ntxt, place_of, &(places){ x, XD_TXT }));
        xd_add(x, img, xd_lookup_places(x, frames, nimg, place_of, &(places){ x, XD_IMG }));
    } else if (!c->rope) {
        waves     w = { x, c };
        xd_tensor t;
        if (!xd_table_find(x, &(xd_table_key){ .fill = fill_waves }, XD_F32,
                           (int64_t[]){ nimg, c->dim }, &t))
            xd_fill(x, t, fill_waves, &w);
        xd_add(x, img, t);
    }
    xd_arena_rewind(x->tmp, mark);
}

/* ---- step caches -------------------------------------------------------------------------- */

static xd_tensor probe(xd_exec *x, const xd_net *n, xd_state *s)
{
    return embed_time(x, n, s->t);
}

/* Writes the polynomial that TeaCache4CogVideoX1.5 publishes for this model. Polynomials are
 * published for CogVideoX-2b, for 5b (with or without an image), for 1.5 from text, and for 1.5
 * from an image. */
static int change_poly(const void *c_, double poly[5])
{
    static const double of[4][5] = {
        { -3.10658903e+01, 2.54732368e+01, -5.92380459e+00, 1.75769064e+00, -3.61568434e-03 },
        { -1.53880483e+03, 8.43202495e+02, -1.34363087e+02, 7.97131516e+00, -5.23162339e-02 },
        { 2.50210439e+02, -1.65061612e+02, 3.57804877e+01, -7.81551492e-01, 3.58559703e-02 },
        { 1.22842302e+02, -1.04088754e+02, 2.62981677e+01, -3.06009921e-01, 3.71213220e-02 },
    };
    const cfg *c = c_;
    int        i = !c->rope ? 0 : !c->patch_t ? 1 : c->in_ch == c->out_ch ? 2 : 3;
    memcpy(poly, of[i], sizeof of[i]);
    return 1;
}

/* ---- running ------------------------------------------------------------------------------ */

enum { VIDEO, TEXT }; /* a block has one modulation for video, one for text */

/* Normalizes and modulates the video rows and the text rows of h. Returns one tensor with the text
 * rows first, then the video rows. */
static xd_tensor norm_streams(xd_exec *x, const cfg *c, const zero *w, xd_tensor h, xd_tensor mod,
                              int64_t ntxt)
{
    xd_tensor y = xd_new(x, h.d[0], h.d[1]);
    for (int half = VIDEO; half <= TEXT; half++) {
        int64_t at = half == TEXT ? 0 : ntxt, n = half == TEXT ? ntxt : h.d[0] - ntxt;
        xd_norm_into(x, &(xd_norm){ .out = xd_rows(y, at, n),
                                    .in = xd_rows(h, at, n),
                                    .gain = w->gain,
                                    .bias = w->bias,
                                    .scale = xd_rows(mod, 3 * half + 1, 1),
                                    .shift = xd_rows(mod, 3 * half, 1),
                                    .eps = c->eps });
    }
    return y;
}

static void add_streams(xd_exec *x, xd_tensor h, xd_tensor mod, xd_tensor in, const xd_lin *w,
                        int64_t ntxt)
{
    xd_linear_add(x, xd_rows(h, 0, ntxt), xd_rows(mod, 3 * TEXT + 2, 1), xd_rows(in, 0, ntxt), w);
    xd_linear_add(x, xd_rows(h, ntxt, h.d[0] - ntxt), xd_rows(mod, 3 * VIDEO + 2, 1),
                  xd_rows(in, ntxt, h.d[0] - ntxt), w);
}

/* Normalizes the queries and keys in rows [at, at + n) of y, the output of the qkv layer. If cos
 * and sin are present, also applies RoPE. */
static void norm_heads(xd_exec *x, const blk *w, const xd_qkv *a, xd_tensor y, int64_t at,
                       int64_t n, xd_tensor cos, xd_tensor sin)
{
    int64_t   hd = a->q.d[2];
    xd_tensor part = xd_rows(y, at, n);
    xd_qk_layer_norm_into(x, &(xd_qknorm){ .out = xd_rows(a->q, at, n),
                                           .in = xd_heads(xd_seg(part, &w->qkv, 0), hd),
                                           .gain = w->q_gain,
                                           .bias = w->q_bias,
                                           .also = { .out = xd_rows(a->k, at, n),
                                                     .in = xd_heads(xd_seg(part, &w->qkv, 1), hd),
                                                     .gain = w->k_gain,
                                                     .bias = w->k_bias },
                                           .cos = cos,
                                           .sin = sin,
                                           .eps = qk_eps });
}

static void forward(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const blk   *w = w_;
    const cfg   *c = n->cfg;
    const local *l = s->local;
    int64_t      ntxt = xd_n(x, XD_TXT);
    xd_tensor    mod = xd_mod_rows(x, l->active, &w->before.mod, 6);
    size_t       mark = xd_arena_mark(x->tmp);
    xd_tensor    y = xd_linear(x, norm_streams(x, c, &w->before, s->h, mod, ntxt), &w->qkv);
    xd_qkv       a = xd_qkv_open(x, y, &w->qkv, c->head_dim);
    norm_heads(x, w, &a, y, 0, ntxt, (xd_tensor){ 0 }, (xd_tensor){ 0 });
    norm_heads(x, w, &a, y, ntxt, y.d[0] - ntxt, l->cos, l->sin);
    xd_tensor o = xd_flat(xd_attn(x, a.q, a.k, a.v, 0));
    add_streams(x, s->h, mod, o, &w->out, ntxt);
    xd_arena_rewind(x->tmp, mark);
    mod = xd_mod_rows(x, l->active, &w->after.mod, 6);
    y = xd_linear_act(x, norm_streams(x, c, &w->after, s->h, mod, ntxt), &w->up, XD_GELU_TANH);
    add_streams(x, s->h, mod, y, &w->down, ntxt);
}

/* Computes the network's output from the video tokens. The last two layers before the output layer
 * are norms; the modulation of the second norm has two rows: shift, then scale. */
static xd_tensor head(xd_exec *x, const xd_net *n, xd_state *s)
{
    const glob  *g = n->glob;
    const cfg   *c = n->cfg;
    const local *l = s->local;
    int64_t      ntxt = xd_n(x, XD_TXT), N = xd_n(x, XD_IMG);
    xd_tensor    out = xd_new_f32(x, N, g->out.w.out);
    size_t       mark = xd_arena_mark(x->tmp);
    xd_tensor    mod = xd_mod_rows(x, l->active, &g->mod, 2), a = xd_new_f32(x, N, c->dim);
    xd_norm_into(x, &(xd_norm){ .out = a,
                                .in = xd_rows(s->h, ntxt, N),
                                .gain = g->gain,
                                .bias = g->bias,
                                .eps = c->eps });
    xd_norm_into(x, &(xd_norm){ .out = a,
                                .in = a,
                                .gain = g->out_gain,
                                .bias = g->out_bias,
                                .scale = xd_rows(mod, 1, 1),
                                .shift = xd_rows(mod, 0, 1),
                                .eps = c->eps });
    xd_linear_into(x, out, a, &g->out);
    xd_arena_rewind(x->tmp, mark);
    return out;
}

static const xd_block kind = { "transformer_blocks.%d", sizeof(blk), blk_weights, forward };

static const xd_block *block(const void *c, int layer)
{
    (void)c, (void)layer;
    return &kind;
}

extern const xd_dit xd_dit_cogvideox;

const xd_dit xd_dit_cogvideox = {
    .net = { .name = "cogvideox",
             .classes = { "CogVideoXTransformer3DModel" },
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
    .probe = probe,
    .change_poly = change_poly,
};
