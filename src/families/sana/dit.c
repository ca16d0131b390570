/* dit.c - runs the transformer of SANA (Xie et al. 2024, arXiv:2410.10629), SANA 1.5
 * (arXiv:2501.18427) and SANA-Sprint (arXiv:2503.09641) like diffusers' SanaTransformer2DModel, and
 * that of SANA-Video (Chen et al. 2025, arXiv:2509.24695) like diffusers'
 * SanaVideoTransformer3DModel.
 *
 * The attention over tokens is linear. The timestep enters as one modulation [6,D] for all blocks
 * (adaLN-single), to which each block adds its own table. Text enters by cross-attention, whose
 * input is not normalized. The feed-forward convolves the tokens as pixels of an image, which is
 * the only source of positions in most models of images.
 *
 * In SANA-Video, RoPE rotates queries and keys after the kernel function, except in the divisor of
 * the attention, and the feed-forward ends with a convolution over frames. The tokens of a frame
 * that is given as an image have timestep 0.
 *
 * A side network (diffusers' SanaControlNetModel) has blocks like those of the transformer and a
 * hidden state of its own. Its block i runs directly after block i + 1 of the transformer, and adds
 * to that block's output what a linear layer computes from its state. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "dit/layers.h"
#include "dit/sides.h"
#include "dit/timed.h"

static const double theta = 10000;
static const float  text_eps = 1e-5f, heads_eps = 1e-5f; /* of the norms of text, and of q and k */
static const float  last_eps = 1e-6f;                    /* of the last norm */

typedef struct cfg {
    int64_t head_dim, cross_head_dim, in_ch, out_ch, cross, caption, sample, side;
    int     heads, cross_heads, nlayers, bias, affine, guided;
    float   eps;
    double  ratio, interpolation, guidance_scale, time_scale;
    char    qk_norm[XD_FIELD_TEXT];
    int     norms;   /* 1: queries and keys are normalized over all heads */
    int64_t dim, ff; /* D = heads * head_dim; width of the feed-forward */
    xd_ints patch;   /* latent cells per token: frames, rows, columns */
    int     video;   /* 1: SANA-Video */
    int64_t most;    /* SANA-Video: max number of tokens along an axis */
    xd_ints axes;    /* SANA-Video: number of head features rotated by frame, row, column */
} cfg;

/* The config of the transformer with its side networks. */
typedef struct whole_cfg {
    cfg      main;
    int      nsides;
    cfg      side[XD_MAXSIDES];
    xd_sides order; /* the order of the blocks of all networks */
} whole_cfg;

#define AT(m) offsetof(cfg, m)
/* The fields of both classes; the arguments are defaults. */
#define FIELDS(channels, nheads, width, cells)                    \
    { "in_channels", AT(in_ch), 'l', channels, NULL },                  \
    { "out_channels", AT(out_ch), 'l', channels, NULL },                \
    { "num_attention_heads", AT(heads), 'i', nheads, NULL },            \
    { "attention_head_dim", AT(head_dim), 'l', width, NULL },           \
    { "num_layers", AT(nlayers), 'i', 20, NULL },                       \
    { "num_cross_attention_heads", AT(cross_heads), 'i', 20, NULL },    \
    { "cross_attention_head_dim", AT(cross_head_dim), 'l', 112, NULL }, \
    { "cross_attention_dim", AT(cross), 'l', 2240, NULL },              \
    { "caption_channels", AT(caption), 'l', 2304, NULL },               \
    { "mlp_ratio", AT(ratio), 'd', 2.5, NULL },                         \
    { "attention_bias", AT(bias), 'b', 0, NULL },                       \
    { "sample_size", AT(sample), 'l', cells, NULL },                    \
    { "norm_elementwise_affine", AT(affine), 'b', 0, NULL },            \
    { "norm_eps", AT(eps), 'f', 1e-6, NULL },                           \
    { "interpolation_scale", AT(interpolation), 'd', NAN, NULL },       \
    { "guidance_embeds", AT(guided), 'b', 0, NULL },                    \
    { "guidance_embeds_scale", AT(guidance_scale), 'd', 0.1, NULL },    \
    { "qk_norm", AT(qk_norm), 's', 0, "" },                           \
    { "timestep_scale", AT(time_scale), 'd', 1, NULL },                 \
    { "dropout", 0, '-', 0, NULL }

