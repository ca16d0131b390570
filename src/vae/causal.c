/* causal.c - reads the config and declares the weights of the causal video autoencoder.
 *
 * The config may also be that of an autoencoder for single images. Of the kernels over frames of an
 * autoencoder for single images, only the part for the last frame is used, because there are no
 * frames before an image. */
#include <math.h>
#include <string.h>

#include "vae/causal.h"
#include "vae/rgb.h"

enum {
    MAX_WIDTH = 1 << 16, /* max channels of a layer */
    MIN_HEAD = 8,
    MAX_HEAD = 1152, /* largest head width of the attention kernels */
    TILE = 256,      /* side of a tile in pixels (diffusers' tile_sample_min_height) */
    RATIO = 4,       /* video frames per latent frame */
};

/* diffusers' default values of the config keys that are lists */
static const xd_ints  default_mult = { 4, { 1, 2, 4, 4 } };
static const xd_ints  default_halve = { 3, { 0, 1, 1 } };
static const xd_reals default_mean = { 16,
                                       { -0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653,
                                         -0.1517, 1.5508, 0.4134, -0.0715, 0.5517, -0.3632, -0.1922,
                                         -0.9497, 0.2503, -0.2921 } };
static const xd_reals default_std = { 16,
                                      { 2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052,
                                        2.0743, 3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253,
                                        2.8251, 1.9160 } };

/* ---- the config --------------------------------------------------------------------------- */

/* Returns the output channels of level l. Levels are counted in execution order, so the decoder's
 * first level is the coarsest. */
static int64_t level_width(const xd_causal_cfg *c, int dec, int l)
{
    return dec ? c->dec_width * c->mult.v[xd_causal_levels(c) - 1 - l] : c->width * c->mult.v[l];
}

/* Returns the input channels of level l. Unless levels have shortcuts (is_residual), the upsampling
 * at the end of the decoder's previous level halves the channels. */
static int64_t width_before(const xd_causal_cfg *c, int dec, int l)
{
    if (!l)
        return dec ? level_width(c, 1, 0) : c->width;
    return dec && !c->residual ? level_width(c, 1, l - 1) / 2 : level_width(c, dec, l - 1);
}

static xd_status check_numbers(const xd_causal_cfg *c, xd_err *e)
{
    const struct {
        const char *key;
        int64_t     v, max;
    } n[] = {
        { "base_dim", c->width, MAX_WIDTH },
        { "decoder_base_dim", c->dec_width, MAX_WIDTH },
        { "z_dim", c->latent_channels, XD_FIELD_LIST },
        { "num_res_blocks", c->layers, XD_CAUSAL_RES - 1 },
        { "number of dim_mult", c->mult.n, XD_CAUSAL_LEVELS },
    };
    for (size_t i = 0; i < sizeof n / sizeof *n; i++)
        if (n[i].v < 1 || n[i].v > n[i].max)
            return xd_fail(e, XD_EUNSUPPORTED, "vae: %s is %lld; it must be from 1 to %lld",
                           n[i].key, (long long)n[i].v, (long long)n[i].max);
    for (int l = 0; l < c->mult.n; l++)
        if (c->mult.v[l] < 1 || c->mult.v[l] > MAX_WIDTH)
            return xd_fail(e, XD_EFORMAT, "vae: dim_mult has the invalid value %lld",
                           (long long)c->mult.v[l]);
    if (c->attn_scales.n)
        return xd_fail(e, XD_EUNSUPPORTED, "vae: attn_scales must be an empty list");
    return XD_OK;
}

static xd_status check_widths(const xd_causal_cfg *c, xd_err *e)
{
    int last = xd_causal_levels(c) - 1;
    for (int dec = 0; dec < 2; dec++) {
        int64_t C = level_width(c, dec, dec ? 0 : last);
        if (C < MIN_HEAD || C > MAX_HEAD)
            return xd_fail(e, XD_EUNSUPPORTED,
                           "vae: attention over %lld channels; %d to %d are supported",
                           (long long)C, MIN_HEAD, MAX_HEAD);
    }
    for (int l = 0; l < last; l++)
        if (!c->residual && level_width(c, 1, l) % 2)
            return xd_fail(e, XD_EUNSUPPORTED,
                           "vae: decoder_base_dim %lld: %lld channels cannot be halved",
                           (long long)c->dec_width, (long long)level_width(c, 1, l));
    return XD_OK;
}

