/* hunyuanvideo.c - reads the config and declares the weights of AutoencoderKLHunyuanVideo (Kong et
 * al. 2024, arXiv:2412.03603) */
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

#define AT(member) offsetof(xd_hyv_cfg, member)
static const xd_field fields[] = {
    { "in_channels", AT(in_channels), 'l', 3, NULL },
    { "out_channels", AT(out_channels), 'l', 3, NULL },
    { "down_block_types", AT(down), 'S', 0, NULL },
    { "up_block_types", AT(up), 'S', 0, NULL },
    { "block_out_channels", AT(widths), 'L', 0, NULL },
    { "latent_channels", AT(latent_channels), 'l', 16, NULL },
    { "layers_per_block", AT(layers), 'i', 2, NULL },
    { "act_fn", AT(act), 's', 0, "silu" },
    { "norm_num_groups", AT(groups), 'l', 32, NULL },
    { "scaling_factor", AT(scaling), 'd', 0.476986, NULL },
    { "spatial_compression_ratio", AT(cell), 'l', 8, NULL },
    { "temporal_compression_ratio", AT(ratio), 'l', XD_HYV_RATIO, NULL },
    { "mid_block_add_attention", AT(attention), 'b', 1, NULL },
    { "_class_name", 0, '-', 0, NULL },
    { "_diffusers_version", 0, '-', 0, NULL },
    { "_name_or_path", 0, '-', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

/* ---- the config --------------------------------------------------------------------------- */

static xd_status check_numbers(const xd_hyv_cfg *c, xd_err *e)
{
    const struct {
        const char *key;
        int64_t     v, min, max;
    } n[] = {
        { "latent_channels", c->latent_channels, 1, MAX_WIDTH },
        { "norm_num_groups", c->groups, 1, MAX_WIDTH },
        { "layers_per_block", c->layers, 1, XD_HYV_RES - 1 },
        { "number of block_out_channels", c->widths.n, 3, XD_HYV_LEVELS },
        { "temporal_compression_ratio", c->ratio, XD_HYV_RATIO, XD_HYV_RATIO },
    };
    for (size_t i = 0; i < sizeof n / sizeof *n; i++)
        if (n[i].v < n[i].min || n[i].v > n[i].max)
            return xd_fail(e, XD_EUNSUPPORTED, "vae: %s is %lld; it must be from %lld to %lld",
                           n[i].key, (long long)n[i].v, (long long)n[i].min, (long long)n[i].max);
    for (int l = 0; l < xd_hyv_levels(c); l++)
        if (c->widths.v[l] < 1 || c->widths.v[l] > MAX_WIDTH || c->widths.v[l] % c->groups)
            return xd_fail(e, XD_EFORMAT,
                           "vae: block_out_channels has %lld; it must be a multiple "
                           "of norm_num_groups, %lld, and from 1 to %d",
                           (long long)c->widths.v[l], (long long)c->groups, MAX_WIDTH);
    if (!isfinite(c->scaling) || c->scaling == 0)
        return xd_fail(e, XD_EFORMAT, "vae: scaling_factor %g is invalid", c->scaling);
    return XD_OK;
}

static xd_status check_cell(xd_hyv_cfg *c, xd_err *e)
{
    int n = xd_hyv_levels(c);
    for (c->halvings = 0; c->halvings < n && 1 << c->halvings != c->cell;)
        c->halvings++;
    if (1 << c->halvings != c->cell)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vae: spatial_compression_ratio is %lld; it must be a power of two up to "
                       "%d for %d block_out_channels",
                       (long long)c->cell, 1 << n, n);
    int64_t C = c->widths.v[n - 1];
    if (c->attention && (C < MIN_HEAD || C > MAX_HEAD))
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vae: attention over %lld channels; %d to %d are supported", (long long)C,
                       MIN_HEAD, MAX_HEAD);
    return XD_OK;
}

static xd_status hyv_check(void *cfg, xd_err *e)
{
    xd_hyv_cfg *c = cfg;
    if (!c->widths.n) /* diffusers' default value of block_out_channels */
        c->widths = (xd_ints){ 4, { 128, 256, 512, 512 } };
    xd_status s = check_numbers(c, e);
    if (s == XD_OK)
        s = xd_vae_colours(c->in_channels, c->out_channels, e);
    if (s == XD_OK)
        s = xd_vae_blocks(&c->down, "down_block_types", "HunyuanVideoDownBlock3D", c->widths.n, e);
    if (s == XD_OK)
        s = xd_vae_blocks(&c->up, "up_block_types", "HunyuanVideoUpBlock3D", c->widths.n, e);
    if (s == XD_OK)
        s = check_cell(c, e);
    if (s == XD_OK && strcmp(c->act, "silu") != 0 && strcmp(c->act, "swish") != 0)
        s = xd_fail(e, XD_EUNSUPPORTED, "vae: act_fn is %s; only silu is supported", c->act);
    return s;
}