static const xd_field fields[] = {
    FIELDS(32, 70, 32, 32),
    { "patch_size", AT(side), 'l', 1, NULL },
    { XD_SIDES_KEY, 0, '-', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

static const xd_field video_fields[] = {
    FIELDS(16, 20, 112, 30),
    { "patch_size", AT(patch), 'L', 0, NULL },
    { "rope_max_seq_len", AT(most), 'l', 1024, NULL },
    { NULL, 0, 0, 0, NULL },
};

typedef struct blk {
    xd_tensor mod; /* [6,D]: table added to the modulation */
    xd_lin    qkv, out, q, kv, cross, up, down;
    xd_cnv    conv;   /* 3 x 3 convolution of each channel of the feed-forward */
    xd_cnv    frames; /* SANA-Video: convolution over frames */
    /* [D]: gains of the norms over all heads of q and k, and of those of the cross-attention */
    xd_tensor q_gain, k_gain, cross_q, cross_k;
} blk;

typedef struct glob {
    xd_lin    patch;          /* [D, C p^2]: patch embedding */
    xd_mlp    time, guidance; /* guidance: only if the config has guidance_embeds */
    xd_lin    adaln;          /* [6D, D]: modulation of all blocks */
    xd_mlp    caption;        /* text layers */
    xd_tensor text_norm;      /* [D]: gain of the norm of the text */
    xd_tensor mod;            /* [2,D]: modulation table of the last norm */
    xd_lin    out;            /* [p^2 Cout, D]: output layer */
    /* This rank's features of the attention and of the cross-attention. */
    xd_span   features, cross_features;
    int       cut; /* 1: the heads are split over ranks */
} glob;

typedef struct side_blk {
    blk    b;
    xd_lin residual; /* layer from the hidden state to what is added */
} side_blk;

typedef struct whole_glob {
    glob   main, side[XD_MAXSIDES]; /* the side networks have no last norm and no output layer */
    xd_lin input[XD_MAXSIDES];      /* [D,D]: layer behind the embedding of the control image */
} whole_glob;

typedef struct local {
    xd_timed  timed;
    xd_tensor emb; /* [times,D] F32: embeddings of timesteps and guidance */
    /* [6 times,D] F32: for each timestep, shift, scale, gate of attention and feed-forward */
    xd_tensor mod;
    xd_tensor cos, sin; /* SANA-Video: [n,head_dim/2] F32: RoPE of this rank's tokens */
} local;

typedef struct whole_local {
    local     main;
    xd_tensor mod[XD_MAXSIDES];   /* `mod` of the side networks */
    float     scale[XD_MAXSIDES]; /* factors of what is added; 0: the network is not used */
} whole_local;

typedef struct kept {
    xd_tensor kv; /* [blocks, m, 2 x this rank's part of D]: keys and values of the text */
} kept;

/* ---- configuration ------------------------------------------------------------------------ */

static xd_status check_kind(cfg *c, xd_err *e)
{
    c->norms = c->qk_norm[0] != 0;
    if (c->norms && strcmp(c->qk_norm, "rms_norm_across_heads") != 0)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: qk_norm '%s' is not 'rms_norm_across_heads' or null",
                       c->qk_norm);
    if (c->affine)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: norm_elementwise_affine is not supported for SANA");
    if (!isnan(c->interpolation))
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: interpolation_scale %g is not null; position embeddings are "
                       "not supported for SANA",
                       c->interpolation);
    return XD_OK;
}

static xd_status check_sizes(cfg *c, xd_err *e)
{
    const xd_config_range r[] = {
        { "num_attention_heads", c->heads, 1, 4096 },
        { "attention_head_dim", c->head_dim, 1, XD_LINATTN_MAX },
        { "num_cross_attention_heads", c->cross_heads, 1, 4096 },
        { "cross_attention_head_dim", c->cross_head_dim, 8, 512 },
        { "in_channels", c->in_ch, 1, 65536 },
        { "num_layers", c->nlayers, 0, 10000 },
        { "caption_channels", c->caption, 1, 1 << 24 },
        { "sample_size", c->sample, 1, 1 << 20 },
    };
    return xd_check_ranges(r, sizeof r / sizeof r[0], e);
}

