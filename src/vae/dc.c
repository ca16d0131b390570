/* dc.c - declares AutoencoderDC, the deep compression autoencoder (Chen et al. 2024,
 * arXiv:2410.10733), which reduces the sides of an image to a 32nd. dc_run.c runs it.
 *
 * The encoder outputs latents and not a distribution. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "vae/dc.h"

enum { MOST = 1 << 16, TILE = 512 };

#define AT(m) offsetof(xd_dc_cfg, m)
static const xd_field fields[] = {
    { "in_channels", AT(in_channels), 'l', 3, NULL },
    { "latent_channels", AT(latent_channels), 'l', 32, NULL },
    { "attention_head_dim", AT(head_dim), 'l', 32, NULL },
    { "encoder_block_types", AT(types[0]), 'T', 0, NULL },
    { "decoder_block_types", AT(types[1]), 'T', 0, NULL },
    { "encoder_block_out_channels", AT(width[0]), 'L', 0, NULL },
    { "decoder_block_out_channels", AT(width[1]), 'L', 0, NULL },
    { "encoder_layers_per_block", AT(layers[0]), 'L', 0, NULL },
    { "decoder_layers_per_block", AT(layers[1]), 'L', 0, NULL },
    { "encoder_qkv_multiscales", AT(scales[0]), 'G', 0, NULL },
    { "decoder_qkv_multiscales", AT(scales[1]), 'G', 0, NULL },
    { "upsample_block_type", AT(up), 's', 0, "pixel_shuffle" },
    { "downsample_block_type", AT(down), 's', 0, "pixel_unshuffle" },
    { "decoder_norm_types", AT(norms), 'T', 0, NULL },
    { "decoder_act_fns", AT(acts), 'T', 0, NULL },
    { "encoder_out_shortcut", AT(shortcut[0]), 'b', 1, NULL },
    { "decoder_in_shortcut", AT(shortcut[1]), 'b', 1, NULL },
    { "decoder_conv_act_fn", AT(act), 's', 0, "relu" },
    { "scaling_factor", AT(scaling), 'd', 1, NULL },
    { NULL, 0, 0, 0, NULL },
};

/* ---- the config --------------------------------------------------------------------------- */

/* Returns the text of a level; a list of one text is for all levels. */
static const char *text_at(const xd_names *t, int level, const char *none)
{
    return t->n ? t->v[t->n == 1 ? 0 : level] : none;
}

int xd_dc_attends(const xd_dc_cfg *c, int dec, int level)
{
    return strcmp(text_at(&c->types[dec], level, "ResBlock"), "EfficientViTBlock") == 0;
}

int xd_dc_scales(const xd_dc_cfg *c, int dec, int level, int size[XD_DC_SCALES])
{
    int n = 0;
    for (int64_t v = c->scales[dec].v[level]; v && n < XD_DC_SCALES; v /= 64)
        size[n++] = (int)(v % 64);
    return n;
}

int xd_dc_plain(const xd_dc_cfg *c, int dec)
{
    return dec ? strcmp(c->up, "interpolate") == 0 : strcmp(c->down, "pixel_unshuffle") != 0;
}

static xd_status refuse_text(const char *key, const char *is, const char *known, xd_err *e)
{
    return xd_fail(e, XD_EUNSUPPORTED, "vae: %s has %s; only %s is supported", key, is, known);
}

/* Sets the lists that the config does not have to diffusers' defaults. */
static void set_defaults(xd_dc_cfg *c)
{
    for (int dec = 0; dec < 2; dec++) {
        const int64_t few = dec ? 3 : 2;
        if (!c->width[dec].n)
            c->width[dec] = (xd_ints){ 6, { 128, 256, 512, 512, 1024, 1024 } };
        if (!c->layers[dec].n)
            c->layers[dec] = (xd_ints){ 6, { few, few, few, 3, 3, 3 } };
        if (!c->scales[dec].n)
            c->scales[dec] = (xd_ints){ 6, { 0, 0, 0, 5, 5, 5 } };
    }
}

/* Returns 1 if two widths allow the shortcut of a layer that changes the number of pixels by 4: the
 * number of channels after the pixels were moved to the channels is a multiple of the other. */
