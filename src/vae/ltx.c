/* ltx.c - reads the config and declares the weights of AutoencoderKLLTXVideo (HaCohen et al. 2024,
 * arXiv:2501.00103), versions 0.9.0, 0.9.1 and 0.9.5, and of AutoencoderKLLTX2Video of LTX-2 */
#include "vae/ltx.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "vae/rgb.h"

enum {
    TILE = 512,          /* height and width of a tile in pixels */
    MAX_WIDTH = 1 << 16, /* max channels of a layer */
    MAX_PATCH = 16,
    WAVES = 256, /* sinusoids of a timestep */
};

#define AT(member) offsetof(xd_ltx_cfg, member)
/* The fields of both classes; the argument is a default. */
#define FIELDS(causal)                                               \
    { "in_channels", AT(in_channels), 'l', 3, NULL },                      \
    { "out_channels", AT(out_channels), 'l', 3, NULL },                    \
    { "latent_channels", AT(latent_channels), 'l', 128, NULL },            \
    { "block_out_channels", AT(widths), 'L', 0, NULL },                    \
    { "down_block_types", AT(blocks), 'S', 0, NULL },                      \
    { "decoder_block_out_channels", AT(dec_widths), 'L', 0, NULL },        \
    { "layers_per_block", AT(layers), 'L', 0, NULL },                      \
    { "decoder_layers_per_block", AT(dec_layers), 'L', 0, NULL },          \
    { "spatio_temporal_scaling", AT(scales), 'B', 0, NULL },               \
    { "decoder_spatio_temporal_scaling", AT(dec_scales), 'B', 0, NULL },   \
    { "decoder_inject_noise", AT(noise), 'B', 0, NULL },                   \
    { "downsample_type", AT(downs), 'S', 0, NULL },                        \
    { "upsample_residual", AT(residual), 'B', 0, NULL },                   \
    { "upsample_factor", AT(factor), 'L', 0, NULL },                       \
    { "timestep_conditioning", AT(timed), 'b', 0, NULL },                  \
    { "patch_size", AT(patch), 'l', 4, NULL },                             \
    { "patch_size_t", AT(patch_t), 'l', 1, NULL },                         \
    { "resnet_norm_eps", AT(eps), 'f', 1e-6, NULL },                       \
    { "scaling_factor", AT(scaling), 'd', 1, NULL },                       \
    { "encoder_causal", AT(enc_causal), 'b', 1, NULL },                    \
    { "decoder_causal", AT(dec_causal), 'b', causal, NULL },               \
    { "spatial_compression_ratio", AT(wide), 'l', 0, NULL },               \
    { "temporal_compression_ratio", AT(time), 'l', 0, NULL },              \
    { "_class_name", 0, '-', 0, NULL },                                    \
    { "_diffusers_version", 0, '-', 0, NULL },                             \
    { "_name_or_path", 0, '-', 0, NULL }

static const xd_field fields[] = {
    FIELDS(0),
    { NULL, 0, 0, 0, NULL },
};

static const xd_field fields2[] = {
    FIELDS(1),
    { "upsample_type", AT(ups), 'S', 0, NULL },
    { "encoder_spatial_padding_mode", AT(enc_pad), 's', 0, "zeros" },
    { "decoder_spatial_padding_mode", AT(dec_pad), 's', 0, "reflect" },
    { NULL, 0, 0, 0, NULL },
};

/* ---- the config --------------------------------------------------------------------------- */

/* Block types of both classes, and of version 0.9.5 of the first one. */
static const char *const block_types[] = { "LTXVideoDownBlock3D", "LTX2VideoDownBlock3D" };
static const char *const block_type_095 = "LTXVideo095DownBlock3D";

/* How the types of down- and upsampling change frames, rows and columns. */
static const struct {
    const char *type;
    xd_ltx_down by;
} resampling[] = { { "conv", { 1, { 2, 2, 2 } } },
                   { "spatial", { 0, { 1, 2, 2 } } },
                   { "temporal", { 0, { 2, 1, 1 } } },
                   { "spatiotemporal", { 0, { 2, 2, 2 } } } };