/* Checks the shortcuts around levels (is_residual). The decoder's shortcuts repeat positions of a
 * level's input, and the encoder's shortcuts average positions. Of a level's input and output
 * channels, the larger number must be a multiple of the smaller. The ratio of the two numbers of
 * channels must divide the number of output positions per input position in the decoder, and of
 * input positions per output position in the encoder. */
static xd_status check_shortcuts(const xd_causal_cfg *c, xd_err *e)
{
    int last = xd_causal_levels(c) - 1;
    for (int dec = 0; dec < 2 && c->residual; dec++)
        for (int l = 0; l <= last - dec; l++) {
            int64_t in = width_before(c, dec, l), out = level_width(c, dec, l);
            int64_t most = dec ? in : out, least = dec ? out : in;
            int64_t f = (l < last ? 4 : 1) << xd_causal_time(c, dec, l);
            if (most % least || f % (most / least))
                return xd_fail(e, XD_EUNSUPPORTED,
                               "vae: is_residual from %lld to %lld channels is not "
                               "supported",
                               (long long)in, (long long)out);
        }
    return XD_OK;
}

static xd_status check_colours(const xd_causal_cfg *c, xd_err *e)
{
    int64_t n = c->patch * c->patch;
    if (c->patch < 1 || c->patch > 2)
        return xd_fail(e, XD_EUNSUPPORTED, "vae: patch_size is %lld; 1 and 2 are supported",
                       (long long)c->patch);
    if (c->in_channels % n || c->out_channels % n)
        return xd_fail(e, XD_EFORMAT,
                       "vae: in_channels %lld and out_channels %lld must be "
                       "multiples of patch_size %lld squared",
                       (long long)c->in_channels, (long long)c->out_channels, (long long)c->patch);
    if (c->in_channels / n != c->colours || c->out_channels / n != c->colours)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vae: in_channels is %lld and out_channels %lld; only %d channels are "
                       "supported",
                       (long long)(c->in_channels / n), (long long)(c->out_channels / n),
                       c->colours);
    return XD_OK;
}

static xd_status check_frames(const xd_causal_cfg *c, xd_err *e)
{
    int halvings = 0;
    if (c->halve.n < c->mult.n - 1)
        return xd_fail(e, XD_EFORMAT, "vae: temperal_downsample has %d entries for %d levels",
                       c->halve.n, c->mult.n);
    for (int l = 0; l < c->mult.n - 1; l++)
        halvings += c->halve.v[l] != 0;
    if (!c->images && 1 << halvings != RATIO)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vae: temperal_downsample halves the frames %d times; "
                       "only 2 is supported",
                       halvings);
    return XD_OK;
}

static xd_status check_latents(const xd_causal_cfg *c, xd_err *e)
{
    if (c->mean.n != c->latent_channels || c->std.n != c->latent_channels)
        return xd_fail(e, XD_EFORMAT,
                       "vae: latents_mean has %d values, latents_std %d and z_dim "
                       "is %lld",
                       c->mean.n, c->std.n, (long long)c->latent_channels);
    for (int i = 0; i < c->mean.n; i++)
        if (!isfinite(c->mean.v[i]) || !(c->std.v[i] > 0) || !isfinite(c->std.v[i]))
            return xd_fail(e, XD_EFORMAT,
                           "vae: latents_mean %g and latents_std %g of channel %d "
                           "are invalid",
                           c->mean.v[i], c->std.v[i], i);
    return XD_OK;
}

xd_status xd_causal_check(xd_causal_cfg *c, xd_err *e)
{
    c->mult = c->mult.n ? c->mult : default_mult;
    c->halve = c->halve.n ? c->halve : default_halve;
    c->mean = c->mean.n ? c->mean : default_mean;
    c->std = c->std.n ? c->std : default_std;
    c->dec_width = c->dec_width ? c->dec_width : c->width;
    c->patch = c->patch ? c->patch : 1;
    c->colours = c->colours ? c->colours : 3;
    xd_status s = check_numbers(c, e);
    if (s == XD_OK)
        s = check_colours(c, e);
    if (s == XD_OK)
        s = check_frames(c, e);
    if (s == XD_OK)
        s = check_widths(c, e);
    if (s == XD_OK)
        s = check_shortcuts(c, e);
    return s == XD_OK ? check_latents(c, e) : s;
}