static int fits_shortcut(int64_t fine, int64_t coarse)
{
    const int64_t r = 4 * fine / coarse;
    return 4 * fine % coarse == 0 && (r == 1 || r == 2 || r % 4 == 0);
}

static xd_status check_level(const xd_dc_cfg *c, int dec, int l, xd_err *e)
{
    const char   *who = dec ? "decoder" : "encoder";
    const int64_t w = c->width[dec].v[l], n = c->layers[dec].v[l];
    const char   *type = text_at(&c->types[dec], l, "ResBlock");
    int           size[XD_DC_SCALES];
    if (w < 1 || w > MOST || n < 1 || n > XD_DC_BLOCKS)
        return xd_fail(
            e, XD_EUNSUPPORTED,
            "vae: level %d of the %s has %lld channels and %lld layers; 1 to %d channels "
            "and 1 to %d layers are supported",
            l, who, (long long)w, (long long)n, MOST, XD_DC_BLOCKS);
    if (!xd_dc_attends(c, dec, l) && strcmp(type, "ResBlock") != 0)
        return refuse_text(dec ? "decoder_block_types" : "encoder_block_types", type,
                           "ResBlock or EfficientViTBlock", e);
    if (xd_dc_attends(c, dec, l) && w < c->head_dim)
        return xd_fail(e, XD_EFORMAT,
                       "vae: level %d of the %s has %lld channels, fewer than attention_head_dim "
                       "%lld",
                       l, who, (long long)w, (long long)c->head_dim);
    for (int i = xd_dc_scales(c, dec, l, size) - 1; i >= 0; i--)
        if (size[i] % 2 == 0)
            return xd_fail(e, XD_EUNSUPPORTED, "vae: %s_qkv_multiscales has %d, which is not odd",
                           who, size[i]);
    if (c->scales[dec].v[l] >> (6 * XD_DC_SCALES))
        return xd_fail(e, XD_EUNSUPPORTED, "vae: %s_qkv_multiscales has more than %d sizes", who,
                       XD_DC_SCALES);
    if (l + 1 < c->width[dec].n && (!fits_shortcut(w, c->width[dec].v[l + 1]) ||
                                    (!dec && !xd_dc_plain(c, 0) && c->width[0].v[l + 1] % 4)))
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vae: %s_block_out_channels has %lld next to %lld, between which there is "
                       "no shortcut",
                       who, (long long)w, (long long)c->width[dec].v[l + 1]);
    return XD_OK;
}

static xd_status check_half(const xd_dc_cfg *c, int dec, xd_err *e)
{
    const char *who = dec ? "decoder" : "encoder";
    const int   n = c->width[dec].n;
    if (n != c->width[0].n || n < 1 || n > XD_DC_LEVELS || c->layers[dec].n != n ||
        c->scales[dec].n != n || (c->types[dec].n > 1 && c->types[dec].n != n))
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vae: the lists of the %s have %d widths, %d numbers of layers, %d "
                       "multiscales and %d types; all must have the same length, 1 to %d",
                       who, n, c->layers[dec].n, c->scales[dec].n, c->types[dec].n, XD_DC_LEVELS);
    const int64_t last = c->width[dec].v[n - 1];
    if (c->shortcut[dec] && last % c->latent_channels)
        return xd_fail(e, XD_EFORMAT,
                       "vae: %s_block_out_channels ends with %lld, which is no multiple of "
                       "latent_channels %lld",
                       who, (long long)last, (long long)c->latent_channels);
    xd_status s = XD_OK;
    for (int l = 0; l < n && s == XD_OK; l++)
        s = check_level(c, dec, l, e);
    return s;
}

