/* cogvideox.c - reads the config and declares the weights of AutoencoderKLCogVideoX (Yang et al.
 * 2024) */
#include <math.h>
#include <string.h>

#include "vae/cogvideox.h"
#include "vae/vae.h"
#include "vae/rgb.h"

enum {
    MAX_WIDTH = 1 << 16, /* max channels of a layer */
    MAX_SIDE = 1 << 24,  /* max sample height or width in pixels */
};

static const float EPS = 1e-6f; /* epsilon of norm_out and of the decoder's norms */

#define AT(member) offsetof(xd_cog_cfg, member)
static const xd_field fields[] = {
    { "in_channels", AT(in_channels), 'l', 3, NULL },
    { "out_channels", AT(out_channels), 'l', 3, NULL },
    { "down_block_types", AT(down), 'S', 0, NULL },
    { "up_block_types", AT(up), 'S', 0, NULL },
    { "block_out_channels", AT(widths), 'L', 0, NULL },
    { "latent_channels", AT(latent_channels), 'l', 16, NULL },
    { "layers_per_block", AT(layers), 'i', 3, NULL },
    { "act_fn", AT(act), 's', 0, "silu" },
    { "norm_eps", AT(eps), 'd', 1e-6, NULL },
    { "norm_num_groups", AT(groups), 'l', 32, NULL },
    { "temporal_compression_ratio", AT(ratio), 'd', 4, NULL },
    { "sample_height", AT(height), 'l', 480, NULL },
    { "sample_width", AT(width), 'l', 720, NULL },
    { "scaling_factor", AT(scaling), 'd', 1.15258426, NULL },
    { "shift_factor", AT(shift), 'd', 0, NULL },
    { "latents_mean", AT(mean), 'd', 0, NULL }, /* a list is refused: no model has it */
    { "latents_std", AT(std), 'd', 0, NULL },
    { "use_quant_conv", AT(quant), 'b', 0, NULL },
    { "use_post_quant_conv", AT(post_quant), 'b', 0, NULL },
    { "invert_scale_latents", AT(invert), 'b', 0, NULL },
    { "force_upcast", 0, '-', 0, NULL }, /* norms and sums are always f32 */
    { "_class_name", 0, '-', 0, NULL },
    { "_diffusers_version", 0, '-', 0, NULL },
    { "_name_or_path", 0, '-', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

/* ---- the config --------------------------------------------------------------------------- */

static xd_status check_numbers(const xd_cog_cfg *c, xd_err *e)
{
    const struct {
        const char *key;
        int64_t     v, max;
    } n[] = {
        { "latent_channels", c->latent_channels, MAX_WIDTH },
        { "norm_num_groups", c->groups, MAX_WIDTH },
        { "layers_per_block", c->layers, XD_COG_RES - 1 },
        { "sample_height", c->height, MAX_SIDE },
        { "sample_width", c->width, MAX_SIDE },
        { "number of block_out_channels", c->widths.n, XD_COG_LEVELS },
    };
    for (size_t i = 0; i < sizeof n / sizeof *n; i++)
        if (n[i].v < 1 || n[i].v > n[i].max)
            return xd_fail(e, XD_EUNSUPPORTED, "vae: %s is %lld; it must be from 1 to %lld",
                           n[i].key, (long long)n[i].v, (long long)n[i].max);
    for (int l = 0; l < xd_cog_levels(c); l++)
        if (c->widths.v[l] < 1 || c->widths.v[l] > MAX_WIDTH || c->widths.v[l] % c->groups)
            return xd_fail(e, XD_EFORMAT,
                           "vae: block_out_channels has %lld; it must be a multiple "
                           "of norm_num_groups, %lld, and from 1 to %d",
                           (long long)c->widths.v[l], (long long)c->groups, MAX_WIDTH);
    if (!isfinite(c->scaling) || c->scaling == 0 || !isfinite(c->shift))
        return xd_fail(e, XD_EFORMAT, "vae: scaling_factor %g or shift_factor %g is invalid",
                       c->scaling, c->shift);
    if (!isfinite(c->eps) || c->eps < 0)
        return xd_fail(e, XD_EFORMAT, "vae: norm_eps %g is invalid", c->eps);
    return XD_OK;
}

static xd_status check_ratio(xd_cog_cfg *c, xd_err *e)
{
    int most = 1 << (xd_cog_levels(c) - 1);
    /* Only the 8 frames of a batch are halved, so the ratio is at most 8. */
    most = most < 8 ? most : 8;
    for (c->halvings = 0; 1 << c->halvings < most && 1 << c->halvings != c->ratio;)
        c->halvings++;
    if (1 << c->halvings != c->ratio)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vae: temporal_compression_ratio is %g; it must be a power of two up to %d "
                       "for %d block_out_channels",
                       c->ratio, most, xd_cog_levels(c));
    return XD_OK;
}

static xd_status cog_check(void *cfg, xd_err *e)
{
    xd_cog_cfg *c = cfg;
    if (!c->widths.n) /* diffusers' default value of block_out_channels */
        c->widths = (xd_ints){ 4, { 128, 256, 256, 512 } };
    xd_status s = check_numbers(c, e);
    if (s == XD_OK)
        s = xd_vae_colours(c->in_channels, c->out_channels, e);
    if (s == XD_OK)
        s = xd_vae_blocks(&c->down, "down_block_types", "CogVideoXDownBlock3D", c->widths.n, e);
    if (s == XD_OK)
        s = xd_vae_blocks(&c->up, "up_block_types", "CogVideoXUpBlock3D", c->widths.n, e);
    if (s == XD_OK)
        s = check_ratio(c, e);
    if (s != XD_OK)
        return s;
    if (c->mean != 0 || c->std != 0)
        return xd_fail(e, XD_EUNSUPPORTED, "vae: latents_mean and latents_std must be null");
    if (strcmp(c->act, "silu") != 0 && strcmp(c->act, "swish") != 0)
        return xd_fail(e, XD_EUNSUPPORTED, "vae: act_fn is %s; only silu is supported", c->act);
    if ((c->quant || c->post_quant) && c->out_channels != c->latent_channels)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vae: use_quant_conv and use_post_quant_conv are as wide as out_channels, "
                       "%lld, and the latents have %lld channels",
                       (long long)c->out_channels, (long long)c->latent_channels);
    return XD_OK;
}

