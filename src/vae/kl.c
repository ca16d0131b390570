/* kl.c - runs AutoencoderKL (Rombach et al. 2022), which encodes images to Gaussian distributions
 * of latents, and decodes latents.
 *
 * During a decode or encode, the current feature map `h` is always at the bottom of the arena
 * memory. A layer allocates its own memory above h and frees this memory when the layer ends. Norms
 * and upsampling are applied a few rows at a time (bands.h), and a narrower or smaller map
 * overwrites the map from which it is computed. So at most two maps exist at a time: h and the
 * output of the first convolution of a residual block. The sums for a map's group norm are computed
 * while the map's rows are still in the caches. */
#include <math.h>
#include <string.h>

#include "exec/net.h"
#include "exec/op.h"
#include "vae/bands.h"
#include "vae/kl.h"
#include "vae/maps.h"
#include "vae/rgb.h"

enum {
    MAX_WIDTH = 1 << 16, /* max channels of a layer */
    MAX_HEAD = 512,      /* max head width of the attention kernels */
    MIN_HEAD = 8,
};

static const float EPS = 1e-6f; /* epsilon of every group norm, which no config sets */

static const xd_field fields[] = {
    XD_KL_FIELDS(1, 4, 32),
    { "scaling_factor", offsetof(xd_kl_cfg, scaling), 'd', 0.18215, NULL },
    { "shift_factor", offsetof(xd_kl_cfg, shift), 'd', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

/* ---- the config --------------------------------------------------------------------------- */

static int level_count(const xd_kl_cfg *c)
{
    return c->width.n;
}

/* Returns the channels of level l. Levels are counted in execution order, so the decoder's first
 * level is the coarsest. */
static int64_t level_width(const xd_kl_cfg *c, int dec, int l)
{
    return dec ? c->dec_width.v[level_count(c) - 1 - l] : c->width.v[l];
}

static int has_attention(const xd_kl_cfg *c, int dec, int l)
{
    return strncmp(dec ? c->up.v[l] : c->down.v[l], "Attn", 4) == 0;
}

static int residual_count(const xd_kl_cfg *c, int dec)
{
    return c->layers + dec;
}

static xd_status check_blocks(const xd_names *t, const char *key, const char *plain,
                              const char *attn, int n, xd_err *e)
{
    if (t->n != n)
        return xd_fail(e, XD_EFORMAT, "vae: %s has %d entries, block_out_channels %d", key, t->n,
                       n);
    for (int i = 0; i < n; i++)
        if (strcmp(t->v[i], plain) != 0 && strcmp(t->v[i], attn) != 0)
            return xd_fail(e, XD_EUNSUPPORTED, "vae: %s has %s; only %s and %s are supported", key,
                           t->v[i], plain, attn);
    return XD_OK;
}

/* Checks the channels of a level of the encoder or the decoder; l counts levels in execution
 * order. */
static xd_status check_width(const xd_kl_cfg *c, int dec, int l, xd_err *e)
{
    int64_t w = level_width(c, dec, l);
    int     middle = dec ? l == 0 : l == level_count(c) - 1;
    if (w < 1 || w > MAX_WIDTH || w % c->groups)
        return xd_fail(e, XD_EFORMAT,
                       "vae: block_out_channels has %lld; it must be a multiple of "
                       "norm_num_groups, %lld, and from 1 to %d",
                       (long long)w, (long long)c->groups, MAX_WIDTH);
    if ((has_attention(c, dec, l) || (middle && c->mid_attention)) &&
        (w < MIN_HEAD || w > MAX_HEAD))
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vae: attention over %lld channels; %d to %d are supported", (long long)w,
                       MIN_HEAD, MAX_HEAD);
    return XD_OK;
}

static xd_status check_numbers(const xd_kl_cfg *c, xd_err *e)
{
    const struct {
        const char *key;
        int64_t     v, max;
    } n[] = {
        { "latent_channels", c->latent_channels, MAX_WIDTH },
        { "norm_num_groups", c->groups, MAX_WIDTH },
        { "layers_per_block", c->layers, XD_KL_RES - 1 },
        { "sample_size", c->sample_size, (int64_t)1 << 24 },
        { "number of block_out_channels", c->width.n, XD_KL_LEVELS },
    };
    for (size_t i = 0; i < sizeof n / sizeof *n; i++)
        if (n[i].v < 1 || n[i].v > n[i].max)
            return xd_fail(e, XD_EUNSUPPORTED, "vae: %s is %lld; it must be from 1 to %lld",
                           n[i].key, (long long)n[i].v, (long long)n[i].max);
    if (xd_vae_colours(c->in_channels, c->out_channels, e) != XD_OK)
        return XD_EUNSUPPORTED;
    if (!isfinite(c->scaling) || c->scaling == 0 || !isfinite(c->shift))
        return xd_fail(e, XD_EFORMAT, "vae: scaling_factor %g or shift_factor %g is invalid",
                       c->scaling, c->shift);
    if (c->mean != 0 || c->std != 0)
        return xd_fail(e, XD_EUNSUPPORTED, "vae: latents_mean and latents_std must be null");
    if (strcmp(c->act, "silu") != 0 && strcmp(c->act, "swish") != 0)
        return xd_fail(e, XD_EUNSUPPORTED, "vae: act_fn is %s; only silu is supported", c->act);
    return XD_OK;
}

xd_status xd_kl_check(xd_kl_cfg *c, xd_err *e)
{
    if (!c->width.n) /* config keys that are lists get diffusers' default values */
        c->width.n = 1, c->width.v[0] = 64;
    if (!c->down.n)
        c->down.n = 1, strcpy(c->down.v[0], "DownEncoderBlock2D");
    if (!c->up.n)
        c->up.n = 1, strcpy(c->up.v[0], "UpDecoderBlock2D");
    if (!c->dec_width.n)
        c->dec_width = c->width;
    xd_status s = check_numbers(c, e);
    if (s == XD_OK && c->dec_width.n != c->width.n)
        s = xd_fail(e, XD_EFORMAT,
                    "vae: decoder_block_out_channels has %d entries, "
                    "block_out_channels %d",
                    c->dec_width.n, c->width.n);
    if (s == XD_OK)
        s = check_blocks(&c->down, "down_block_types", "DownEncoderBlock2D",
                         "AttnDownEncoderBlock2D", level_count(c), e);
    if (s == XD_OK)
        s = check_blocks(&c->up, "up_block_types", "UpDecoderBlock2D", "AttnUpDecoderBlock2D",
                         level_count(c), e);
    for (int i = 0; s == XD_OK && i < 2 * level_count(c); i++)
        s = check_width(c, i % 2, i / 2, e);
    return s;
}

int64_t xd_kl_cell(const xd_kl_cfg *c)
{
    return (int64_t)1 << (level_count(c) - 1);
}

static xd_status kl_check(void *cfg, xd_err *e)
{
    return xd_kl_check(cfg, e);
}

static void kl_info(const void *cfg, xd_vae_info *out)
{
    const xd_kl_cfg *c = cfg;
    int              f = (int)xd_kl_cell(c);
    *out = (xd_vae_info){ .channels = c->latent_channels,
                          .cell = { 1, f, f },
                          .scaling = c->scaling,
                          .shift = c->shift,
                          .overlap = { 0.25, 0.25 },
                          .pack = 1,
                          .rgb = xd_vae_rgb(c->latent_channels, c->width.v[0], c->scaling) };
    out->tile[0] = out->tile[1] = c->sample_size / f > 0 ? c->sample_size / f : 1;
}

/* ---- weights ------------------------------------------------------------------------------ */

static void w_conv(xd_decl *d, xd_cnv *w, const char *name, int64_t out, int64_t in, int k,
                   int stride)
{
    xd_w_conv(d, w, name,
              &(xd_conv_spec){ .out = out,
                               .in = in,
                               .nk = 2,
                               .kernel = { 1, k, k },
                               .stride = { 1, stride, stride },
                               .bias = 1 });
}

/* Declares a convolution whose weights are f32, whatever the type of the maps. The convolutions
 * next to the latents have f32 weights, because these convolutions are cheap (the latents are the
 * smallest map) and their rounding errors affect every pixel. */
static void w_conv_f32(xd_decl *d, xd_cnv *w, const char *name, int64_t out, int64_t in, int k)
{
    xd_dtype type = d->type;
    d->type = XD_F32;
    w_conv(d, w, name, out, in, k, 1);
    d->type = type;
}

static void w_norm(xd_decl *d, xd_kl_norm *w, const char *name, int64_t C)
{
    xd_w_affine(d, name, &w->gain, &w->bias, C);
}

void xd_kl_res_weights(xd_decl *d, xd_kl_res *w, int i, int64_t in, int64_t out)
{
    xd_w_enter(d, "resnets.%d", i);
    w_norm(d, &w->norm1, "norm1", in);
    w_conv(d, &w->conv1, "conv1", out, in, 3, 1);
    w_norm(d, &w->norm2, "norm2", out);
    w_conv(d, &w->conv2, "conv2", out, out, 3, 1);
    if (in != out)
        w_conv(d, &w->shortcut, "conv_shortcut", out, in, 1, 1);
    xd_w_leave(d);
}

/* Declares the weights of an attention. The alternative tensor names are those in checkpoints that
 * are older than diffusers 0.18. */
static void w_attn(xd_decl *d, xd_kl_attn *w, int i, int64_t C)
{
    static const char *const qkv[] = { "to_q|query", "to_k|key", "to_v|value" };
    static const char *const out[] = { "to_out.0|proj_attn" };
    xd_w_enter(d, "attentions.%d", i);
    w_norm(d, &w->norm, "group_norm", C);
    xd_w_fused(d, &w->qkv,
               &(xd_fused_spec){ .n = 3, .names = qkv, .in = C, .out = { C, C, C }, .bias = 1 });
    xd_w_fused(d, &w->out,
               &(xd_fused_spec){ .n = 1, .names = out, .in = C, .out = { C }, .bias = 1 });
    xd_w_leave(d);
}

static void w_level(xd_decl *d, const xd_kl_cfg *c, xd_kl_level *w, int dec, int l)
{
    int64_t C = level_width(c, dec, l), in = l ? level_width(c, dec, l - 1) : C;
    xd_w_enter(d, dec ? "up_blocks.%d" : "down_blocks.%d", l);
    for (int i = 0; i < residual_count(c, dec); i++) {
        xd_kl_res_weights(d, &w->res[i], i, i ? C : in, C);
        if (has_attention(c, dec, l))
            w_attn(d, &w->attn[i], i, C);
    }
    if (l < level_count(c) - 1 && dec)
        xd_w_conv_enlarged(d, w->up, "upsamplers.0.conv", C, C);
    else if (l < level_count(c) - 1)
        w_conv(d, &w->down, "downsamplers.0.conv", C, C, 3, 2);
    xd_w_leave(d);
}

static void w_half(xd_decl *d, const xd_kl_cfg *c, xd_kl_half *w, int dec)
{
    int64_t mid = level_width(c, dec, dec ? 0 : level_count(c) - 1);
    int64_t first = level_width(c, dec, 0), last = level_width(c, dec, level_count(c) - 1);
    xd_w_enter(d, dec ? "decoder" : "encoder");
    if (dec)
        w_conv_f32(d, &w->in, "conv_in", first, c->latent_channels, 3);
    else
        w_conv(d, &w->in, "conv_in", first, c->in_channels, 3, 1);
    for (int l = 0; l < level_count(c); l++)
        w_level(d, c, &w->level[l], dec, l);
    xd_w_enter(d, "mid_block");
    xd_kl_res_weights(d, &w->mid[0], 0, mid, mid);
    if (c->mid_attention)
        w_attn(d, &w->mid_attn, 0, mid);
    xd_kl_res_weights(d, &w->mid[1], 1, mid, mid);
    xd_w_leave(d);
    w_norm(d, &w->norm, "conv_norm_out", last);
    w_conv(d, &w->out, "conv_out", dec ? c->out_channels : 2 * c->latent_channels, last, 3, 1);
    xd_w_leave(d);
}

void xd_kl_weights(xd_decl *d, const xd_kl_cfg *c, xd_kl_glob *g)
{
    int64_t z = c->latent_channels;
    w_half(d, c, &g->enc, 0);
    w_half(d, c, &g->dec, 1);
    if (c->quant)
        w_conv_f32(d, &g->quant, "quant_conv", 2 * z, 2 * z, 1);
    if (c->post_quant)
        w_conv_f32(d, &g->post_quant, "post_quant_conv", z, z, 1);
}

static void kl_weights(xd_decl *d, const void *cfg, void *glob)
{
    xd_kl_weights(d, cfg, glob);
}

/* ---- running ------------------------------------------------------------------------------ */

typedef struct run {
    xd_exec         *x;
    const xd_kl_cfg *c;
    xd_tensor        partial; /* [rows,G,2] F64: sums of each row of the latest map */
    xd_gsum          sum;     /* group norm sums of the map that is normalized next */
    size_t           base;    /* position of the map h in the arena (a mark) */
    xd_tensor        h;       /* [1,H,W,C] at `base`: the current map */
} run;

static const xd_tensor none;

static const int no_pad[3], pad1[3] = { 0, 1, 1 };

/* Allocates a map with C channels and as many rows and columns as h. */
static xd_tensor map_as(run *r, xd_dtype type, int64_t C)
{
    return xd_new_as(r->x, type, 4, (int64_t[]){ 1, r->h.d[1], r->h.d[2], C });
}

static xd_tensor new_map(run *r, int64_t C)
{
    return map_as(r, r->x->act, C);
}

/* Returns a view of the memory at `base` as a map of this shape. The memory must be large enough
 * for the map. */
static xd_tensor view_at_base(const run *r, int64_t H, int64_t W, int64_t C)
{
    return xd_view(r->h.p, r->h.type, 4, (int64_t[]){ 1, H, W, C });
}

static xd_tensor partial_of(const run *r, xd_tensor map)
{
    return xd_rows(r->partial, 0, map.d[1]);
}

/* Returns the convolution input silu(norm(in)). The map `in` must be the last map that was
 * computed, because only the sums of that map's rows are available. First adds up these sums for
 * the group norm. */
static xd_feed norm_feed(run *r, xd_tensor in, const xd_kl_norm *w)
{
    xd_group_close(r->x, &r->sum, partial_of(r, in), in);
    return (xd_feed){ .in = in, .sum = &r->sum, .gain = w->gain, .bias = w->bias, .eps = EPS };
}

/* Runs a 3 x 3 convolution, padded by one pixel on all sides or, with stride 2, only below and on
 * the right. */
static void conv3(run *r, xd_banded a)
{
    a.stride = a.stride ? a.stride : 1;
    memcpy(a.lo, a.stride == 1 ? pad1 : no_pad, sizeof a.lo);
    memcpy(a.hi, pad1, sizeof a.hi);
    xd_band_conv(r->x, &a);
}

static void conv1(run *r, xd_tensor out, xd_tensor in, const xd_cnv *w)
{
    xd_conv2d_into(r->x, out, in, w, &(xd_conv_options){ 0 });
}

/* Runs a residual block: h += conv2(silu(norm2(conv1(silu(norm1(h)))))) */
static void same_width(run *r, const xd_kl_res *w)
{
    size_t    mark = xd_arena_mark(r->x->tmp);
    xd_tensor b = new_map(r, r->h.d[3]);
    conv3(r, (xd_banded){ .feed = norm_feed(r, r->h, &w->norm1),
                          .w = &w->conv1,
                          .out = b,
                          .partial = partial_of(r, b) });
    conv3(r, (xd_banded){ .feed = norm_feed(r, b, &w->norm2),
                          .w = &w->conv2,
                          .out = r->h,
                          .plus = r->h,
                          .partial = partial_of(r, r->h) });
    xd_arena_rewind(r->x->tmp, mark);
}

/* Runs a residual block that changes the number of channels; its shortcut is a 1x1 convolution of
 * h. The new h overlaps the old h in memory, so each band of the old h is read before it is
 * overwritten. A new h with more channels is therefore computed from its last row to its first. */
static void other_width(run *r, const xd_kl_res *w)
{
    xd_tensor old = r->h;
    int64_t   C = w->conv1.w.out;
    int       wider = C > old.d[3];
    r->h = xd_map_at(r->x, r->base, 1, old.d[1], old.d[2], wider ? C : old.d[3]);
    xd_tensor b = new_map(r, C), out = view_at_base(r, old.d[1], old.d[2], C);
    conv3(r, (xd_banded){ .feed = norm_feed(r, old, &w->norm1),
                          .w = &w->conv1,
                          .out = b,
                          .partial = partial_of(r, b) });
    conv3(r, (xd_banded){ .feed = norm_feed(r, b, &w->norm2),
                          .w = &w->conv2,
                          .out = out,
                          .from = old,
                          .shortcut = &w->shortcut,
                          .last_first = wider,
                          .partial = partial_of(r, out) });
    r->h = xd_map_at(r->x, r->base, 1, old.d[1], old.d[2], C);
}

static void run_residual(run *r, const xd_kl_res *w)
{
    if (w->conv1.w.in == w->conv1.w.out)
        same_width(r, w);
    else
        other_width(r, w);
}

/* Computes h += out(attention(norm(h))). The attention has one head, which is as wide as the
 * map. */
static void run_attn(run *r, const xd_kl_attn *w)
{
    xd_exec  *x = r->x;
    size_t    mark = xd_arena_mark(x->tmp);
    int64_t   n = r->h.d[1] * r->h.d[2], C = r->h.d[3], flat[2] = { n, C };
    xd_tensor qkv = xd_new(x, n, 3 * C), q[3];
    size_t    above = xd_arena_mark(x->tmp);
    xd_tensor a = new_map(r, C);
    xd_group_close(x, &r->sum, partial_of(r, r->h), r->h);
    xd_group_apply_into(
        x, &r->sum,
        &(xd_gnorm){
            .out = a, .in = r->h, .gain = w->norm.gain, .bias = w->norm.bias, .eps = EPS });
    xd_linear_into(x, qkv, xd_reshape(a, 2, flat), &w->qkv);
    xd_arena_rewind(x->tmp, above);
    for (int i = 0; i < 3; i++)
        q[i] = xd_heads(xd_seg(qkv, &w->qkv, i), C);
    xd_tensor o = xd_flat(xd_attn(x, q[0], q[1], q[2], 0));
    xd_linear_add(x, xd_reshape(r->h, 2, flat), none, o, &w->out);
    xd_arena_rewind(x->tmp, mark);
    xd_group_rows(x, partial_of(r, r->h), r->h);
}

static void run_level(run *r, const xd_kl_level *w, int dec, int l)
{
    for (int i = 0; i < residual_count(r->c, dec); i++) {
        run_residual(r, &w->res[i]);
        if (has_attention(r->c, dec, l))
            run_attn(r, &w->attn[i]);
    }
}

static void run_middle(run *r, const xd_kl_half *w)
{
    run_residual(r, &w->mid[0]);
    if (r->c->mid_attention)
        run_attn(r, &w->mid_attn);
    run_residual(r, &w->mid[1]);
}

/* Doubles the rows and columns of the map h, and convolves the result. The new h overlaps the old h
 * in memory. */
static void run_upsample(run *r, const xd_cnv w[4])
{
    xd_tensor old = r->h;
    r->h = xd_map_at(r->x, r->base, 1, 2 * old.d[1], 2 * old.d[2], old.d[3]);
    xd_band_enlarge(r->x, r->h, old, w, partial_of(r, r->h));
}

/* Halves the rows and columns of the map h by a convolution with stride 2. The map is padded only
 * below and on the right, so that output cell i reads pixels 2i .. 2i+2. The new h is smaller and
 * overlaps the old h in memory. */
static void run_downsample(run *r, const xd_cnv *w)
{
    xd_tensor old = r->h;
    int64_t   H = old.d[1] / 2, W = old.d[2] / 2, C = old.d[3];
    conv3(r, (xd_banded){ .feed = { .in = old },
                          .w = w,
                          .out = view_at_base(r, H, W, C),
                          .stride = 2,
                          .over = 1,
                          .partial = xd_rows(r->partial, 0, H) });
    r->h = xd_map_at(r->x, r->base, 1, H, W, C);
}

/* Begins a run: allocates the sums of the group norms, for maps of at most `rows` rows. */
static run begin_run(xd_exec *x, const xd_kl_cfg *c, int64_t rows)
{
    int64_t G = c->groups, one[2] = { G, 2 }, all[3] = { rows, G, 2 };
    run     r = { .x = x, .c = c, .partial = xd_new_as(x, XD_F64, 3, all) };
    r.sum = (xd_gsum){ xd_new_as(x, XD_F64, 2, one), (int)G, 0 };
    r.base = xd_arena_mark(x->tmp);
    return r;
}

/* Computes h = conv_in(in) from `in` [1,H,W,C]. If `before` is not NULL, `in` is first replaced by
 * the result of this 1x1 convolution. */
static void run_conv_in(run *r, xd_tensor in, const xd_cnv *before, const xd_cnv *conv_in)
{
    r->h = xd_map_at(r->x, r->base, 1, in.d[1], in.d[2], conv_in->w.out);
    size_t mark = xd_arena_mark(r->x->tmp);
    if (before) {
        xd_tensor z = map_as(r, conv_in->w.type, before->w.out);
        conv1(r, z, in, before);
        in = z;
    }
    xd_conv2d_into(r->x, r->h, in, conv_in, &(xd_conv_options){ .lo = pad1, .hi = pad1 });
    xd_arena_rewind(r->x->tmp, mark);
    xd_group_rows(r->x, partial_of(r, r->h), r->h);
}

/* Computes out (F32) = conv_out(silu(norm(h))). If `after` is not NULL, this 1x1 convolution is
 * applied to the result. */
static void run_conv_out(run *r, xd_tensor out, const xd_kl_half *w, const xd_cnv *after)
{
    xd_tensor m = after ? map_as(r, after->w.type, w->out.w.out) : out;
    conv3(r, (xd_banded){ .feed = norm_feed(r, r->h, &w->norm), .w = &w->out, .out = m });
    if (after)
        conv1(r, out, m, after);
}

/* Decodes latents [T,h,w,C] to pixels. Frames are decoded one by one as independent images. */
void xd_kl_decode(xd_exec *x, const xd_kl_cfg *c, const xd_kl_glob *g, xd_tensor lat, xd_tensor rgb)
{
    if (!xd_map_image_fits(x, rgb, lat, xd_kl_cell(c), c->latent_channels))
        return;
    for (int64_t t = 0; t < lat.d[0]; t++) {
        size_t mark = xd_arena_mark(x->tmp);
        run    r = begin_run(x, c, rgb.d[1]);
        run_conv_in(&r, xd_rows(lat, t, 1), c->post_quant ? &g->post_quant : NULL, &g->dec.in);
        run_middle(&r, &g->dec);
        for (int l = 0; l < level_count(c); l++) {
            run_level(&r, &g->dec.level[l], 1, l);
            if (l < level_count(c) - 1)
                run_upsample(&r, g->dec.level[l].up);
        }
        run_conv_out(&r, xd_rows(rgb, t, 1), &g->dec, NULL);
        xd_arena_rewind(x->tmp, mark);
    }
}

void xd_kl_encode(xd_exec *x, const xd_kl_cfg *c, const xd_kl_glob *g, xd_tensor rgb,
                  xd_tensor moments)
{
    if (!xd_map_image_fits(x, rgb, moments, xd_kl_cell(c), 2 * c->latent_channels))
        return;
    for (int64_t t = 0; t < rgb.d[0]; t++) {
        size_t mark = xd_arena_mark(x->tmp);
        run    r = begin_run(x, c, rgb.d[1]);
        run_conv_in(&r, xd_rows(rgb, t, 1), NULL, &g->enc.in);
        for (int l = 0; l < level_count(c); l++) {
            run_level(&r, &g->enc.level[l], 0, l);
            if (l < level_count(c) - 1)
                run_downsample(&r, &g->enc.level[l].down);
        }
        run_middle(&r, &g->enc);
        run_conv_out(&r, xd_rows(moments, t, 1), &g->enc, c->quant ? &g->quant : NULL);
        xd_arena_rewind(x->tmp, mark);
    }
}

static void kl_decode(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb)
{
    xd_kl_decode(x, n->cfg, n->glob, lat, rgb);
}

static void kl_encode(xd_exec *x, const xd_net *n, xd_tensor rgb, xd_tensor moments)
{
    xd_kl_encode(x, n->cfg, n->glob, rgb, moments);
}

extern const xd_vae xd_vae_kl;

const xd_vae xd_vae_kl = {
    .net = { .name = "kl",
             .classes = { "AutoencoderKL" },
             .fields = fields,
             .cfg_size = sizeof(xd_kl_cfg),
             .glob_size = sizeof(xd_kl_glob),
             .check = kl_check,
             .weights = kl_weights },
    .info = kl_info,
    .decode = kl_decode,
    .encode = kl_encode,
};