static xd_status check_common(cfg *c, xd_err *e)
{
    xd_status s = check_kind(c, e);
    if (s != XD_OK || (s = check_sizes(c, e)) != XD_OK)
        return s;
    c->dim = c->heads * c->head_dim;
    if (c->out_ch == 0)
        c->out_ch = c->in_ch;
    if (c->out_ch != c->in_ch && c->out_ch != 2 * c->in_ch)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: out_channels %lld is neither in_channels "
                       "%lld nor twice that (with a learned sigma)",
                       (long long)c->out_ch, (long long)c->in_ch);
    if (c->cross_heads * c->cross_head_dim != c->dim || c->cross != c->dim)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: num_cross_attention_heads %d x cross_attention_head_dim %lld "
                       "and cross_attention_dim %lld are not the width %lld "
                       "(num_attention_heads x attention_head_dim)",
                       c->cross_heads, (long long)c->cross_head_dim, (long long)c->cross,
                       (long long)c->dim);
    if (!(c->ratio > 0 && c->ratio * (double)c->dim >= 1 && c->ratio < 1e4))
        return xd_fail(e, XD_EFORMAT, "transformer: mlp_ratio is %g", c->ratio);
    if (!isfinite(c->time_scale) || !isfinite(c->guidance_scale))
        return xd_fail(e, XD_EFORMAT,
                       "transformer: timestep_scale %g or guidance_embeds_scale %g is not finite",
                       c->time_scale, c->guidance_scale);
    c->ff = (int64_t)(c->ratio * (double)c->dim);
    return XD_OK;
}

static xd_status check_config(void *c_, xd_err *e)
{
    cfg                  *c = c_;
    const xd_config_range r[] = { { "patch_size", c->side, 1, 256 },
                                  { "sample_size", c->sample, c->side, 1 << 20 } };
    if (xd_check_ranges(r, 2, e) != XD_OK)
        return XD_EFORMAT;
    c->patch = (xd_ints){ 3, { 1, c->side, c->side } };
    return check_common(c, e);
}

static xd_status check_video(void *c_, xd_err *e)
{
    cfg                  *c = c_;
    const xd_config_range r[] = { { "rope_max_seq_len", c->most, 1, 1 << 20 } };
    c->video = 1;
    if (!c->patch.n)
        c->patch = (xd_ints){ 3, { 1, 2, 2 } };
    if (c->patch.n != 3)
        return xd_fail(e, XD_EFORMAT, "transformer: patch_size has %d numbers, not 3", c->patch.n);
    for (int i = 0; i < 3; i++)
        if (c->patch.v[i] < 1 || c->patch.v[i] > 64)
            return xd_fail(e, XD_EFORMAT, "transformer: patch_size has %lld; it must be 1 to 64",
                           (long long)c->patch.v[i]);
    if (c->guided)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: guidance_embeds is not supported for SANA-Video");
    if (c->head_dim % 2)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: attention_head_dim %lld is odd, and rope rotates pairs",
                       (long long)c->head_dim);
    if (xd_check_ranges(r, 1, e) != XD_OK)
        return XD_EFORMAT;
    int64_t side = 2 * (c->head_dim / 6);
    c->axes = (xd_ints){ 3, { c->head_dim - 2 * side, side, side } };
    return check_common(c, e);
}

static void info(const void *c_, xd_dit_info *out)
{
    const cfg *c = c_;
    *out = (xd_dit_info){
        .nlayers = c->nlayers,
        .heads = c->heads,
        .head_dim = (int)c->head_dim,
        .patch = { (int)c->patch.v[0], (int)c->patch.v[1], (int)c->patch.v[2] },
        .dim = c->dim,
        .lat_ch = c->in_ch,
        .sample = { 1, c->sample, c->sample },
        .text_dim = c->caption,
        .guided = c->guided,
        .linear = 1,
        .conv_dim = c->ff,
        .sites = 1,
        .local_size = sizeof(whole_local),
        .kept_size = sizeof(kept),
    };
}

/* Describes SANA-Video. The default size is that of SanaVideoPipeline, 81 frames of 480 x 832
 * pixels, for a sample_size of 30 with cells of 4 x 8 x 8 pixels, and of 22 with cells of
 * 8 x 32 x 32. */
static void info_video(const void *c_, xd_dit_info *out)
{
    const cfg *c = c_;
    info(c, out);
    out->sample[0] = 21, out->sample[1] = 2 * c->sample, out->sample[2] = 2 * c->sample * 26 / 15;
    if (c->sample == 22)
        out->sample[0] = 11, out->sample[1] = 15, out->sample[2] = 26;
    out->frames_dim = c->dim;
    out->holds = 1;
    for (int i = 0; i < 3; i++)
        out->most[i] = c->most * c->patch.v[i];
}

/* ---- weights ------------------------------------------------------------------------------ */