/* Sets the lists that the config does not have. */
static void set_lists(xd_ltx_cfg *c)
{
    static const xd_ints all[][2] = {
        { { 4, { 128, 256, 512, 512 } }, { 4, { 256, 512, 1024, 2048 } } },
        { { 4, { 128, 256, 512, 512 } }, { 3, { 256, 512, 1024 } } },
        { { 5, { 4, 3, 3, 3, 4 } }, { 5, { 4, 6, 6, 2, 2 } } },
        { { 5, { 4, 3, 3, 3, 4 } }, { 4, { 5, 5, 5, 5 } } },
        { { 4, { 1, 1, 1, 0 } }, { 4, { 1, 1, 1, 1 } } },
        { { 4, { 1, 1, 1, 0 } }, { 3, { 1, 1, 1 } } },
        { { 5, { 0 } }, { 4, { 0 } } },
        { { 4, { 0 } }, { 3, { 1, 1, 1 } } },
        { { 4, { 1, 1, 1, 1 } }, { 3, { 2, 2, 2 } } },
    };
    static const char *const downs[][4] = { { "conv", "conv", "conv", "conv" },
                                            { "spatial", "temporal", "spatiotemporal",
                                              "spatiotemporal" } };
    xd_ints *const           to[] = { &c->widths,     &c->dec_widths, &c->layers,
                                      &c->dec_layers, &c->scales,     &c->dec_scales,
                                      &c->noise,      &c->residual,   &c->factor };
    for (size_t i = 0; i < sizeof to / sizeof *to; i++)
        if (!to[i]->n)
            *to[i] = all[i][c->second];
    for (int i = 0; !c->blocks.n && i < 4; i++)
        strcpy(c->blocks.v[i], block_types[c->second]);
    for (int i = 0; !c->downs.n && i < 4; i++)
        strcpy(c->downs.v[i], downs[c->second][i]);
    for (int i = 0; !c->ups.n && i < c->dec_widths.n; i++)
        strcpy(c->ups.v[i], "spatiotemporal");
    c->blocks.n = c->blocks.n ? c->blocks.n : 4;
    c->downs.n = c->downs.n ? c->downs.n : 4;
    c->ups.n = c->ups.n ? c->ups.n : c->dec_widths.n;
}

static xd_status check_list(const char *key, const xd_ints *v, int n, int64_t min, int64_t max,
                            xd_err *e)
{
    if (v->n != n)
        return xd_fail(e, XD_EFORMAT, "vae: %s has %d entries, and needs %d", key, v->n, n);
    for (int i = 0; i < n; i++)
        if (v->v[i] < min || v->v[i] > max)
            return xd_fail(e, XD_EUNSUPPORTED, "vae: %s has %lld; it must be from %lld to %lld",
                           key, (long long)v->v[i], (long long)min, (long long)max);
    return XD_OK;
}

static xd_status check_lists(xd_ltx_cfg *c, xd_err *e)
{
    int n = c->levels[0], m = c->levels[1];
    if (n < 1 || m < 1 || n > XD_LTX_LEVELS || m > XD_LTX_LEVELS || c->blocks.n < n ||
        c->downs.n < n || c->ups.n < m)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vae: block_out_channels makes %d levels of the encoder and "
                       "decoder_block_out_channels %d of the decoder, with %d down_block_types, "
                       "%d downsample_type and %d upsample_type; 1 to %d levels are supported",
                       n, m, c->blocks.n, c->downs.n, c->ups.n, XD_LTX_LEVELS);
    const struct {
        const char    *key;
        const xd_ints *v;
        int            n;
        int64_t        min, max;
    } all[] = {
        { "block_out_channels", &c->widths, c->widths.n, 1, MAX_WIDTH },
        { "decoder_block_out_channels", &c->dec_widths, m, 1, MAX_WIDTH },
        { "layers_per_block", &c->layers, n + 1, 1, XD_LTX_RES },
        { "decoder_layers_per_block", &c->dec_layers, m + 1, 1, XD_LTX_RES },
        { "spatio_temporal_scaling", &c->scales, n, 0, 1 },
        { "decoder_spatio_temporal_scaling", &c->dec_scales, m, 0, 1 },
        { "decoder_inject_noise", &c->noise, m + 1, 0, 1 },
        { "upsample_residual", &c->residual, m, 0, 1 },
        { "upsample_factor", &c->factor, m, 1, 8 },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (check_list(all[i].key, all[i].v, all[i].n, all[i].min, all[i].max, e) != XD_OK)
            return XD_EFORMAT;
    return XD_OK;
}