static xd_status check_config(void *c_, xd_err *e)
{
    xd_dc_cfg *c = c_;
    set_defaults(c);
    if (xd_vae_colours(c->in_channels, c->in_channels, e) != XD_OK)
        return XD_EUNSUPPORTED;
    if (c->latent_channels < 1 || c->latent_channels > MOST || c->head_dim < 1 ||
        c->head_dim > XD_LINATTN_MAX)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vae: latent_channels is %lld and attention_head_dim %lld; 1 to %d and 1 to "
                       "%d are supported",
                       (long long)c->latent_channels, (long long)c->head_dim, MOST, XD_LINATTN_MAX);
    if (!isfinite(c->scaling) || c->scaling == 0)
        return xd_fail(e, XD_EFORMAT, "vae: scaling_factor %g is invalid", c->scaling);
    for (int l = 0; l < c->width[1].n; l++) {
        const char *norm = text_at(&c->norms, l < c->norms.n ? l : 0, "rms_norm");
        const char *act = text_at(&c->acts, l < c->acts.n ? l : 0, "silu");
        if (strcmp(norm, "rms_norm") != 0)
            return refuse_text("decoder_norm_types", norm, "rms_norm", e);
        if (strcmp(act, "silu") != 0)
            return refuse_text("decoder_act_fns", act, "silu", e);
    }
    if (strcmp(c->act, "relu") != 0 && strcmp(c->act, "silu") != 0)
        return refuse_text("decoder_conv_act_fn", c->act, "relu or silu", e);
    if (strcmp(c->up, "interpolate") != 0 && strcmp(c->up, "pixel_shuffle") != 0)
        return refuse_text("upsample_block_type", c->up, "interpolate or pixel_shuffle", e);
    xd_status s = check_half(c, 0, e);
    return s == XD_OK ? check_half(c, 1, e) : s;
}

static void info(const void *c_, xd_vae_info *out)
{
    const xd_dc_cfg *c = c_;
    int              f = 1 << (xd_dc_levels(c) - 1);
    *out = (xd_vae_info){ .channels = c->latent_channels,
                          .cell = { 1, f, f },
                          .scaling = c->scaling,
                          .pack = 1,
                          .tile = { TILE / f, TILE / f },
                          .overlap = { 0.125, 0.125 } };
}

/* ---- weights ------------------------------------------------------------------------------ */

typedef struct shape {
    int64_t out, in;
    int     kernel, stride, bias;
} shape;

static void w_conv(xd_decl *d, xd_cnv *w, const char *name, shape s, int groups)
{
    xd_w_conv(d, w, name,
              &(xd_conv_spec){ .out = s.out,
                               .in = s.in,
                               .nk = 2,
                               .kernel = { 1, s.kernel, s.kernel },
                               .stride = { 1, s.stride, s.stride },
                               .bias = s.bias,
                               .groups = groups });
}

static void w_attention(xd_decl *d, const xd_dc_cfg *c, xd_dc_block *w, int dec, int level)
{
    static const char *const qkv[] = { "to_q", "to_k", "to_v" };
    const int64_t            C = c->width[dec].v[level], heads = C / c->head_dim;
    const int64_t            inner = heads * c->head_dim;
    int                      size[XD_DC_SCALES], n = xd_dc_scales(c, dec, level, size);
    xd_w_enter(d, "attn");
    xd_w_fused(d, &w->qkv,
               &(xd_fused_spec){ .n = 3, .names = qkv, .in = C, .out = { inner, inner, inner } });
    for (int i = 0; i < n; i++) {
        xd_w_enter(d, "to_qkv_multiscale.%d", i);
        w_conv(d, &w->wide[i], "proj_in", (shape){ 3 * inner, 1, size[i], 1, 0 }, (int)(3 * inner));
        w_conv(d, &w->mix[i], "proj_out", (shape){ 3 * inner, c->head_dim, 1, 1, 0 },
               (int)(3 * heads));
        xd_w_leave(d);
    }
    xd_w_linear(d, &w->out, "to_out", &(xd_linear_spec){ .in = inner * (1 + n), .out = C });
    xd_w_affine(d, "norm_out", &w->gain, &w->bias, C);
    xd_w_leave(d);
    xd_w_enter(d, "conv_out");
    xd_w_linear(d, &w->up, "conv_inverted",
                &(xd_linear_spec){ .in = C, .out = 8 * C, .bias = 1, .ones = 2 });
    w_conv(d, &w->depth, "conv_depth", (shape){ 8 * C, 1, 3, 1, 1 }, (int)(8 * C));
    xd_w_linear(d, &w->down, "conv_point", &(xd_linear_spec){ .in = 4 * C, .out = C, .ones = 2 });
    xd_w_affine(d, "norm", &w->ff_gain, &w->ff_bias, C);
    xd_w_leave(d);
}