void xd_causal_info(const xd_causal_cfg *c, xd_vae_info *out)
{
    int f = (int)c->patch << (xd_causal_levels(c) - 1);
    *out = (xd_vae_info){ .channels = c->latent_channels,
                          .pixel_channels = c->colours,
                          .cell = { c->images ? 1 : RATIO, f, f },
                          .scaling = 1,
                          .alone = 1,
                          .overlap = { 0.25, 0.25 },
                          .patch = (int)c->patch,
                          .pack = 1,
                          .rgb = xd_vae_rgb(c->latent_channels, c->width, 1) };
    out->tile[0] = out->tile[1] = f < TILE ? TILE / f : 1;
}

/* ---- weights ------------------------------------------------------------------------------ */

static void w_conv(xd_decl *d, const xd_causal_cfg *c, xd_cnv *w, const char *name, int64_t out,
                   int64_t in)
{
    if (c->flat)
        xd_w_conv(
            d, w, name,
            &(xd_conv_spec){ .out = out, .in = in, .nk = 2, .kernel = { 1, 3, 3 }, .bias = 1 });
    else
        xd_w_conv(d, w, name,
                  &(xd_conv_spec){ .out = out,
                                   .in = in,
                                   .nk = 3,
                                   .kernel = { 3, 3, 3 },
                                   .bias = 1,
                                   .last = c->images });
}

/* Declares a convolution with a 1 x 1 x 1 kernel, which is computed as a GEMM. */
static void w_tap(xd_decl *d, const xd_causal_cfg *c, xd_lin *w, const char *name, int64_t out,
                  int64_t in)
{
    xd_w_linear_as(d, w, name, c->flat ? 4 : 5, (int64_t[]){ out, in, 1, 1, 1 }, 1);
}

/* Declares the gain of a norm, whose shape is [C,1,1] in layers for images and [C,1,1,1] in layers
 * for videos. */
static void w_norm(xd_decl *d, xd_tensor *gain, const char *name, int nd, int64_t C)
{
    xd_w_vec(d, gain, name, nd, (int64_t[]){ C, 1, 1, 1 });
}

static void w_res(xd_decl *d, const xd_causal_cfg *c, xd_causal_res *w, int64_t in, int64_t out)
{
    w_norm(d, &w->gain1, "norm1.gamma", 4, in);
    w_conv(d, c, &w->conv1, "conv1", out, in);
    w_norm(d, &w->gain2, "norm2.gamma", 4, out);
    w_conv(d, c, &w->conv2, "conv2", out, out);
    if (in != out)
        w_tap(d, c, &w->shortcut, "conv_shortcut", out, in);
}

/* Declares the convolution that changes the number of frames. Files of an autoencoder for images
 * also contain this convolution's tensors, which are not read. */
static void w_time(xd_decl *d, const xd_causal_cfg *c, xd_cnv *w, int64_t out, int64_t in)
{
    if (!c->images) {
        xd_w_conv(
            d, w, "time_conv",
            &(xd_conv_spec){ .out = out, .in = in, .nk = 3, .kernel = { 3, 1, 1 }, .bias = 1 });
        return;
    }
    xd_w_unread(d, "time_conv.weight", c->flat ? 4 : 5,
                (int64_t[]){ out, in, c->flat ? 1 : 3, 1, 1 });
    xd_w_unread(d, "time_conv.bias", 1, &out);
}

static void w_resample(xd_decl *d, const xd_causal_cfg *c, xd_causal_level *w, int dec, int l)
{
    int64_t C = level_width(c, dec, l);
    if (dec)
        xd_w_conv_enlarged(d, w->up, "resample.1", c->residual ? C : C / 2, C);
    else
        xd_w_conv(d, &w->down, "resample.1",
                  &(xd_conv_spec){ .out = C,
                                   .in = C,
                                   .nk = 2,
                                   .kernel = { 1, 3, 3 },
                                   .stride = { 1, 2, 2 },
                                   .bias = 1 });
    if (xd_causal_time(c, dec, l))
        w_time(d, c, &w->time, dec ? 2 * C : C, C);
}