/* Declares the weights of the attention over tokens, or of the cross-attention to the text. */
static void attention_weights(xd_decl *d, const cfg *c, blk *w, int cross)
{
    static const char *const qkv[] = { "to_q", "to_k", "to_v" };
    int64_t                  D = c->dim, hd = cross ? c->cross_head_dim : c->head_dim;
    xd_fused_spec            f = { .n = 3,
                                   .names = qkv,
                                   .in = D,
                                   .out = { D, D, D },
                                   .split = XD_COL,
                                   .unit = hd,
                                   .bias = cross || c->bias };
    xd_w_enter(d, cross ? "attn2" : "attn1");
    if (cross) {
        xd_w_linear(d, &w->q, "to_q",
                    &(xd_linear_spec){ .in = D, .out = D, .split = XD_COL, .unit = hd, .bias = 1 });
        f.n = 2;
        f.names = qkv + 1;
    }
    xd_w_fused(d, cross ? &w->kv : &w->qkv, &f);
    if (c->norms) {
        xd_w_vec(d, cross ? &w->cross_q : &w->q_gain, "norm_q.weight", 1, &D);
        xd_w_vec(d, cross ? &w->cross_k : &w->k_gain, "norm_k.weight", 1, &D);
    }
    xd_w_linear(d, cross ? &w->cross : &w->out, "to_out.0",
                &(xd_linear_spec){ .in = D, .out = D, .split = XD_ROW, .unit = hd, .bias = 1 });
    xd_w_leave(d);
}

static void blk_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    const cfg    *c = c_;
    blk          *w = w_;
    int64_t       D = c->dim;
    const int64_t halves[] = { c->ff, c->ff };
    (void)layer;
    xd_w_vec(d, &w->mod, "scale_shift_table", 2, (int64_t[]){ 6, D });
    attention_weights(d, c, w, 0);
    attention_weights(d, c, w, 1);
    xd_w_enter(d, "ff");
    xd_w_linear(d, &w->up, "conv_inverted",
                &(xd_linear_spec){
                    .in = D, .nouts = 2, .outs = halves, .split = XD_COL, .bias = 1, .ones = 2 });
    xd_w_conv(d, &w->conv, "conv_depth",
              &(xd_conv_spec){ .out = 2 * c->ff,
                               .in = 1,
                               .nk = 2,
                               .kernel = { 1, 3, 3 },
                               .bias = 1,
                               .nouts = 2,
                               .outs = halves });
    xd_w_linear(d, &w->down, "conv_point",
                &(xd_linear_spec){ .in = c->ff, .out = D, .split = XD_ROW, .ones = 2 });
    if (c->video)
        xd_w_conv(d, &w->frames, "conv_temp",
                  &(xd_conv_spec){ .out = D, .in = D, .nk = 2, .kernel = { 1, 3, 1 } });
    xd_w_leave(d);
}

/* Returns this rank's features of `heads` heads of `hd` features. */
static xd_span features_of(const xd_decl *d, int heads, int64_t hd)
{
    xd_span h = xd_cut((xd_span){ 0, heads }, d->tp > 1 ? d->tp_at : 0, d->tp > 1 ? d->tp : 1);
    return (xd_span){ h.start * hd, h.n * hd };
}

/* Declares the weights that the transformer and a side network have in common. */
static void input_weights(xd_decl *d, const cfg *c, glob *g)
{
    int64_t   D = c->dim, p[] = { D, c->in_ch, c->patch.v[0], c->patch.v[1], c->patch.v[2] };
    int64_t   image[] = { D, c->in_ch, p[3], p[4] };
    const int guided = c->guided;

    g->features = features_of(d, c->heads, c->head_dim);
    g->cross_features = features_of(d, c->cross_heads, c->cross_head_dim);
    g->cut = d->tp > 1;
    if (c->video)
        xd_w_linear_as(d, &g->patch, "patch_embedding", 5, p, 1);
    else
        xd_w_linear_as(d, &g->patch, "patch_embed.proj", 4, image, 1);
    xd_mlp_weights(d, guided ? "time_embed.timestep_embedder" : "time_embed.emb.timestep_embedder",
                   &g->time, XD_SINUSOIDS, D, D);
    if (guided)
        xd_mlp_weights(d, "time_embed.guidance_embedder", &g->guidance, XD_SINUSOIDS, D, D);
    xd_w_linear(d, &g->adaln, "time_embed.linear",
                &(xd_linear_spec){ .in = D, .out = 6 * D, .bias = 1, .few = 1 });
    xd_mlp_weights(d, "caption_projection", &g->caption, c->caption, D, D);
    xd_w_vec(d, &g->text_norm, "caption_norm.weight", 1, &D);
}

static void weights(xd_decl *d, const cfg *c, glob *g)
{
    int64_t D = c->dim;
    input_weights(d, c, g);
    xd_w_vec(d, &g->mod, "scale_shift_table", 2, (int64_t[]){ 2, D });
    xd_w_linear(d, &g->out, "proj_out",
                &(xd_linear_spec){ .in = D,
                                   .out = c->patch.v[0] * c->patch.v[1] * c->patch.v[2] * c->out_ch,
                                   .bias = 1 });
}

/* ---- conditioning ------------------------------------------------------------------------- */

