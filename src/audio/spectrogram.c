/* spectrogram.c - decodes latents of audio to a mel spectrogram like diffusers'
 * AutoencoderKLLTX2Audio.
 *
 * A spectrogram is an image whose rows are points in time and whose columns are mel bins. Each
 * convolution reads the row of its output and two rows before it. Norms are RMS norms over the
 * channels of a pixel, without gains. Rows of the input have the features (channel, bin), like rows
 * of the output. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "audio/audio.h"
#include "exec/op.h"

static const float eps = 1e-6f;

enum { MAXLEVELS = 4, MAXBLOCKS = 8, LEVELS = 3, FACTOR = 4 };

typedef struct cfg {
    int64_t base, latent, bins, in, out;
    int     blocks, middle, doubled;
    xd_ints mult;
    char    norm[XD_FIELD_TEXT], axis[XD_FIELD_TEXT];
} cfg;

#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    { "base_channels", AT(base), 'l', 128, NULL },
    { "in_channels", AT(in), 'l', 2, NULL },
    { "output_channels", AT(out), 'l', 2, NULL },
    { "ch_mult", AT(mult), 'L', 0, NULL },
    { "num_res_blocks", AT(blocks), 'i', 2, NULL },
    { "latent_channels", AT(latent), 'l', 8, NULL },
    { "double_z", AT(doubled), 'b', 1, NULL },
    { "norm_type", AT(norm), 's', 0, "pixel" },
    { "causality_axis", AT(axis), 's', 0, "height" },
    { "mid_block_add_attention", AT(middle), 'b', 0, NULL },
    { "mel_bins", AT(bins), 'l', 64, NULL },
    { NULL, 0, 0, 0, NULL },
};

typedef struct res {
    xd_cnv conv1, conv2, shortcut;
    int    has; /* 1: the shortcut is a convolution */
} res;

typedef struct glob {
    xd_tensor mean, std; /* [channels bins] of the latents */
    xd_cnv    in, out, up[MAXLEVELS];
    res       middle[2], block[MAXLEVELS][MAXBLOCKS];
} glob;

static xd_status check_config(void *c_, xd_err *e)
{
    cfg *c = c_;
    if (!c->mult.n)
        c->mult = (xd_ints){ LEVELS, { 1, 2, 4 } };
    if (c->mult.n != LEVELS)
        return xd_fail(e, XD_EUNSUPPORTED, "audio_vae: ch_mult has %d levels, not 3", c->mult.n);
    if (strcmp(c->norm, "pixel") || strcmp(c->axis, "height") || c->middle)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "audio_vae: norm_type '%s', causality_axis '%s' or mid_block_add_attention "
                       "%d is not supported; only 'pixel', 'height' and 0 are",
                       c->norm, c->axis, c->middle);
    if (c->base < 1 || c->latent < 1 || c->in < 1 || c->out < 1 || c->blocks < 0 ||
        c->blocks >= MAXBLOCKS || c->bins < FACTOR || c->bins % FACTOR ||
        c->bins / FACTOR * c->latent != c->base)
        return xd_fail(e, XD_EFORMAT,
                       "audio_vae: base_channels %lld, latent_channels %lld, mel_bins %lld, "
                       "output_channels %lld and num_res_blocks %d do not fit together",
                       (long long)c->base, (long long)c->latent, (long long)c->bins,
                       (long long)c->out, c->blocks);
    return XD_OK;
}

static void info(const void *c_, xd_audio_info *out)
{
    const cfg *c = c_;
    *out = (xd_audio_info){ .in = c->base, .out = c->out * c->bins };
}

/* The first row of each enlarged map is dropped. */
static int64_t rows(const void *c, int64_t n)
{
    (void)c;
    return n > 0 ? FACTOR * n - (FACTOR - 1) : 0;
}

/* ---- weights -------------------------------------------------------------------------------- */

static void w_conv(xd_decl *d, xd_cnv *w, const char *name, int64_t out, int64_t in, int k)
{
    xd_w_enter(d, "%s", name);
    xd_w_conv(d, w, "conv",
              &(xd_conv_spec){ .out = out, .in = in, .nk = 2, .kernel = { 1, k, k }, .bias = 1 });
    xd_w_leave(d);
}