static void w_up(xd_decl *d, const xd_causal_cfg *c, xd_causal_level *w, int l)
{
    xd_w_enter(d, "up_blocks.%d", l);
    for (int i = 0; i < xd_causal_residuals(c, 1); i++) {
        xd_w_enter(d, "resnets.%d", i);
        w_res(d, c, &w->res[i], i ? level_width(c, 1, l) : width_before(c, 1, l),
              level_width(c, 1, l));
        xd_w_leave(d);
    }
    if (l < xd_causal_levels(c) - 1) {
        xd_w_enter(d, c->residual ? "upsampler" : "upsamplers.0");
        w_resample(d, c, w, 1, l);
        xd_w_leave(d);
    }
    xd_w_leave(d);
}

/* Enters the name scope of residual block i of encoder level l or, after the last block, of the
 * level's downsampling. Unless levels have shortcuts (is_residual), the blocks of all levels are
 * numbered consecutively. */
static void enter_part(xd_decl *d, const xd_causal_cfg *c, int l, int i)
{
    int n = xd_causal_residuals(c, 0);
    if (!c->residual)
        xd_w_enter(d, "down_blocks.%d", l * (n + 1) + i);
    else if (i < n)
        xd_w_enter(d, "down_blocks.%d.resnets.%d", l, i);
    else
        xd_w_enter(d, "down_blocks.%d.downsampler", l);
}

static void w_down(xd_decl *d, const xd_causal_cfg *c, xd_causal_level *w, int l)
{
    int n = xd_causal_residuals(c, 0);
    for (int i = 0; i < n; i++) {
        enter_part(d, c, l, i);
        w_res(d, c, &w->res[i], i ? level_width(c, 0, l) : width_before(c, 0, l),
              level_width(c, 0, l));
        xd_w_leave(d);
    }
    if (l < xd_causal_levels(c) - 1) {
        enter_part(d, c, l, n);
        w_resample(d, c, w, 0, l);
        xd_w_leave(d);
    }
}

static void w_middle(xd_decl *d, const xd_causal_cfg *c, xd_causal_half *w, int64_t C)
{
    xd_w_enter(d, "mid_block");
    for (int i = 0; i < XD_CAUSAL_MID; i++) {
        xd_w_enter(d, "resnets.%d", i);
        w_res(d, c, &w->mid[i], C, C);
        xd_w_leave(d);
    }
    xd_w_enter(d, "attentions.0");
    w_norm(d, &w->attn_gain, "norm.gamma", 3, C);
    xd_w_linear_as(d, &w->qkv, "to_qkv", 4, (int64_t[]){ 3 * C, C, 1, 1 }, 1);
    xd_w_linear_as(d, &w->proj, "proj", 4, (int64_t[]){ C, C, 1, 1 }, 1);
    xd_w_leave(d);
    xd_w_leave(d);
}

/* Declares the encoder or the decoder. The layers next to the latents have f32 weights, whatever
 * the type of the maps: the latents are the smallest map, and rounding errors there affect every
 * pixel. */
static void w_half(xd_decl *d, const xd_causal_cfg *c, xd_causal_half *w, int dec)
{
    int      last = xd_causal_levels(c) - 1;
    int64_t  z = c->latent_channels, end = level_width(c, dec, last);
    xd_dtype type = d->type;
    xd_w_enter(d, dec ? "decoder" : "encoder");
    d->type = dec ? XD_F32 : type;
    w_conv(d, c, &w->in, "conv_in", width_before(c, dec, 0), dec ? z : c->in_channels);
    d->type = type;
    for (int l = 0; l <= last; l++)
        (dec ? w_up : w_down)(d, c, &w->level[l], l);
    w_middle(d, c, w, dec ? level_width(c, 1, 0) : end);
    w_norm(d, &w->gain, "norm_out.gamma", 4, end);
    w_conv(d, c, &w->out, "conv_out", dec ? c->out_channels : 2 * z, end);
    xd_w_leave(d);
}

void xd_causal_weights(xd_decl *d, const xd_causal_cfg *c, xd_causal_glob *g)
{
    int64_t  z = c->latent_channels;
    xd_dtype type = d->type;
    w_half(d, c, &g->enc, 0);
    w_half(d, c, &g->dec, 1);
    d->type = XD_F32;
    w_tap(d, c, &g->quant, "quant_conv", 2 * z, 2 * z);
    w_tap(d, c, &g->post_quant, "post_quant_conv", z, z);
    d->type = type;
}