/* Sets how level l of the encoder changes the resolution. */
static xd_status set_down(xd_ltx_cfg *c, int l, xd_err *e)
{
    int64_t     in = xd_ltx_enc_width(c, l), out = xd_ltx_enc_width(c, l + 1);
    const char *want = c->moves && !c->second ? block_type_095 : block_types[c->second];
    if (strcmp(c->blocks.v[l], want) != 0)
        return xd_fail(e, XD_EUNSUPPORTED, "vae: down_block_types has %s, and needs %s",
                       c->blocks.v[l], want);
    c->down[l] = (xd_ltx_down){ 0, { 1, 1, 1 } };
    for (size_t i = 0; c->scales.v[l] && i < (c->moves ? 4 : 1); i++)
        if (!c->moves || strcmp(c->downs.v[l], resampling[i].type) == 0)
            c->down[l] = resampling[i].by;
    const int *by = c->down[l].by;
    int64_t    cells = by[0] * by[1] * by[2];
    if (c->scales.v[l] && cells == 1)
        return xd_fail(e, XD_EUNSUPPORTED, "vae: downsample_type has %s, which is not known",
                       c->downs.v[l]);
    if (c->moves && (c->down[l].strided || cells == 1) && in != out)
        return xd_fail(e, XD_EFORMAT,
                       "vae: level %d of the encoder changes %lld channels to %lld without a layer "
                       "that does so",
                       l, (long long)in, (long long)out);
    if (c->moves && (out % cells || in * cells % out))
        return xd_fail(e, XD_EFORMAT,
                       "vae: level %d of the encoder moves %lld channels to %lld, which do not "
                       "divide",
                       l, (long long)in, (long long)out);
    return XD_OK;
}

/* Sets how level l of the decoder changes the resolution, and checks its channels. With
 * upsample_factor, upsampling changes the channels, and no other layer does. */
static xd_status set_up(xd_ltx_cfg *c, int l, xd_err *e)
{
    int     at = c->levels[1] - 1 - l, *by = c->up[l], scales = (int)c->dec_scales.v[at];
    int64_t before = xd_ltx_dec_width(c, l - 1), after = xd_ltx_dec_width(c, l);
    int64_t factor = c->factor.v[at];
    int     side = before != after * factor;
    for (int i = 0; i < 3; i++)
        by[i] = 1;
    for (int i = 1; scales && i < 4; i++)
        if (strcmp(c->ups.v[l], resampling[i].type) == 0)
            memcpy(by, resampling[i].by.by, sizeof c->up[l]);
    if (scales && xd_ltx_up_cells(c, l) == 1)
        return xd_fail(e, XD_EUNSUPPORTED, "vae: upsample_type has %s, which is not known",
                       c->ups.v[l]);
    if (c->dec_widths.v[at] % factor || (side && (factor != 1 || c->timed || c->second)) ||
        (factor != 1 && !scales) ||
        (c->residual.v[at] && (after * factor % xd_ltx_up_cells(c, l) || !scales)))
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vae: level %d of the decoder changes %lld channels to %lld, which "
                       "upsample_factor %lld does not support",
                       l, (long long)before, (long long)after, (long long)factor);
    return XD_OK;
}

