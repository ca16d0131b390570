/* tiny.c - runs AutoencoderTiny, a class of small autoencoders for previews (TAESD and variants;
 * https://github.com/madebyollin/taesd).
 *
 * The network has plain convolutions and ReLU; all feature maps have the same number of channels.
 * The encoder outputs latents and not a distribution. In the arena, the current map h is at the
 * bottom, and the two maps of a block are above h. Every convolution exchanges its halo rows with
 * other ranks. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "exec/op.h"
#include "vae/bands.h"
#include "vae/maps.h"
#include "vae/scale_rows.h"
#include "vae/vae.h"

enum { LEVELS = 8, BLOCKS = 16, MOST = 4096, TILE = 512 };

typedef struct cfg {
    int64_t in_channels, out_channels, latent_channels, factor;
    double  scaling, shift;
    char    act[XD_FIELD_TEXT], upsample[XD_FIELD_TEXT];
    /* [0]: encoder, [1]: decoder; each list has one element per level. */
    xd_ints width[2], blocks[2];
} cfg;

typedef struct block { xd_cnv conv[3]; } block;

typedef struct half {
    xd_cnv in, out, between[LEVELS]; /* between[i]: the convolution after level i */
    block  block[LEVELS][BLOCKS];
} half;

typedef struct glob { half side[2]; } glob;

static const xd_field fields[] = {
    { "in_channels", offsetof(cfg, in_channels), 'l', 3, NULL },
    { "out_channels", offsetof(cfg, out_channels), 'l', 3, NULL },
    { "latent_channels", offsetof(cfg, latent_channels), 'l', 4, NULL },
    { "encoder_block_out_channels", offsetof(cfg, width[0]), 'L', 0, NULL },
    { "decoder_block_out_channels", offsetof(cfg, width[1]), 'L', 0, NULL },
    { "num_encoder_blocks", offsetof(cfg, blocks[0]), 'L', 0, NULL },
    { "num_decoder_blocks", offsetof(cfg, blocks[1]), 'L', 0, NULL },
    { "upsampling_scaling_factor", offsetof(cfg, factor), 'l', 2, NULL },
    { "act_fn", offsetof(cfg, act), 's', 0, "relu" },
    { "upsample_fn", offsetof(cfg, upsample), 's', 0, "nearest" },
    { "scaling_factor", offsetof(cfg, scaling), 'd', 1, NULL },
    { "shift_factor", offsetof(cfg, shift), 'd', 0, NULL },
    { "block_out_channels", 0, '-', 0, NULL }, /* equals decoder_block_out_channels */
    { "latent_magnitude", 0, '-', 0, NULL },   /* used only for latents stored as bytes */
    { "latent_shift", 0, '-', 0, NULL },
    { "force_upcast", 0, '-', 0, NULL },
    { "_class_name", 0, '-', 0, NULL },
    { "_diffusers_version", 0, '-', 0, NULL },
    { "_name_or_path", 0, '-', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

/* ---- the config --------------------------------------------------------------------------- */

static void set_list(xd_ints *v, int64_t a, int64_t b, int64_t c, int64_t d)
{
    if (!v->n)
        *v = (xd_ints){ 4, { a, b, c, d } };
}

static xd_status check_lists(const cfg *c, int dec, xd_err *e)
{
    const char    *who = dec ? "decoder" : "encoder";
    const xd_ints *w = &c->width[dec], *n = &c->blocks[dec];
    if (w->n != n->n || w->n != c->width[0].n || w->n < 1 || w->n > LEVELS)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vae: the %s has %d widths and %d numbers of blocks; "
                       "both must have the same length, 1 to %d",
                       who, w->n, n->n, LEVELS);
    for (int i = 0; i < w->n; i++) {
        if (w->v[i] != c->width[dec].v[0] || w->v[i] < 1 || w->v[i] > MOST)
            return xd_fail(e, XD_EUNSUPPORTED,
                           "vae: a level of the %s has %lld channels; all must "
                           "have the same number, 1 to %d",
                           who, (long long)w->v[i], MOST);
        if (n->v[i] < 0 || n->v[i] > BLOCKS)
            return xd_fail(e, XD_EUNSUPPORTED,
                           "vae: a level of the %s has %lld blocks; it must be "
                           "from 0 to %d",
                           who, (long long)n->v[i], BLOCKS);
    }
    return XD_OK;
}

static xd_status check_config(void *c_, xd_err *e)
{
    cfg *c = c_;
    for (int i = 0; i < 2; i++)
        set_list(&c->width[i], 64, 64, 64, 64);
    set_list(&c->blocks[0], 1, 3, 3, 3);
    set_list(&c->blocks[1], 3, 3, 3, 1);
    if (xd_vae_colours(c->in_channels, c->out_channels, e) != XD_OK)
        return XD_EUNSUPPORTED;
    if (c->latent_channels < 1 || c->latent_channels > MOST)
        return xd_fail(e, XD_EUNSUPPORTED, "vae: latent_channels is %lld; it must be from 1 to %d",
                       (long long)c->latent_channels, MOST);
    if (strcmp(c->act, "relu") != 0)
        return xd_fail(e, XD_EUNSUPPORTED, "vae: act_fn is %s; only relu is supported", c->act);
    if (strcmp(c->upsample, "nearest") != 0 || c->factor != 2)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vae: upsample_fn is %s by %lld; only nearest by 2 is supported",
                       c->upsample, (long long)c->factor);
    if (!isfinite(c->scaling) || c->scaling == 0 || !isfinite(c->shift))
        return xd_fail(e, XD_EFORMAT, "vae: scaling_factor %g or shift_factor %g is invalid",
                       c->scaling, c->shift);
    xd_status s = check_lists(c, 0, e);
    return s == XD_OK ? check_lists(c, 1, e) : s;
}