static void hyv_info(const void *cfg, xd_vae_info *out)
{
    const xd_hyv_cfg *c = cfg;
    int               f = (int)c->cell;
    *out = (xd_vae_info){ .channels = c->latent_channels,
                          .cell = { XD_HYV_RATIO, f, f },
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
static int64_t level_width(const xd_hyv_cfg *c, int dec, int l)
{
    return c->widths.v[dec ? xd_hyv_levels(c) - 1 - l : l];
}

/* Declares a convolution over frames; `stride` is its stride along frames, rows and columns. */
static void w_conv(xd_decl *d, xd_cnv *w, const char *name, int64_t out, int64_t in, int stride)
{
    xd_w_enter(d, "%s", name);
    xd_w_conv(d, w, "conv",
              &(xd_conv_spec){ .out = out,
                               .in = in,
                               .nk = 3,
                               .kernel = { 3, 3, 3 },
                               .stride = { 1, stride, stride },
                               .bias = 1 });
    xd_w_leave(d);
}

/* Declares a convolution with a 1 x 1 x 1 kernel, which is computed as a GEMM. */
static void w_tap(xd_decl *d, xd_lin *w, const char *name, int64_t out, int64_t in)
{
    xd_w_linear_as(d, w, name, 5, (int64_t[]){ out, in, 1, 1, 1 }, 1);
}

static void w_res(xd_decl *d, xd_hyv_res *w, int i, int64_t in, int64_t out)
{
    xd_w_enter(d, "resnets.%d", i);
    xd_w_affine(d, "norm1", &w->norm1.gain, &w->norm1.bias, in);
    w_conv(d, &w->conv1, "conv1", out, in, 1);
    xd_w_affine(d, "norm2", &w->norm2.gain, &w->norm2.bias, out);
    w_conv(d, &w->conv2, "conv2", out, out, 1);
    if (in != out)
        w_tap(d, &w->shortcut, "conv_shortcut.conv", out, in);
    xd_w_leave(d);
}

static void w_level(xd_decl *d, const xd_hyv_cfg *c, xd_hyv_level *w, int dec, int l)
{
    int64_t C = level_width(c, dec, l), in = l ? level_width(c, dec, l - 1) : C;
    xd_w_enter(d, dec ? "up_blocks.%d" : "down_blocks.%d", l);
    for (int i = 0; i < xd_hyv_residuals(c, dec); i++)
        w_res(d, &w->res[i], i, i ? C : in, C);
    if (xd_hyv_rows(c, l) || xd_hyv_time(c, l))
        w_conv(d, &w->resample, dec ? "upsamplers.0.conv" : "downsamplers.0.conv", C, C,
               !dec && xd_hyv_rows(c, l) ? 2 : 1);
    xd_w_leave(d);
}

static void w_middle(xd_decl *d, const xd_hyv_cfg *c, xd_hyv_half *w, int64_t C)
{
    static const char *const kv[] = { "to_k", "to_v" };
    xd_w_enter(d, "mid_block");
    for (int i = 0; i < XD_HYV_MID; i++)
        w_res(d, &w->mid[i], i, C, C);
    if (c->attention) {
        xd_linear_spec square = { .in = C, .out = C, .bias = 1 };
        xd_w_enter(d, "attentions.0");
        xd_w_affine(d, "group_norm", &w->attn_norm.gain, &w->attn_norm.bias, C);
        xd_w_linear(d, &w->q, "to_q", &square);
        xd_w_fused(d, &w->kv,
                   &(xd_fused_spec){ .n = 2, .names = kv, .in = C, .out = { C, C }, .bias = 1 });
        xd_w_linear(d, &w->proj, "to_out.0", &square);
        xd_w_leave(d);
    }
    xd_w_leave(d);
}

/* Declares the encoder or the decoder. The layers next to the latents have f32 weights, whatever
 * the type of the maps: the latents are the smallest map, and rounding errors there affect every
 * pixel. */
static void w_half(xd_decl *d, const xd_hyv_cfg *c, xd_hyv_half *w, int dec)
{
    int      last = xd_hyv_levels(c) - 1;
    int64_t  z = c->latent_channels, end = level_width(c, dec, last);
    xd_dtype type = d->type;
    xd_w_enter(d, dec ? "decoder" : "encoder");
    d->type = dec ? XD_F32 : type;
    w_conv(d, &w->in, "conv_in", level_width(c, dec, 0), dec ? z : c->in_channels, 1);
    d->type = type;
    for (int l = 0; l <= last; l++)
        w_level(d, c, &w->level[l], dec, l);
    w_middle(d, c, w, c->widths.v[last]);
    xd_w_affine(d, "conv_norm_out", &w->norm.gain, &w->norm.bias, end);
    w_conv(d, &w->out, "conv_out", dec ? c->out_channels : 2 * z, end, 1);
    xd_w_leave(d);
}

static void hyv_weights(xd_decl *d, const void *cfg, void *glob)
{
    const xd_hyv_cfg *c = cfg;
    xd_hyv_glob      *g = glob;
    int64_t           z = c->latent_channels;
    xd_dtype          type = d->type;
    w_half(d, c, &g->enc, 0);
    w_half(d, c, &g->dec, 1);
    d->type = XD_F32;
    w_tap(d, &g->quant, "quant_conv", 2 * z, 2 * z);
    w_tap(d, &g->post_quant, "post_quant_conv", z, z);
    d->type = type;
}

extern const xd_vae xd_vae_hunyuanvideo;

const xd_vae xd_vae_hunyuanvideo = {
    .net = { .name = "hunyuanvideo-vae",
             .classes = { "AutoencoderKLHunyuanVideo" },
             .fields = fields,
             .cfg_size = sizeof(xd_hyv_cfg),
             .glob_size = sizeof(xd_hyv_glob),
             .check = hyv_check,
             .weights = hyv_weights },
    .info = hyv_info,
    .decode = xd_hyv_decode,
    .encode = xd_hyv_encode,
};