/* Computes the size of a latent cell, which must be that of encoder and decoder. */
static xd_status set_cell(xd_ltx_cfg *c, xd_err *e)
{
    int64_t enc[2] = { 1, c->patch }, dec[2] = { 1, c->patch };
    for (int l = 0; l < c->levels[0]; l++)
        enc[0] *= c->down[l].by[0], enc[1] *= c->down[l].by[1];
    for (int l = 0; l < c->levels[1]; l++)
        dec[0] *= c->up[l][0], dec[1] *= c->up[l][1];
    int64_t want[2] = { c->time ? c->time : dec[0], c->wide ? c->wide : dec[1] };
    for (int i = 0; i < 2; i++) {
        if (enc[i] != dec[i] || dec[i] != want[i])
            return xd_fail(e, XD_EFORMAT,
                           "vae: a latent cell has %lld %s in the encoder, %lld in the decoder and "
                           "%lld in %s",
                           (long long)enc[i], i ? "pixel rows" : "frames", (long long)dec[i],
                           (long long)want[i],
                           i ? "spatial_compression_ratio" : "temporal_compression_ratio");
        c->cell[i] = (int)dec[i];
    }
    return XD_OK;
}

static xd_status check_config(void *cfg_, xd_err *e)
{
    xd_ltx_cfg *c = cfg_;
    set_lists(c);
    c->moves = c->second || strcmp(c->blocks.v[c->blocks.n - 1], block_type_095) == 0;
    c->levels[0] = c->widths.n - c->moves;
    c->levels[1] = c->dec_widths.n;
    if (c->latent_channels < 1 || c->latent_channels > MAX_WIDTH || c->patch < 1 ||
        c->patch > MAX_PATCH || c->patch_t != 1 || !c->enc_causal)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vae: latent_channels %lld, patch_size %lld, patch_size_t %lld and "
                       "encoder_causal %s are not supported together",
                       (long long)c->latent_channels, (long long)c->patch, (long long)c->patch_t,
                       c->enc_causal ? "true" : "false");
    if (!isfinite(c->scaling) || c->scaling == 0)
        return xd_fail(e, XD_EFORMAT, "vae: scaling_factor %g is invalid", c->scaling);
    xd_status s = check_lists(c, e);
    for (int l = 0; s == XD_OK && l < c->levels[0]; l++)
        s = set_down(c, l, e);
    for (int l = 0; s == XD_OK && l < c->levels[1]; l++)
        s = set_up(c, l, e);
    if (s == XD_OK)
        s = set_cell(c, e);
    return s == XD_OK ? xd_vae_colours(c->in_channels, c->out_channels, e) : s;
}

/* Checks the config of AutoencoderKLLTX2Video, whose encoder starts with as many channels as the
 * latents have. */
static xd_status check_second(void *cfg_, xd_err *e)
{
    xd_ltx_cfg *c = cfg_;
    c->second = 1;
    set_lists(c);
    c->mirrors = strcmp(c->dec_pad, "reflect") == 0;
    if (strcmp(c->enc_pad, "zeros") != 0 || (!c->mirrors && strcmp(c->dec_pad, "zeros") != 0))
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vae: encoder_spatial_padding_mode %s is not zeros, or "
                       "decoder_spatial_padding_mode %s is neither zeros nor reflect",
                       c->enc_pad, c->dec_pad);
    if (c->widths.n >= XD_FIELD_LIST)
        return xd_fail(e, XD_EUNSUPPORTED, "vae: block_out_channels has %d entries", c->widths.n);
    memmove(c->widths.v + 1, c->widths.v, (size_t)c->widths.n++ * sizeof *c->widths.v);
    c->widths.v[0] = c->latent_channels;
    return check_config(c, e);
}

