/* hunyuanvideo_15.c - reads the config and declares the weights of AutoencoderKLHunyuanVideo15 (Wu
 * et al. 2025, arXiv:2511.18870) */
#include "vae/hunyuanvideo.h"

#include <math.h>
#include <string.h>

#include "vae/rgb.h"
#include "vae/vae.h"

enum {
    MAX_WIDTH = 1 << 16, /* max channels of a layer */
    MIN_HEAD = 8,
    MAX_HEAD = 1024, /* largest head width of the attention kernels */
    TILE = 256,      /* side of a tile in pixels (diffusers' tile_sample_min_height) */
};

#define AT(member) offsetof(xd_hy15_cfg, member)
static const xd_field fields[] = {
    { "in_channels", AT(in_channels), 'l', 3, NULL },
    { "out_channels", AT(out_channels), 'l', 3, NULL },
    { "latent_channels", AT(latent_channels), 'l', 32, NULL },
    { "block_out_channels", AT(widths), 'L', 0, NULL },
    { "layers_per_block", AT(layers), 'i', 2, NULL },
    { "spatial_compression_ratio", AT(cell), 'l', 16, NULL },
    { "temporal_compression_ratio", AT(ratio), 'l', 4, NULL },
    { "downsample_match_channel", AT(match_down), 'b', 1, NULL },
    { "upsample_match_channel", AT(match_up), 'b', 1, NULL },
    { "scaling_factor", AT(scaling), 'd', 1.03682, NULL },
    { "_class_name", 0, '-', 0, NULL },
    { "_diffusers_version", 0, '-', 0, NULL },
    { "_name_or_path", 0, '-', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

/* ---- the config --------------------------------------------------------------------------- */

/* Returns the exponent of the power of two v, up to `most`, or -1. */
static int log2_of(int64_t v, int most)
{
    for (int i = 0; i <= most; i++)
        if (v == (int64_t)1 << i)
            return i;
    return -1;
}

static xd_status check_ratios(xd_hy15_cfg *c, xd_err *e)
{
    int n = c->widths.n;
    c->halvings = n - 1;
    if (log2_of(c->cell, n - 1) != n - 1)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vae: spatial_compression_ratio is %lld; with %d block_out_channels, only "
                       "%d is supported",
                       (long long)c->cell, n, 1 << (n - 1));
    c->times = log2_of(c->ratio, c->halvings);
    if (c->times < 0)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vae: temporal_compression_ratio is %lld; it must be a power of two up to "
                       "spatial_compression_ratio, %lld",
                       (long long)c->ratio, (long long)c->cell);
    if (!c->match_down || !c->match_up)
        return xd_fail(e, XD_EUNSUPPORTED, "vae: %s is false; only true is supported",
                       c->match_down ? "upsample_match_channel" : "downsample_match_channel");
    return XD_OK;
}

/* Checks the channels of neighbouring levels. One position of the coarser level has the channels of
 * f positions of the finer level, in groups of equal size, and the first frame has half as many. */
static xd_status check_widths(const xd_hy15_cfg *c, xd_err *e)
{
    const int64_t *v = c->widths.v;
    for (int l = 0; l < c->widths.n; l++)
        if (v[l] < 1 || v[l] > MAX_WIDTH)
            return xd_fail(e, XD_EFORMAT, "vae: block_out_channels has %lld, outside 1 to %d",
                           (long long)v[l], MAX_WIDTH);
    for (int l = 0; l < c->halvings; l++) {
        int64_t f = xd_hy15_time(c, 0, l) ? 8 : 4;
        if (v[l + 1] % f || f * v[l] % v[l + 1] || (f == 8 && f * v[l] / v[l + 1] % 2))
            return xd_fail(e, XD_EUNSUPPORTED,
                           "vae: block_out_channels has %lld before %lld, which groups of %lld "
                           "positions cannot connect",
                           (long long)v[l], (long long)v[l + 1], (long long)f);
    }
    return XD_OK;
}