static void fill_angles(void *ctx, float *buf)
{
    const cfg *c = ((const xd_rope *)ctx)->cfg;
    xd_rope_video(ctx, buf, theta, &c->axes);
}

static void cond(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    local      *l = s->local;
    double      t[XD_TIMES], guidances[XD_TIMES];

    l->timed = xd_timed_of(x, in, t);
    for (int i = 0; i < l->timed.times; i++) {
        t[i] *= c->time_scale;
        guidances[i] = in->guidance * c->guidance_scale;
    }
    l->emb = xd_mlp_timesteps(x, t, l->timed.times, &g->time);
    if (c->guided)
        xd_add(x, l->emb, xd_mlp_timesteps(x, guidances, l->timed.times, &g->guidance));
    xd_tensor a = xd_gated(x, l->emb, (xd_tensor){ 0 }, XD_SILU);
    l->mod = xd_reshape(xd_linear_f32(x, a, &g->adaln), 2,
                        (int64_t[]){ 6 * l->timed.times, l->emb.d[1] });
    if (c->video) {
        l->cos = xd_rope_table(x, xd_n(x, XD_IMG), c->head_dim / 2, fill_angles, c, cos);
        l->sin = xd_rope_table(x, xd_n(x, XD_IMG), c->head_dim / 2, fill_angles, c, sin);
    }
}

/* Norms the rows of the k tensors in[i], which have this rank's features `own` of all heads, in
 * place. If the heads are split over ranks, the rows are first normed over this rank's features,
 * then multiplied by factors that correct the norms. */
static void norm_heads(xd_exec *x, const xd_net *n, const xd_tensor *in, const xd_tensor *gain,
                       int k, xd_span own)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    size_t      mark = xd_arena_mark(x->tmp);
    xd_tensor   f = { 0 };
    if (c->norms && g->cut)
        f = xd_rms_factors(x, in, k, c->dim, heads_eps);
    for (int i = 0; i < k && c->norms && own.n; i++) {
        xd_norm_into(x,
                     &(xd_norm){ .out = in[i],
                                 .in = in[i],
                                 .gain = xd_view((float *)gain[i].p + own.start, XD_F32, 1, &own.n),
                                 .rms = 1,
                                 .eps = heads_eps });
        if (!f.p)
            continue;
        xd_tensor factor = xd_cols(f, i, 1), spread = xd_new_f32(x, in[i].d[0], own.n);
        factor.d[1] = own.n, factor.s[1] = 0;
        xd_copy_to(x, spread, factor);
        xd_gated_into(x, in[i], in[i], spread, XD_NONE);
    }
    xd_arena_rewind(x->tmp, mark);
}

static void keep_text(xd_exec *x, const xd_net *n, const xd_cond *text, void *kept_)
{
    kept   *k = kept_;
    int64_t width = n->first < n->last ? ((const blk *)n->layer[n->first])->kv.w.out : 0;
    k->kv = xd_text_kv_new(x, n, text->tok.d[0], width);
}

/* Computes the keys and values of the text in the blocks of a network (-1: the transformer), whose
 * weights outside the blocks are g. */
static void read_text_of(xd_exec *x, const xd_net *n, const xd_input *in, const kept *k, int net,
                         const glob *g)
{
    const whole_cfg *c = n->cfg;
    size_t           mark = xd_arena_mark(x->tmp);
    xd_tensor        t = xd_mlp_run(x, in->cond->tok, &g->caption, XD_GELU_TANH);
    t = xd_rms_norm(x, t, g->text_norm, text_eps);
    for (int i = n->first; i < n->last; i++) {
        if (c->order.net[i] != net)
            continue;
        const blk *w = xd_net_layer(x, n, i);
        xd_tensor  kv = xd_text_kv(k->kv, i - n->first), keys = xd_seg(kv, &w->kv, 0);
        xd_linear_into(x, kv, t, &w->kv);
        norm_heads(x, n, &keys, &w->cross_k, 1, ((const glob *)n->glob)->cross_features);
    }
    xd_arena_rewind(x->tmp, mark);
}

static void read_text(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept_)
{
    const whole_glob *g = n->glob;
    const whole_cfg  *c = n->cfg;
    read_text_of(x, n, in, kept_, -1, &g->main);
    for (int i = 0; i < c->nsides; i++)
        read_text_of(x, n, in, kept_, i, &g->side[i]);
}