static int levels(const cfg *c)
{
    return c->width[0].n;
}

static void info(const void *c_, xd_vae_info *out)
{
    const cfg *c = c_;
    int        f = 1 << (levels(c) - 1);
    *out = (xd_vae_info){ .channels = c->latent_channels,
                          .cell = { 1, f, f },
                          .scaling = c->scaling,
                          .shift = c->shift,
                          .pack = 1,
                          .tile = { TILE / f, TILE / f },
                          .overlap = { 0.125, 0.125 } };
}

/* ---- weights ------------------------------------------------------------------------------ */

typedef struct shape {
    int64_t out, in;
    int     stride, bias;
} shape;

static void w_conv(xd_decl *d, xd_cnv *w, const char *name, shape s)
{
    xd_w_conv(d, w, name,
              &(xd_conv_spec){ .out = s.out,
                               .in = s.in,
                               .nk = 2,
                               .kernel = { 1, 3, 3 },
                               .stride = { 1, s.stride, s.stride },
                               .bias = s.bias });
}

static void w_layer(xd_decl *d, xd_cnv *w, int *at, shape s)
{
    char name[32];
    snprintf(name, sizeof name, "layers.%d", (*at)++);
    w_conv(d, w, name, s);
}

static void w_block(xd_decl *d, block *w, int *at, int64_t C)
{
    static const char *const names[] = { "conv.0", "conv.2", "conv.4" };
    xd_w_enter(d, "layers.%d", (*at)++);
    for (int i = 0; i < 3; i++)
        w_conv(d, &w->conv[i], names[i], (shape){ C, C, 1, 1 });
    xd_w_leave(d);
}

/* Declares the encoder or the decoder. Convolutions next to the latents have f32 weights, because
 * rounding errors there affect every pixel. In tensor names, layers are numbered; layers without
 * weights are counted, too: the activation after the decoder's first convolution, and upsampling
 * layers. */
static void w_half(xd_decl *d, const cfg *c, half *w, int dec)
{
    const int64_t  C = c->width[dec].v[0];
    const xd_dtype type = d->type;
    int            at = 0;
    xd_w_enter(d, dec ? "decoder" : "encoder");
    d->type = dec ? XD_F32 : type;
    w_layer(d, &w->in, &at, (shape){ C, dec ? c->latent_channels : c->in_channels, 1, 1 });
    d->type = type;
    at += dec;
    for (int l = 0; l < levels(c); l++) {
        for (int i = 0; i < c->blocks[dec].v[l]; i++)
            w_block(d, &w->block[l][i], &at, C);
        if (l == levels(c) - 1)
            break;
        at += dec;
        w_layer(d, &w->between[l], &at, (shape){ C, C, dec ? 1 : 2, 0 });
    }
    d->type = dec ? type : XD_F32;
    w_layer(d, &w->out, &at, (shape){ dec ? c->out_channels : c->latent_channels, C, 1, 1 });
    d->type = type;
    xd_w_leave(d);
}