static void cog_info(const void *cfg, xd_vae_info *out)
{
    const xd_cog_cfg *c = cfg;
    int               f = 1 << (xd_cog_levels(c) - 1);
    *out = (xd_vae_info){ .channels = c->latent_channels,
                          .cell = { 1 << c->halvings, f, f },
                          .scaling = c->scaling,
                          .shift = c->shift,
                          .invert = c->invert,
                          .overlap = { 1.0 / 6, 1.0 / 5 },
                          .pack = 1,
                          .rgb = xd_vae_rgb(c->latent_channels, c->widths.v[0], c->scaling) };
    for (int i = 0; i < 2; i++) { /* a tile's side is half of the sample's */
        int64_t side = (i ? c->width : c->height) / 2 / f;
        out->tile[i] = side > 0 ? side : 1;
    }
}

/* ---- weights ------------------------------------------------------------------------------ */

/* Returns the channels of level l. Levels are counted in execution order, so the decoder's first
 * level is the coarsest. */
static int64_t level_width(const xd_cog_cfg *c, int dec, int l)
{
    return c->widths.v[dec ? xd_cog_levels(c) - 1 - l : l];
}

static void w_causal(xd_decl *d, xd_cnv *w, const char *name, int64_t out, int64_t in)
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

/* Declares a 1 x 1 x 1 convolution of the latents. Whatever the type of the maps, the weights of
 * this convolution are f32: the latents are the smallest map, and rounding errors there affect
 * every pixel. */
static void w_tap_f32(xd_decl *d, xd_lin *w, const char *name, int64_t out, int64_t in)
{
    xd_dtype type = d->type;
    d->type = XD_F32;
    w_tap(d, w, name, out, in);
    d->type = type;
}

/* Declares a group norm of C channels. In the decoder, `zC` is the number of latent channels, which
 * modulate the norm; in the encoder, `zC` is 0. */