static void embed(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const whole_glob *g = n->glob;
    const whole_cfg  *c = n->cfg;
    int64_t           rows = x->B * xd_n(x, XD_IMG), D = c->main.dim, F = in->lat.d[1];
    if (!xd_check(x, in->lat.d[0] == rows && s->h.d[0] == rows,
                  "%lld image tokens do not match %lld rows of state and %lld of latents",
                  (long long)rows, (long long)s->h.d[0], (long long)in->lat.d[0]))
        return;
    xd_linear_into(x, xd_dit_state(s, D, 0), in->lat, &g->main.patch);
    for (int i = 0; i < c->nsides; i++) {
        size_t    mark = xd_arena_mark(x->tmp);
        xd_tensor h = xd_dit_state(s, D, 1 + i);
        xd_tensor control = xd_linear_f32(x, xd_cols(in->extra, i * F, F), &g->side[i].patch);
        xd_linear_into(x, h, in->lat, &g->side[i].patch);
        xd_add(x, h, xd_linear_f32(x, control, &g->input[i]));
        xd_arena_rewind(x->tmp, mark);
    }
}

/* ---- running ------------------------------------------------------------------------------ */

static xd_tensor attend_tokens(xd_exec *x, const xd_net *n, const blk *w, const local *l,
                               xd_tensor y)
{
    const cfg  *c = n->cfg;
    const glob *g = n->glob;
    xd_tensor   in[3] = { xd_seg(y, &w->qkv, 0), xd_seg(y, &w->qkv, 1), xd_seg(y, &w->qkv, 2) };
    norm_heads(x, n, in, (xd_tensor[]){ w->q_gain, w->k_gain }, 2, g->features);
    for (int i = 0; i < 3; i++)
        in[i] = xd_heads(in[i], c->head_dim);
    return xd_flat(xd_attn_linear_turned(x, in[0], in[1], in[2], l->cos, l->sin));
}

/* Adds the feed-forward of `a` to h: one half of the convolved features gates the other half. In
 * SANA-Video, the result is y + convolution of y over frames. */
static void feed(xd_exec *x, const cfg *c, const xd_timed *timed, xd_tensor h, const blk *w,
                 xd_tensor a, const xd_tensor *mod)
{
    xd_tensor y = xd_conv_tokens(x, xd_linear_act(x, a, &w->up, XD_SILU), &w->conv);
    xd_tensor u = xd_gated(x, xd_seg(y, &w->up, 1), xd_seg(y, &w->up, 0), XD_SILU);
    if (!c->video) {
        xd_timed_add(x, timed, h, mod, 5, u, &w->down);
        return;
    }
    y = xd_linear(x, u, &w->down);
    xd_tensor moved = xd_conv_frames(x, y, &w->frames);
    xd_add(x, moved, y);
    for (int i = 0; i < timed->n; i++) {
        xd_span r = timed->run[i].rows;
        xd_add_gated(x, xd_rows(h, r.start, r.n), xd_rows(mod[timed->run[i].time], 5, 1),
                     xd_rows(moved, r.start, r.n));
    }
}

/* Runs a block on the hidden state h with the modulation `mod` of its network. */
static void run_block(xd_exec *x, const xd_net *n, const blk *w, const xd_state *s, xd_tensor h,
                      xd_tensor mod)
{
    const cfg    *c = n->cfg;
    const glob   *g = n->glob;
    const local  *l = s->local;
    const kept   *k = s->kept;
    const xd_norm as = { .eps = c->eps };
    xd_tensor     m[XD_TIMES];
    for (int t = 0; t < l->timed.times; t++)
        m[t] = xd_mod_table(x, w->mod, xd_rows(mod, 6 * t, 6));

    xd_tensor y = xd_linear(x, xd_timed_norm(x, &l->timed, &as, h, m, 1, 0, &w->qkv), &w->qkv);
    xd_timed_add(x, &l->timed, h, m, 2, attend_tokens(x, n, w, l, y), &w->out);

    xd_tensor q = xd_linear(x, h, &w->q);
    norm_heads(x, n, &q, &w->cross_q, 1, g->cross_features);
    xd_tensor o =
        xd_attn_text(x, q, xd_text_kv(k->kv, x->layer - n->first), &w->kv, c->cross_head_dim);
    xd_linear_add(x, h, (xd_tensor){ 0 }, o, &w->cross);

    feed(x, c, &l->timed, h, w, xd_timed_norm(x, &l->timed, &as, h, m, 4, 3, &w->up), m);
}

/* Computes the network's output. proj_out's outputs are in the order (frame, row, column, channel).
 * The result has the order (channel, frame, row, column), and only the channels of the latents. */