static void w_res(xd_decl *d, res *w, int64_t out, int64_t in)
{
    w_conv(d, &w->conv1, "conv1", out, in, 3);
    w_conv(d, &w->conv2, "conv2", out, out, 3);
    w->has = out != in;
    if (w->has)
        w_conv(d, &w->shortcut, "nin_shortcut", out, in, 1);
}

static void unread_conv(xd_decl *d, const char *name, int64_t out, int64_t in, int k)
{
    xd_w_enter(d, "%s", name);
    xd_w_unread_layer(d, "conv", 4, (int64_t[]){ out, in, k, k });
    xd_w_leave(d);
}

static void unread_res(xd_decl *d, int64_t out, int64_t in)
{
    unread_conv(d, "conv1", out, in, 3);
    unread_conv(d, "conv2", out, out, 3);
    if (out != in)
        unread_conv(d, "nin_shortcut", out, in, 1);
}

/* Declares the encoder, which files contain but decoding does not read. */
static void unread_encoder(xd_decl *d, const cfg *c)
{
    int64_t in = c->base;
    xd_w_enter(d, "encoder");
    unread_conv(d, "conv_in", in, c->in, 3);
    for (int l = 0; l < LEVELS; l++) {
        int64_t out = c->base * c->mult.v[l];
        xd_w_enter(d, "down.%d", l);
        for (int i = 0; i < c->blocks; i++, in = out) {
            xd_w_enter(d, "block.%d", i);
            unread_res(d, out, in);
            xd_w_leave(d);
        }
        if (l < LEVELS - 1)
            unread_conv(d, "downsample", out, out, 3);
        xd_w_leave(d);
        in = out;
    }
    for (int i = 0; i < 2; i++) {
        xd_w_enter(d, "mid.block_%d", i + 1);
        unread_res(d, in, in);
        xd_w_leave(d);
    }
    unread_conv(d, "conv_out", c->doubled ? 2 * c->latent : c->latent, in, 3);
    xd_w_leave(d);
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    int64_t    in = c->base * c->mult.v[LEVELS - 1];
    xd_w_vec(d, &g->mean, "latents_mean", 1, &c->base);
    xd_w_vec(d, &g->std, "latents_std", 1, &c->base);
    xd_w_enter(d, "decoder");
    w_conv(d, &g->in, "conv_in", in, c->latent, 3);
    for (int i = 0; i < 2; i++) {
        xd_w_enter(d, "mid.block_%d", i + 1);
        w_res(d, &g->middle[i], in, in);
        xd_w_leave(d);
    }
    for (int l = LEVELS - 1; l >= 0; l--) {
        int64_t out = c->base * c->mult.v[l];
        xd_w_enter(d, "up.%d", l);
        for (int i = 0; i <= c->blocks; i++, in = out) {
            xd_w_enter(d, "block.%d", i);
            w_res(d, &g->block[l][i], out, in);
            xd_w_leave(d);
        }
        if (l)
            w_conv(d, &g->up[l], "upsample.conv", out, out, 3);
        xd_w_leave(d);
    }
    w_conv(d, &g->out, "conv_out", c->out, in, 3);
    xd_w_leave(d);
    unread_encoder(d, c);
}

/* ---- running -------------------------------------------------------------------------------- */

static xd_tensor new_map(xd_exec *x, xd_tensor like, int64_t channels)
{
    return xd_new_as(x, XD_F32, 4, (int64_t[]){ 1, like.d[1], like.d[2], channels });
}

static xd_tensor pixels_of(xd_tensor map)
{
    return xd_reshape(map, 2, (int64_t[]){ map.d[1] * map.d[2], map.d[3] });
}

static void convolve(xd_exec *x, xd_tensor out, xd_tensor in, const xd_cnv *w, xd_tensor residual)
{
    static const int lo[3] = { 0, 2, 1 }, hi[3] = { 0, 0, 1 }, none[3] = { 0 };
    const int        wide = w->w.kernel[1] > 1;
    xd_conv_rows_into(
        x, out, in, w,
        &(xd_conv_options){ .lo = wide ? lo : none, .hi = wide ? hi : none, .residual = residual });
}

/* Returns silu(norm(in)). */
static xd_tensor activate(xd_exec *x, xd_tensor in)
{
    xd_tensor out = new_map(x, in, in.d[3]);
    xd_norm_into(x, &(xd_norm){ .out = pixels_of(out), .in = pixels_of(in), .rms = 1, .eps = eps });
    xd_activate(x, pixels_of(out), XD_SILU);
    return out;
}