static void w_block(xd_decl *d, const xd_dc_cfg *c, xd_dc_block *w, int dec, int level)
{
    const int64_t C = c->width[dec].v[level];
    if (xd_dc_attends(c, dec, level)) {
        w_attention(d, c, w, dec, level);
        return;
    }
    w_conv(d, &w->conv[0], "conv1", (shape){ C, C, 3, 1, 1 }, 1);
    w_conv(d, &w->conv[1], "conv2", (shape){ C, C, 3, 1, 0 }, 1);
    xd_w_affine(d, "norm", &w->gain, &w->bias, C);
}

/* Declares the convolution between a level and the next coarser one. */
static void w_size(xd_decl *d, const xd_dc_cfg *c, xd_dc_level *w, int dec, int level)
{
    const int64_t fine = c->width[dec].v[level], coarse = c->width[dec].v[level + 1];
    const int     plain = xd_dc_plain(c, dec);
    if (dec && plain)
        xd_w_conv_enlarged(d, w->enlarge, "conv", fine, coarse);
    else if (dec)
        w_conv(d, &w->size, "conv", (shape){ 4 * fine, coarse, 3, 1, 1 }, 1);
    else
        w_conv(d, &w->size, "conv",
               (shape){ plain ? coarse : coarse / 4, fine, 3, plain ? 2 : 1, 1 }, 1);
}

/* Declares the encoder or the decoder. Convolutions next to the latents have f32 weights, because
 * rounding errors there affect every pixel. */
static void w_half(xd_decl *d, const xd_dc_cfg *c, xd_dc_half *w, int dec)
{
    const int      last = xd_dc_levels(c) - 1;
    const int64_t  fine = c->width[dec].v[0], coarse = c->width[dec].v[last];
    const xd_dtype type = d->type;
    xd_w_enter(d, dec ? "decoder" : "encoder");
    d->type = dec ? XD_F32 : type;
    w_conv(d, &w->in, "conv_in",
           (shape){ dec ? coarse : fine, dec ? c->latent_channels : c->in_channels, 3, 1, 1 }, 1);
    d->type = type;
    for (int l = 0; l <= last; l++) {
        const int n = (int)c->layers[dec].v[l], first = dec && l < last;
        xd_w_enter(d, dec ? "up_blocks.%d" : "down_blocks.%d", l);
        for (int i = 0; i < n; i++) {
            xd_w_enter(d, "%d", first + i);
            w_block(d, c, &w->level[l].block[i], dec, l);
            xd_w_leave(d);
        }
        if (l < last) {
            xd_w_enter(d, "%d", dec ? 0 : n);
            w_size(d, c, &w->level[l], dec, l);
            xd_w_leave(d);
        }
        xd_w_leave(d);
    }
    if (dec)
        xd_w_affine(d, "norm_out", &w->gain, &w->bias, fine);
    d->type = dec ? type : XD_F32;
    w_conv(d, &w->out, "conv_out",
           (shape){ dec ? c->in_channels : c->latent_channels, dec ? fine : coarse, 3, 1, 1 }, 1);
    d->type = type;
    xd_w_leave(d);
}

static void weights(xd_decl *d, const void *cfg, void *g_)
{
    xd_dc_glob *g = g_;
    for (int dec = 0; dec < 2; dec++)
        w_half(d, cfg, &g->half[dec], dec);
}

extern const xd_vae xd_vae_dc;

const xd_vae xd_vae_dc = {
    .net = { .name = "dc",
             .classes = { "AutoencoderDC" },
             .fields = fields,
             .cfg_size = sizeof(xd_dc_cfg),
             .glob_size = sizeof(xd_dc_glob),
             .check = check_config,
             .weights = weights },
    .info = info,
    .decode = xd_dc_decode,
    .encode = xd_dc_encode,
};