static void weights(xd_decl *d, const void *cfg_, void *g_)
{
    glob *g = g_;
    for (int dec = 0; dec < 2; dec++)
        w_half(d, cfg_, &g->side[dec], dec);
}

/* ---- running ------------------------------------------------------------------------------ */

typedef struct run {
    xd_exec  *x;
    size_t    base; /* position of the map h in the arena (a mark) */
    xd_tensor h;    /* [1,H,W,C] at `base`: the current map */
} run;

/* Computes out = conv(in) + plus with a 3 x 3 kernel. */
static void conv3(run *r, xd_tensor out, xd_tensor in, const xd_cnv *w, xd_tensor plus, int stride)
{
    xd_band_conv(r->x, &(xd_banded){ .feed = { .in = in },
                                     .w = w,
                                     .out = out,
                                     .plus = plus,
                                     .stride = stride,
                                     .lo = { 0, 1, 1 },
                                     .hi = { 0, stride == 1, stride == 1 } });
}

static void relu(run *r, xd_tensor map)
{
    xd_activate(r->x, xd_map_rows(map), XD_RELU);
}

/* Runs a block: h = relu(conv(relu(conv(relu(conv(h))))) + h) */
static void run_block(run *r, const block *w)
{
    const xd_tensor none = { 0 };
    size_t          mark = xd_arena_mark(r->x->tmp);
    xd_tensor       a = xd_map(r->x, 1, r->h.d[1], r->h.d[2], r->h.d[3]);
    xd_tensor       b = xd_map(r->x, 1, r->h.d[1], r->h.d[2], r->h.d[3]);
    conv3(r, a, r->h, &w->conv[0], none, 1);
    relu(r, a);
    conv3(r, b, a, &w->conv[1], none, 1);
    relu(r, b);
    conv3(r, r->h, b, &w->conv[2], r->h, 1);
    relu(r, r->h);
    xd_arena_rewind(r->x->tmp, mark);
}

/* Doubles the rows and columns of the map h, then convolves the map. The old h is upsampled to
 * memory above the new h; the new h overwrites the old h. */
static void run_upsample(run *r, const xd_cnv *w)
{
    xd_tensor old = r->h;
    r->h = xd_map_at(r->x, r->base, 1, 2 * old.d[1], 2 * old.d[2], old.d[3]);
    size_t mark = xd_arena_mark(r->x->tmp);
    conv3(r, r->h, xd_enlarge(r->x, old, 1, 2, 2), w, (xd_tensor){ 0 }, 1);
    xd_arena_rewind(r->x->tmp, mark);
}

static void run_downsample(run *r, const xd_cnv *w)
{
    xd_tensor old = r->h, small = xd_map(r->x, 1, old.d[1] / 2, old.d[2] / 2, old.d[3]);
    conv3(r, small, old, w, (xd_tensor){ 0 }, 2);
    xd_tensor to = old;
    to.d[1] = small.d[1], to.d[2] = small.d[2];
    to = xd_view(old.p, old.type, 4, to.d);
    xd_copy_to(r->x, to, small);
    r->h = xd_map_at(r->x, r->base, 1, to.d[1], to.d[2], to.d[3]);
}

static void run_half(run *r, const cfg *c, const half *w, int dec)
{
    for (int l = 0; l < levels(c); l++) {
        for (int i = 0; i < c->blocks[dec].v[l]; i++)
            run_block(r, &w->block[l][i]);
        if (l < levels(c) - 1 && dec)
            run_upsample(r, &w->between[l]);
        else if (l < levels(c) - 1)
            run_downsample(r, &w->between[l]);
    }
}