static xd_tensor run_res(xd_exec *x, xd_tensor in, const res *w)
{
    xd_tensor out = new_map(x, in, w->conv2.w.out);
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor mid = new_map(x, in, w->conv1.w.out), more = in;
    convolve(x, mid, activate(x, in), &w->conv1, (xd_tensor){ 0 });
    if (w->has)
        convolve(x, more = new_map(x, in, w->conv2.w.out), in, &w->shortcut, (xd_tensor){ 0 });
    convolve(x, out, activate(x, mid), &w->conv2, more);
    xd_arena_rewind(x->tmp, mark);
    return out;
}

/* Returns the convolution of the enlarged map, without its first row. */
static xd_tensor enlarge(xd_exec *x, xd_tensor in, const xd_cnv *w)
{
    xd_tensor big = xd_enlarge(x, in, 1, 2, 2), out = new_map(x, big, w->w.out);
    convolve(x, out, big, w, (xd_tensor){ 0 });
    out.p = (float *)out.p + out.d[2] * out.d[3];
    out.d[1]--;
    return out;
}

/* Returns in * std + mean, with one number of each vector for each feature. */
static xd_tensor denormalize(xd_exec *x, const glob *g, xd_tensor in)
{
    xd_tensor out = xd_new_f32(x, in.d[0], in.d[1]), row = xd_new_f32(x, in.d[0], in.d[1]);
    xd_tensor v[2] = { g->std, g->mean };
    for (int i = 0; i < 2; i++) {
        v[i].nd = 2, v[i].d[1] = v[i].d[0], v[i].s[1] = 1, v[i].d[0] = in.d[0], v[i].s[0] = 0;
        xd_copy_to(x, row, v[i]);
        if (i)
            xd_add(x, out, row);
        else
            xd_gated_into(x, out, in, row, XD_NONE);
    }
    return out;
}

static void run(xd_exec *x, const xd_net *n, xd_tensor in, xd_tensor out)
{
    const cfg  *c = n->cfg;
    const glob *g = n->glob;
    size_t      mark = xd_arena_mark(x->tmp);
    int64_t     t = in.d[0], m = c->bins / FACTOR;
    xd_tensor   from = denormalize(x, g, in);
    xd_tensor   lat = xd_new_as(x, XD_F32, 4, (int64_t[]){ 1, t, m, c->latent });
    from = xd_view(from.p, XD_F32, 4, lat.d);
    from.s[0] = 0, from.s[1] = c->base, from.s[2] = 1, from.s[3] = m;
    xd_copy_to(x, lat, from);
    xd_tensor h = new_map(x, lat, g->in.w.out);
    convolve(x, h, lat, &g->in, (xd_tensor){ 0 });
    for (int i = 0; i < 2; i++)
        h = run_res(x, h, &g->middle[i]);
    for (int l = LEVELS - 1; l >= 0; l--) {
        for (int i = 0; i <= c->blocks; i++)
            h = run_res(x, h, &g->block[l][i]);
        if (l)
            h = enlarge(x, h, &g->up[l]);
    }
    xd_tensor y = new_map(x, h, c->out);
    convolve(x, y, activate(x, h), &g->out, (xd_tensor){ 0 });
    xd_tensor to = xd_view(out.p, XD_F32, 4, y.d);
    to.s[0] = 0, to.s[1] = out.d[1], to.s[2] = 1, to.s[3] = c->bins;
    if (xd_check(x, y.d[1] == out.d[0] && y.d[2] == c->bins && out.d[1] == c->out * c->bins,
                 "a spectrogram of %lld rows does not fit into %lld", (long long)y.d[1],
                 (long long)out.d[0]))
        xd_copy_to(x, to, y);
    xd_arena_rewind(x->tmp, mark);
}

extern const xd_audio xd_audio_spectrogram;

const xd_audio xd_audio_spectrogram = {
    .net = { .name = "spectrogram",
             .classes = { "AutoencoderKLLTX2Audio" },
             .fields = fields,
             .cfg_size = sizeof(cfg),
             .glob_size = sizeof(glob),
             .check = check_config,
             .weights = weights,
             .unread = { "encoder.*" } },
    .info = info,
    .rows = rows,
    .run = run,
};