static xd_status check_numbers(const xd_hy15_cfg *c, xd_err *e)
{
    const struct {
        const char *key;
        int64_t     v, min, max;
    } n[] = {
        { "latent_channels", c->latent_channels, 1, MAX_WIDTH },
        { "layers_per_block", c->layers, 1, XD_HY15_RES - 1 },
        { "number of block_out_channels", c->widths.n, 2, XD_HY15_LEVELS },
    };
    for (size_t i = 0; i < sizeof n / sizeof *n; i++)
        if (n[i].v < n[i].min || n[i].v > n[i].max)
            return xd_fail(e, XD_EUNSUPPORTED, "vae: %s is %lld; it must be from %lld to %lld",
                           n[i].key, (long long)n[i].v, (long long)n[i].min, (long long)n[i].max);
    int64_t C = c->widths.v[c->widths.n - 1], z = 2 * c->latent_channels;
    if (C < MIN_HEAD || C > MAX_HEAD)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vae: attention over %lld channels; %d to %d are supported", (long long)C,
                       MIN_HEAD, MAX_HEAD);
    if (C % z)
        return xd_fail(e, XD_EFORMAT,
                       "vae: the last of block_out_channels, %lld, is not a multiple of twice "
                       "latent_channels, %lld",
                       (long long)C, (long long)z);
    if (!isfinite(c->scaling) || c->scaling == 0)
        return xd_fail(e, XD_EFORMAT, "vae: scaling_factor %g is invalid", c->scaling);
    return XD_OK;
}

static xd_status check(void *cfg, xd_err *e)
{
    xd_hy15_cfg *c = cfg;
    if (!c->widths.n) /* diffusers' default value of block_out_channels */
        c->widths = (xd_ints){ 5, { 128, 256, 512, 1024, 1024 } };
    xd_status s = check_numbers(c, e);
    if (s == XD_OK)
        s = xd_vae_colours(c->in_channels, c->out_channels, e);
    if (s == XD_OK)
        s = check_ratios(c, e);
    return s == XD_OK ? check_widths(c, e) : s;
}

static void info(const void *cfg, xd_vae_info *out)
{
    const xd_hy15_cfg *c = cfg;
    int                f = (int)c->cell;
    *out = (xd_vae_info){ .channels = c->latent_channels,
                          .cell = { (int)c->ratio, f, f },
                          .scaling = c->scaling,
                          .alone = 1,
                          .overlap = { 0.25, 0.25 },
                          .pack = 1,
                          .rgb = xd_vae_rgb(c->latent_channels, c->widths.v[0], c->scaling) };
    out->tile[0] = out->tile[1] = f < TILE ? TILE / f : 1;
}

/* ---- weights ------------------------------------------------------------------------------ */

/* Returns the channels of level l. Levels are counted in execution order, so the decoder's first
 * level is the coarsest. */
static int64_t level_width(const xd_hy15_cfg *c, int dec, int l)
{
    return c->widths.v[dec ? c->widths.n - 1 - l : l];
}

static void w_conv(xd_decl *d, xd_cnv *w, const char *name, int64_t out, int64_t in)
{
    xd_w_enter(d, "%s", name);
    xd_w_conv(d, w, "conv",
              &(xd_conv_spec){ .out = out, .in = in, .nk = 3, .kernel = { 3, 3, 3 }, .bias = 1 });
    xd_w_leave(d);
}

/* Declares a convolution with a 1 x 1 x 1 kernel, which is computed as a GEMM. */
static void w_tap(xd_decl *d, xd_lin *w, const char *name, int64_t out, int64_t in)
{
    xd_w_linear_as(d, w, name, 5, (int64_t[]){ out, in, 1, 1, 1 }, 1);
}

static void w_gain(xd_decl *d, xd_tensor *gain, const char *name, int64_t C)
{
    xd_w_vec(d, gain, name, 4, (int64_t[]){ C, 1, 1, 1 });
}