static xd_tensor head(xd_exec *x, const xd_net *n, xd_state *s)
{
    const glob   *g = n->glob;
    const cfg    *c = n->cfg;
    const local  *l = s->local;
    const xd_norm as = { .eps = last_eps };
    xd_tensor     h = xd_dit_state(s, c->dim, 0);
    int64_t       cells = c->patch.v[0] * c->patch.v[1] * c->patch.v[2];
    xd_tensor     out = xd_new_f32(x, h.d[0], c->in_ch * cells), m[XD_TIMES];
    size_t        mark = xd_arena_mark(x->tmp);
    for (int t = 0; t < l->timed.times; t++)
        m[t] = xd_mod_table(x, g->mod, xd_rows(l->emb, t, 1));
    xd_tensor a = xd_timed_norm(x, &l->timed, &as, h, m, 1, 0, &g->out);
    xd_by_channel(x, out, xd_linear_f32(x, a, &g->out), c->in_ch);
    xd_arena_rewind(x->tmp, mark);
    return out;
}

/* ---- side networks ------------------------------------------------------------------------ */

static xd_status read_sides(void *c_, const xd_json *obj, const char *what, xd_err *e)
{
    whole_cfg     *c = c_;
    const xd_json *list = xd_json_get(obj, XD_SIDES_KEY);
    xd_status      s = XD_OK;
    for (int i = 0; s == XD_OK && i < xd_json_size(list) && i < XD_MAXSIDES; i++, c->nsides++)
        s = xd_fields_read(fields, &c->side[i], xd_json_at(list, i), what, e);
    return s;
}

/* Checks that the sizes of side network i are those of the transformer. */
static xd_status check_side(const cfg *c, cfg *own, int i, xd_err *e)
{
    const xd_side_number v[] = {
        { "num_attention_heads", own->heads, c->heads },
        { "attention_head_dim", (double)own->head_dim, (double)c->head_dim },
        { "num_cross_attention_heads", own->cross_heads, c->cross_heads },
        { "cross_attention_head_dim", (double)own->cross_head_dim, (double)c->cross_head_dim },
        { "caption_channels", (double)own->caption, (double)c->caption },
        { "in_channels", (double)own->in_ch, (double)c->in_ch },
        { "patch_size", (double)own->side, (double)c->side },
        { "mlp_ratio", own->ratio, c->ratio },
        { "norm_eps", own->eps, c->eps },
        { "timestep_scale", own->time_scale, c->time_scale },
        { "attention_bias", own->bias, c->bias },
    };
    if (xd_sides_check(v, sizeof v / sizeof *v, i, e) != XD_OK || check_config(own, e) != XD_OK)
        return XD_EFORMAT;
    if (xd_sides_check_layers(own->nlayers, c->nlayers - 1, i, e) != XD_OK)
        return XD_EFORMAT;
    if (c->norms || c->guided || own->norms || own->guided)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "controlnet %d does not fit the transformer: qk_norm and guidance_embeds "
                       "are not supported with control networks",
                       i);
    return XD_OK;
}

/* Implements `before` of xd_sides_order. */
static int blocks_before(const void *c_, int i, int layer)
{
    const whole_cfg *c = c_;
    int              n = layer > 0 ? layer - 1 : 0;
    return n < c->side[i].nlayers ? n : c->side[i].nlayers;
}

static xd_status check_whole(void *c_, xd_err *e)
{
    whole_cfg *c = c_;
    int        n = c->main.nlayers;
    xd_status  s = check_config(&c->main, e);
    for (int i = 0; s == XD_OK && i < c->nsides; i++)
        s = check_side(&c->main, &c->side[i], i, e);
    if (s == XD_OK)
        s = xd_sides_order(&c->order, n, c->nsides, blocks_before, c, e);
    for (int i = 0; i < c->nsides; i++) /* the block after the last one of the transformer */
        for (int at = blocks_before(c, i, n - 1); s == XD_OK && at < c->side[i].nlayers; at++)
            s = xd_sides_add(&c->order, i, at, e);
    return s;
}

static xd_status check_whole_video(void *c_, xd_err *e)
{
    whole_cfg *c = c_;
    xd_status  s = check_video(&c->main, e);
    return s == XD_OK ? xd_sides_order(&c->order, c->main.nlayers, 0, blocks_before, c, e) : s;
}

static int whole_nlayers(const void *c)
{
    return ((const whole_cfg *)c)->order.nblocks;
}

static void whole_info(const void *c_, xd_dit_info *out)
{
    const whole_cfg *c = c_;
    info(&c->main, out);
    out->nlayers = c->order.nblocks;
    out->states = 1 + c->nsides;
    out->sides = out->hints = c->nsides;
    out->extra_ch = c->nsides * c->main.in_ch;
}