void xd_ltx_info(const void *cfg_, xd_vae_info *out)
{
    const xd_ltx_cfg *c = cfg_;
    int               f = c->cell[1];
    *out = (xd_vae_info){ .channels = c->latent_channels,
                          .cell = { c->cell[0], f, f },
                          .scaling = 1,
                          .timed = c->timed,
                          .alone = 1,
                          .overlap = { 0.125, 0.125 },
                          .pack = 1,
                          .rgb = xd_vae_rgb(c->latent_channels, c->widths.v[0], c->scaling) };
    out->tile[0] = out->tile[1] = f < TILE ? TILE / f : 1;
}

/* ---- weights ------------------------------------------------------------------------------ */

/* Declares a convolution over frames with a kernel of 3 x 3 x 3. */
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

/* Declares a residual block. noise: 1: it adds noise; timed: 1: it reads the timestep. */
static void w_res(xd_decl *d, xd_ltx_res *w, int64_t in, int64_t out, int noise, int timed)
{
    char name[32];
    w_conv(d, &w->conv[0], "conv1", out, in, 1);
    w_conv(d, &w->conv[1], "conv2", out, out, 1);
    if (in != out) {
        xd_w_affine(d, "norm3", &w->gain, &w->bias, in);
        xd_w_linear_as(d, &w->shortcut, "conv_shortcut.conv", 5, (int64_t[]){ out, in, 1, 1, 1 },
                       1);
    }
    for (int i = 0; noise && i < 2; i++) {
        snprintf(name, sizeof name, "per_channel_scale%d", i + 1);
        xd_w_vec(d, &w->noise[i], name, 3, (int64_t[]){ in, 1, 1 });
    }
    if (timed)
        xd_w_vec(d, &w->table, "scale_shift_table", 2, (int64_t[]){ 4, in });
}

/* Declares the layers of a timestep embedding of n features. */
static void w_time(xd_decl *d, xd_lin w[2], int64_t n)
{
    xd_w_enter(d, "time_embedder.timestep_embedder");
    xd_w_linear(d, &w[0], "linear_1",
                &(xd_linear_spec){ .in = WAVES, .out = n, .bias = 1, .few = 1 });
    xd_w_linear(d, &w[1], "linear_2", &(xd_linear_spec){ .in = n, .out = n, .bias = 1, .few = 1 });
    xd_w_leave(d);
}

static void w_blocks(xd_decl *d, xd_ltx_level *w, int64_t n, int64_t C, int noise, int timed)
{
    if (timed)
        w_time(d, w->time, 4 * C);
    for (int i = 0; i < n; i++) {
        xd_w_enter(d, "resnets.%d", i);
        w_res(d, &w->res[i], C, C, noise, timed);
        xd_w_leave(d);
    }
}

static void w_down(xd_decl *d, const xd_ltx_cfg *c, xd_ltx_level *w, int l)
{
    int64_t    in = xd_ltx_enc_width(c, l), out = xd_ltx_enc_width(c, l + 1);
    const int *by = c->down[l].by;
    xd_w_enter(d, "down_blocks.%d", l);
    w_blocks(d, w, c->layers.v[l], in, 0, 0);
    if (c->scales.v[l] && c->down[l].strided) {
        xd_w_enter(d, "downsamplers");
        w_conv(d, &w->resample, "0", in, in, 2);
        xd_w_leave(d);
    } else if (c->scales.v[l]) {
        w_conv(d, &w->resample, "downsamplers.0.conv", out / (by[0] * by[1] * by[2]), in, 1);
    }
    if (!c->moves && in != out) {
        xd_w_enter(d, "conv_out");
        w_res(d, &w->side, in, out, 0, 0);
        xd_w_leave(d);
    }
    xd_w_leave(d);
}

static void w_up(xd_decl *d, const xd_ltx_cfg *c, xd_ltx_level *w, int l)
{
    int     at = c->levels[1] - 1 - l;
    int64_t before = xd_ltx_dec_width(c, l - 1), C = xd_ltx_dec_width(c, l);
    int64_t factor = c->factor.v[at];
    int     noise = (int)c->noise.v[at];
    xd_w_enter(d, "up_blocks.%d", l);
    if (before != C * factor) {
        xd_w_enter(d, "conv_in");
        w_res(d, &w->side, before, C, noise, 0);
        xd_w_leave(d);
    }
    if (c->dec_scales.v[at])
        w_conv(d, &w->resample, "upsamplers.0.conv", xd_ltx_up_cells(c, l) * C, factor * C, 1);
    w_blocks(d, w, c->dec_layers.v[at], C, noise, c->timed);
    xd_w_leave(d);
}