static void w_res(xd_decl *d, xd_hy15_res *w, int i, int64_t C)
{
    xd_w_enter(d, "resnets.%d", i);
    w_gain(d, &w->gain1, "norm1.gamma", C);
    w_conv(d, &w->conv1, "conv1", C, C);
    w_gain(d, &w->gain2, "norm2.gamma", C);
    w_conv(d, &w->conv2, "conv2", C, C);
    xd_w_leave(d);
}

/* Declares a level. Resampling outputs the channels of the next level, so each level begins with
 * its own number of channels. */
static void w_level(xd_decl *d, const xd_hy15_cfg *c, xd_hy15_level *w, int dec, int l)
{
    int     f = xd_hy15_time(c, dec, l) ? 8 : 4;
    int64_t C = level_width(c, dec, l);
    xd_w_enter(d, dec ? "up_blocks.%d" : "down_blocks.%d", l);
    for (int i = 0; i < xd_hy15_residuals(c, dec); i++)
        w_res(d, &w->res[i], i, C);
    if (xd_hy15_rows(c, l)) {
        int64_t next = level_width(c, dec, l + 1);
        w_conv(d, &w->resample, dec ? "upsamplers.0.conv" : "downsamplers.0.conv",
               dec ? next * f : next / f, C);
    }
    xd_w_leave(d);
}

static void w_middle(xd_decl *d, xd_hy15_half *w, int64_t C)
{
    xd_w_enter(d, "mid_block");
    xd_w_enter(d, "attentions.0");
    w_gain(d, &w->attn_gain, "norm.gamma", C);
    w_tap(d, &w->q, "to_q", C, C);
    w_tap(d, &w->k, "to_k", C, C);
    w_tap(d, &w->v, "to_v", C, C);
    w_tap(d, &w->proj, "proj_out", C, C);
    xd_w_leave(d);
    for (int i = 0; i < XD_HY15_MID; i++)
        w_res(d, &w->mid[i], i, C);
    xd_w_leave(d);
}

/* Declares the encoder or the decoder. The layers next to the latents have f32 weights, whatever
 * the type of the maps: the latents are the smallest map, and rounding errors there affect every
 * pixel. */
static void w_half(xd_decl *d, const xd_hy15_cfg *c, xd_hy15_half *w, int dec)
{
    int      last = c->widths.n - 1;
    int64_t  z = c->latent_channels, end = level_width(c, dec, last);
    xd_dtype type = d->type;
    xd_w_enter(d, dec ? "decoder" : "encoder");
    d->type = dec ? XD_F32 : type;
    w_conv(d, &w->in, "conv_in", level_width(c, dec, 0), dec ? z : c->in_channels);
    d->type = type;
    for (int l = 0; l <= last; l++)
        w_level(d, c, &w->level[l], dec, l);
    w_middle(d, w, c->widths.v[last]);
    w_gain(d, &w->gain, "norm_out.gamma", end);
    w_conv(d, &w->out, "conv_out", dec ? c->out_channels : 2 * z, end);
    xd_w_leave(d);
}

static void weights(xd_decl *d, const void *cfg, void *glob)
{
    xd_hy15_glob *g = glob;
    w_half(d, cfg, &g->enc, 0);
    w_half(d, cfg, &g->dec, 1);
}

extern const xd_vae xd_vae_hunyuanvideo15;

const xd_vae xd_vae_hunyuanvideo15 = {
    .net = { .name = "hunyuanvideo15-vae",
             .classes = { "AutoencoderKLHunyuanVideo15" },
             .fields = fields,
             .cfg_size = sizeof(xd_hy15_cfg),
             .glob_size = sizeof(xd_hy15_glob),
             .check = check,
             .weights = weights },
    .info = info,
    .decode = xd_hy15_decode,
    .encode = xd_hy15_encode,
};