static void whole_weights(xd_decl *d, const void *c_, void *g_)
{
    const whole_cfg *c = c_;
    whole_glob      *g = g_;
    int64_t          D = c->main.dim;
    weights(d, &c->main, &g->main);
    for (int i = 0; i < c->nsides; i++) {
        xd_w_enter(d, "controlnet.%d", i);
        input_weights(d, &c->side[i], &g->side[i]);
        xd_w_linear(d, &g->input[i], "input_block",
                    &(xd_linear_spec){ .in = D, .out = D, .bias = 1 });
        xd_w_leave(d);
    }
}

static void side_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    const whole_cfg *c = c_;
    side_blk        *w = w_;
    int64_t          D = c->main.dim;
    xd_w_enter(d, "transformer_blocks.%d", c->order.at[layer]);
    blk_weights(d, &c->main, layer, &w->b);
    xd_w_leave(d);
    xd_sides_residual(d, "controlnet_blocks", c->order.at[layer], D, &w->residual);
}

static void cond_whole(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const whole_glob *g = n->glob;
    const whole_cfg  *c = n->cfg;
    whole_local      *l = s->local;
    double            t[XD_TIMES];
    cond(x, n, in, s);
    for (int i = 0; i < c->nsides; i++) {
        l->scale[i] = xd_sides_scale(in, i);
        l->main.timed = xd_timed_of(x, in, t);
        for (int k = 0; k < l->main.timed.times; k++)
            t[k] *= c->main.time_scale;
        xd_tensor a = xd_mlp_timesteps(x, t, l->main.timed.times, &g->side[i].time);
        a = xd_gated(x, a, (xd_tensor){ 0 }, XD_SILU);
        l->mod[i] = xd_reshape(xd_linear_f32(x, a, &g->side[i].adaln), 2,
                               (int64_t[]){ 6 * l->main.timed.times, c->main.dim });
    }
}

static void forward_main(xd_exec *x, const xd_net *n, const void *w, xd_state *s)
{
    const local *l = s->local;
    run_block(x, n, w, s, xd_dit_state(s, ((const cfg *)n->cfg)->dim, 0), l->mod);
}

/* Runs a block of a side network and adds to the transformer's state. */
static void forward_side(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const side_blk    *w = w_;
    const whole_local *l = s->local;
    const whole_cfg   *c = n->cfg;
    int                i = c->order.net[x->layer];
    xd_tensor          h = xd_dit_state(s, c->main.dim, 1 + i);
    if (l->scale[i] == 0)
        return;
    run_block(x, n, &w->b, s, h, l->mod[i]);
    xd_tensor y = xd_linear_f32(x, h, &w->residual);
    if (l->scale[i] != 1)
        xd_axpby(x, y, 0, (xd_tensor){ 0 }, l->scale[i]);
    xd_add(x, xd_dit_state(s, c->main.dim, 0), y);
}

static xd_tensor probe_whole(xd_exec *x, const xd_net *n, xd_state *s)
{
    (void)x;
    return xd_dit_state(s, ((const cfg *)n->cfg)->dim, 0);
}

static const xd_block kind = { "transformer_blocks.%d", sizeof(blk), blk_weights, forward_main };
#define SIDE_KIND(name) { name, sizeof(side_blk), side_weights, forward_side }
static const xd_block side_kinds[XD_MAXSIDES] = { XD_SIDES_KINDS(SIDE_KIND) };

static const xd_block *block(const void *c, int layer)
{
    int i = ((const whole_cfg *)c)->order.net[layer];
    return i < 0 ? &kind : &side_kinds[i];
}

extern const xd_dit xd_dit_sana, xd_dit_sana_video;

static const xd_side side = { .classes = { "SanaControlNetModel" } };

#define FUNCTIONS                                                                        \
    .keep = keep_text, .read = read_text, .cond = cond_whole, .embed = embed, .head = head

const xd_dit xd_dit_sana = {
    .net = { .name = "sana",
             .classes = { "SanaTransformer2DModel" },
             .fields = fields,
             .read = read_sides,
             .cfg_size = sizeof(whole_cfg),
             .glob_size = sizeof(whole_glob),
             .check = check_whole,
             .nlayers = whole_nlayers,
             .block = block,
             .weights = whole_weights },
    .side = &side,
    .info = whole_info,
    .probe = probe_whole,
    FUNCTIONS,
};

const xd_dit xd_dit_sana_video = {
    .net = { .name = "sana-video",
             .classes = { "SanaVideoTransformer3DModel" },
             .fields = video_fields,
             .cfg_size = sizeof(whole_cfg),
             .glob_size = sizeof(whole_glob),
             .check = check_whole_video,
             .nlayers = whole_nlayers,
             .block = block,
             .weights = whole_weights },
    .info = info_video,
    FUNCTIONS,
};