/* Computes z = 3 tanh(z / 3); the result replaces z. */
static void clamp_latents(xd_exec *x, xd_tensor z)
{
    const xd_tensor none = { 0 };
    xd_tensor       all = xd_reshape(z, 1, (int64_t[]){ z.d[1] * z.d[2] * z.d[3] });
    xd_axpby(x, all, 0, none, 1.0f / 3);
    xd_activate(x, xd_map_rows(z), XD_TANH);
    xd_axpby(x, all, 0, none, 3);
}

/* Writes in * gain + bias to `out`; the elements of `out` need not be contiguous. */
static void scale_map(xd_exec *x, xd_tensor out, xd_tensor in, float gain, float bias)
{
    const float g[3] = { gain, gain, gain }, b[3] = { bias, bias, bias };
    xd_copy_to(x, out, xd_reshape(xd_scale_rows(x, xd_map_rows(in), g, b), 4, in.d));
}

static void decode(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb)
{
    const cfg  *c = n->cfg;
    const half *w = &((const glob *)n->glob)->side[1];
    if (!xd_map_image_fits(x, rgb, lat, (int64_t)1 << (levels(c) - 1), c->latent_channels))
        return;
    for (int64_t t = 0; t < lat.d[0]; t++) {
        size_t    mark = xd_arena_mark(x->tmp);
        run       r = { .x = x, .base = mark };
        xd_tensor from = xd_rows(lat, t, 1), to = xd_rows(rgb, t, 1);
        r.h = xd_map_at(x, mark, 1, lat.d[1], lat.d[2], c->width[1].v[0]);
        size_t    above = xd_arena_mark(x->tmp);
        xd_tensor z = xd_map_as(x, XD_F32, 1, lat.d[1], lat.d[2], lat.d[3]);
        xd_copy_to(x, z, from);
        clamp_latents(x, z);
        conv3(&r, r.h, z, &w->in, (xd_tensor){ 0 }, 1);
        relu(&r, r.h);
        xd_arena_rewind(x->tmp, above);
        run_half(&r, c, w, 1);
        xd_tensor out = xd_map_as(x, XD_F32, 1, to.d[1], to.d[2], 3);
        conv3(&r, out, r.h, &w->out, (xd_tensor){ 0 }, 1);
        scale_map(x, to, out, 2, -1);
        xd_arena_rewind(x->tmp, mark);
    }
}

static void encode(xd_exec *x, const xd_net *n, xd_tensor rgb, xd_tensor moments)
{
    const cfg  *c = n->cfg;
    const half *w = &((const glob *)n->glob)->side[0];
    int64_t     C = c->latent_channels;
    if (!xd_map_image_fits(x, rgb, moments, (int64_t)1 << (levels(c) - 1), 2 * C))
        return;
    for (int64_t t = 0; t < rgb.d[0]; t++) {
        size_t    mark = xd_arena_mark(x->tmp);
        run       r = { .x = x, .base = mark };
        xd_tensor to = xd_rows(moments, t, 1);
        r.h = xd_map_at(x, mark, 1, rgb.d[1], rgb.d[2], c->width[0].v[0]);
        size_t    above = xd_arena_mark(x->tmp);
        xd_tensor in = xd_map_as(x, XD_F32, 1, rgb.d[1], rgb.d[2], 3);
        scale_map(x, in, xd_rows(rgb, t, 1), 0.5f, 0.5f);
        conv3(&r, r.h, in, &w->in, (xd_tensor){ 0 }, 1);
        xd_arena_rewind(x->tmp, above);
        run_half(&r, c, w, 0);
        xd_tensor out = xd_map_as(x, XD_F32, 1, to.d[1], to.d[2], C), mean = to;
        conv3(&r, out, r.h, &w->out, (xd_tensor){ 0 }, 1);
        mean.d[3] = C;
        xd_copy_to(x, mean, out);
        xd_map_no_variance(x, to, C);
        xd_arena_rewind(x->tmp, mark);
    }
}

extern const xd_vae xd_vae_tiny;

const xd_vae xd_vae_tiny = {
    .net = { .name = "tiny",
             .classes = { "AutoencoderTiny" },
             .fields = fields,
             .cfg_size = sizeof(cfg),
             .glob_size = sizeof(glob),
             .check = check_config,
             .weights = weights },
    .info = info,
    .decode = decode,
    .encode = encode,
};