static void w_norm(xd_decl *d, xd_cog_norm *w, const char *name, int64_t C, int64_t zC, float eps)
{
    w->eps = zC ? EPS : eps;
    if (!zC) {
        xd_w_affine(d, name, &w->gain, &w->bias, C);
        return;
    }
    xd_w_enter(d, "%s", name);
    xd_w_affine(d, "norm_layer", &w->gain, &w->bias, C);
    w_tap_f32(d, &w->y, "conv_y.conv", C, zC);
    w_tap_f32(d, &w->b, "conv_b.conv", C, zC);
    xd_w_leave(d);
}

static void w_res(xd_decl *d, const xd_cog_cfg *c, xd_cog_res *w, int dec, int i, int64_t in,
                  int64_t out)
{
    int64_t zC = dec ? c->latent_channels : 0;
    xd_w_enter(d, "resnets.%d", i);
    w_norm(d, &w->norm1, "norm1", in, zC, (float)c->eps);
    w_norm(d, &w->norm2, "norm2", out, zC, (float)c->eps);
    w_causal(d, &w->conv1, "conv1", out, in);
    w_causal(d, &w->conv2, "conv2", out, out);
    if (in != out)
        w_tap(d, &w->shortcut, "conv_shortcut", out, in);
    xd_w_leave(d);
}

static void w_level(xd_decl *d, const xd_cog_cfg *c, xd_cog_level *w, int dec, int l)
{
    int64_t C = level_width(c, dec, l), in = l ? level_width(c, dec, l - 1) : C;
    xd_w_enter(d, dec ? "up_blocks.%d" : "down_blocks.%d", l);
    for (int i = 0; i < xd_cog_residuals(c, dec); i++)
        w_res(d, c, &w->res[i], dec, i, i ? C : in, C);
    if (l < xd_cog_levels(c) - 1 && dec)
        xd_w_conv_enlarged(d, w->up, "upsamplers.0.conv", C, C);
    else if (l < xd_cog_levels(c) - 1)
        xd_w_conv(d, &w->down, "downsamplers.0.conv",
                  &(xd_conv_spec){ .out = C,
                                   .in = C,
                                   .nk = 2,
                                   .kernel = { 1, 3, 3 },
                                   .stride = { 1, 2, 2 },
                                   .bias = 1 });
    xd_w_leave(d);
}

static void w_half(xd_decl *d, const xd_cog_cfg *c, xd_cog_half *w, int dec)
{
    int      last = xd_cog_levels(c) - 1;
    int64_t  mid = c->widths.v[last], z = c->latent_channels;
    xd_dtype type = d->type;
    xd_w_enter(d, dec ? "decoder" : "encoder");
    d->type = dec ? XD_F32 : type;
    w_causal(d, &w->in, "conv_in", level_width(c, dec, 0), dec ? z : c->in_channels);
    d->type = type;
    for (int l = 0; l <= last; l++)
        w_level(d, c, &w->level[l], dec, l);
    xd_w_enter(d, "mid_block");
    for (int i = 0; i < XD_COG_MID; i++)
        w_res(d, c, &w->mid[i], dec, i, mid, mid);
    xd_w_leave(d);
    w_norm(d, &w->norm, "norm_out", level_width(c, dec, last), dec ? z : 0, EPS);
    w_causal(d, &w->out, "conv_out", dec ? c->out_channels : 2 * z, level_width(c, dec, last));
    xd_w_leave(d);
}

static void cog_weights(xd_decl *d, const void *cfg, void *glob)
{
    const xd_cog_cfg *c = cfg;
    xd_cog_glob      *g = glob;
    int64_t           z = c->latent_channels;
    w_half(d, c, &g->enc, 0);
    w_half(d, c, &g->dec, 1);
    if (c->quant)
        w_tap_f32(d, &g->quant, "quant_conv", 2 * z, 2 * z);
    if (c->post_quant)
        w_tap_f32(d, &g->post_quant, "post_quant_conv", z, z);
}

extern const xd_vae xd_vae_cogvideox;

const xd_vae xd_vae_cogvideox = {
    .net = { .name = "cogvideox-vae",
             .classes = { "AutoencoderKLCogVideoX" },
             .fields = fields,
             .cfg_size = sizeof(xd_cog_cfg),
             .glob_size = sizeof(xd_cog_glob),
             .check = cog_check,
             .weights = cog_weights },
    .info = cog_info,
    .decode = xd_cog_decode,
    .encode = xd_cog_encode,
};