static void w_encoder(xd_decl *d, const xd_ltx_cfg *c, xd_ltx_half *w)
{
    int     n = c->levels[0];
    int64_t end = xd_ltx_enc_width(c, n), pixels = c->patch * c->patch;
    xd_w_enter(d, "encoder");
    w_conv(d, &w->in, "conv_in", c->widths.v[0], c->in_channels * pixels, 1);
    for (int l = 0; l < n; l++)
        w_down(d, c, &w->level[l], l);
    xd_w_enter(d, "mid_block");
    w_blocks(d, &w->mid, c->layers.v[c->layers.n - 1], end, 0, 0);
    xd_w_leave(d);
    w_conv(d, &w->out, "conv_out", c->latent_channels + 1, end, 1);
    xd_w_leave(d);
}

/* Declares the decoder. The layer next to the latents has f32 weights, whatever the type of the
 * maps: the latents are the smallest map, and rounding errors there affect every pixel. */
static void w_decoder(xd_decl *d, const xd_ltx_cfg *c, xd_ltx_half *w)
{
    int      m = c->levels[1];
    int64_t  first = xd_ltx_dec_width(c, -1), end = xd_ltx_dec_width(c, m - 1);
    xd_dtype type = d->type;
    xd_w_enter(d, "decoder");
    d->type = XD_F32;
    w_conv(d, &w->in, "conv_in", first, c->latent_channels, 1);
    d->type = type;
    xd_w_enter(d, "mid_block");
    w_blocks(d, &w->mid, c->dec_layers.v[m], first, (int)c->noise.v[m], c->timed);
    xd_w_leave(d);
    for (int l = 0; l < m; l++)
        w_up(d, c, &w->level[l], l);
    w_conv(d, &w->out, "conv_out", c->out_channels * c->patch * c->patch, end, 1);
    if (c->timed) {
        w_time(d, w->time, 2 * end);
        xd_w_vec(d, &w->table, "scale_shift_table", 2, (int64_t[]){ 2, end });
        xd_w_vec(d, &w->scale, "timestep_scale_multiplier", 0, NULL);
    }
    xd_w_leave(d);
}

static void weights(xd_decl *d, const void *cfg_, void *glob_)
{
    const xd_ltx_cfg *c = cfg_;
    xd_ltx_glob      *g = glob_;
    w_encoder(d, c, &g->enc);
    w_decoder(d, c, &g->dec);
    xd_w_vec(d, &g->mean, "latents_mean", 1, &c->latent_channels);
    xd_w_vec(d, &g->std, "latents_std", 1, &c->latent_channels);
}

extern const xd_vae xd_vae_ltx, xd_vae_ltx2;

#define VAE(title, class, table, checks)                                                  \
    {                                                                                     \
        .net = { .name = title,                                                           \
                 .classes = { class },                                                    \
                 .fields = table,                                                         \
                 .cfg_size = sizeof(xd_ltx_cfg),                                          \
                 .glob_size = sizeof(xd_ltx_glob),                                        \
                 .check = checks,                                                         \
                 .weights = weights },                                                    \
        .info = xd_ltx_info, .decode = xd_ltx_decode, .encode = xd_ltx_encode,            \
        .normalize = xd_ltx_normalize,                                                   \
        .denormalize = xd_ltx_denormalize,                                               \
    }

const xd_vae xd_vae_ltx = VAE("ltx-vae", "AutoencoderKLLTXVideo", fields, check_config);
const xd_vae xd_vae_ltx2 = VAE("ltx2-vae", "AutoencoderKLLTX2Video", fields2, check_second);
