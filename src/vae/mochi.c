/* mochi.c - reads the config and declares the weights of AutoencoderKLMochi (Genmo 2024), whose
 * encoder is not supported */
#include "vae/mochi.h"

#include <math.h>
#include <string.h>

#include "vae/rgb.h"

enum {
    TILE = 256,          /* height and width of a tile in pixels */
    MAX_WIDTH = 1 << 16, /* max channels of a layer */
    MAX_CELL = 64,       /* max pixels, or frames, per latent cell */
};

#define AT(member) offsetof(xd_mochi_cfg, member)
static const xd_field fields[] = {
    { "in_channels", AT(in_channels), 'l', 15, NULL },
    { "out_channels", AT(out_channels), 'l', 3, NULL },
    { "decoder_block_out_channels", AT(widths), 'L', 0, NULL },
    { "latent_channels", AT(latent_channels), 'l', 12, NULL },
    { "layers_per_block", AT(layers), 'L', 0, NULL },
    { "act_fn", AT(act), 's', 0, "silu" },
    { "temporal_expansions", AT(frames), 'L', 0, NULL },
    { "spatial_expansions", AT(sides), 'L', 0, NULL },
    { "latents_mean", AT(mean), 'D', 0, NULL },
    { "latents_std", AT(std), 'D', 0, NULL },
    { "scaling_factor", AT(scaling), 'd', 1, NULL },
    { "encoder_block_out_channels", AT(enc_widths), 'L', 0, NULL },
    { "add_attention_block", AT(attends), 'B', 0, NULL }, /* only the encoder has attention */
    { "_class_name", 0, '-', 0, NULL },
    { "_diffusers_version", 0, '-', 0, NULL },
    { "_name_or_path", 0, '-', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

/* Values for config keys that are absent. */
static const xd_ints  default_widths = { 4, { 128, 256, 512, 768 } };
static const xd_ints  default_layers = { 5, { 3, 3, 4, 6, 3 } };
static const xd_ints  default_frames = { 3, { 1, 2, 3 } }, default_sides = { 3, { 2, 2, 2 } };
static const xd_ints  default_enc = { 4, { 64, 128, 256, 384 } };
static const xd_ints  default_attends = { 5, { 0, 1, 1, 1, 1 } };
static const xd_reals default_mean = {
    12,
    { -0.06730895953510081, -0.038011381506090416, -0.07477820912866141, -0.05565264470995561,
      0.012767231469026969, -0.04703542746246419, 0.043896967884726704, -0.09346305707025976,
      -0.09918314763016893, -0.008729793427399178, -0.011931556316503654, -0.0321993391887285 }
};
static const xd_reals default_std = {
    12,
    { 0.9263795028493863, 0.9248894543193766, 0.9393059390890617, 0.959253732819592,
      0.8244560132752793, 0.917259975397747, 0.9294154431013696, 1.3720942357788521,
      0.881393668867029, 0.9168315692124348, 0.9185249279345552, 0.9274757570805041 }
};

/* ---- the config --------------------------------------------------------------------------- */

static xd_status check_list(const xd_ints *v, const char *key, int n, int64_t max, xd_err *e)
{
    if (v->n != n)
        return xd_fail(e, XD_EFORMAT, "vae: %s has %d entries, and needs %d", key, v->n, n);
    for (int i = 0; i < n; i++)
        if (v->v[i] < 1 || v->v[i] > max)
            return xd_fail(e, XD_EUNSUPPORTED, "vae: %s has %lld; it must be from 1 to %lld", key,
                           (long long)v->v[i], (long long)max);
    return XD_OK;
}

static xd_status check_widths(const xd_mochi_cfg *c, xd_err *e)
{
    if (c->widths.n > XD_MOCHI_LEVELS)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vae: decoder_block_out_channels has %d entries; at most %d are supported",
                       c->widths.n, XD_MOCHI_LEVELS);
    xd_status s = check_list(&c->widths, "decoder_block_out_channels", c->widths.n, MAX_WIDTH, e);
    for (int i = 0; s == XD_OK && i < c->widths.n; i++)
        if (c->widths.v[i] % XD_MOCHI_GROUPS)
            return xd_fail(e, XD_EFORMAT,
                           "vae: decoder_block_out_channels has %lld; it must be a multiple of %d",
                           (long long)c->widths.v[i], XD_MOCHI_GROUPS);
    return s;
}

static xd_status check_latents(const xd_mochi_cfg *c, xd_err *e)
{
    if (c->latent_channels < 1 || c->latent_channels > XD_FIELD_LIST ||
        c->mean.n != c->latent_channels || c->std.n != c->latent_channels)
        return xd_fail(e, XD_EFORMAT,
                       "vae: latents_mean has %d values, latents_std %d and latent_channels is "
                       "%lld",
                       c->mean.n, c->std.n, (long long)c->latent_channels);
    for (int i = 0; i < c->mean.n; i++)
        if (!isfinite(c->mean.v[i]) || !(c->std.v[i] > 0) || !isfinite(c->std.v[i]))
            return xd_fail(e, XD_EFORMAT,
                           "vae: latents_mean %g and latents_std %g of channel %d are invalid",
                           c->mean.v[i], c->std.v[i], i);
    if (!isfinite(c->scaling) || c->scaling == 0)
        return xd_fail(e, XD_EFORMAT, "vae: scaling_factor %g is invalid", c->scaling);
    return XD_OK;
}

/* Computes the size of a latent cell. */
static xd_status set_cell(xd_mochi_cfg *c, xd_err *e)
{
    const xd_ints *of[2] = { &c->frames, &c->sides };
    for (int i = 0; i < 2; i++) {
        c->cell[i] = 1;
        for (int k = 0; k < of[i]->n && c->cell[i] <= MAX_CELL; k++)
            c->cell[i] *= (int)of[i]->v[k];
        if (c->cell[i] > MAX_CELL)
            return xd_fail(e, XD_EUNSUPPORTED, "vae: %s make more than %d of one",
                           i ? "spatial_expansions" : "temporal_expansions", MAX_CELL);
    }
    return XD_OK;
}

/* Sets the values of lists that the config does not have. A network of one resolution has empty
 * lists of expansions. */
static void set_lists(xd_mochi_cfg *c)
{
    c->widths = c->widths.n ? c->widths : default_widths;
    c->layers = c->layers.n ? c->layers : default_layers;
    c->mean = c->mean.n ? c->mean : default_mean;
    c->std = c->std.n ? c->std : default_std;
    c->enc_widths = c->enc_widths.n ? c->enc_widths : default_enc;
    c->attends = c->attends.n ? c->attends : default_attends;
    if (c->widths.n > 1) {
        c->frames = c->frames.n ? c->frames : default_frames;
        c->sides = c->sides.n ? c->sides : default_sides;
    }
}

static xd_status check_config(void *cfg_, xd_err *e)
{
    xd_mochi_cfg *c = cfg_;
    set_lists(c);
    int       n = c->widths.n;
    xd_status s = check_widths(c, e);
    if (s == XD_OK)
        s = check_list(&c->enc_widths, "encoder_block_out_channels", n, MAX_WIDTH, e);
    if (s == XD_OK && c->attends.n != n + 1)
        s = xd_fail(e, XD_EFORMAT, "vae: add_attention_block has %d entries, and needs %d",
                    c->attends.n, n + 1);
    if (s == XD_OK)
        s = check_list(&c->layers, "layers_per_block", n + 1, XD_MOCHI_RES, e);
    if (s == XD_OK)
        s = check_list(&c->frames, "temporal_expansions", n - 1, MAX_CELL, e);
    if (s == XD_OK)
        s = check_list(&c->sides, "spatial_expansions", n - 1, MAX_CELL, e);
    if (s == XD_OK)
        s = set_cell(c, e);
    if (s == XD_OK)
        s = check_latents(c, e);
    if (s == XD_OK && strcmp(c->act, "silu") != 0 && strcmp(c->act, "swish") != 0)
        s = xd_fail(e, XD_EUNSUPPORTED, "vae: act_fn is %s; only silu is supported", c->act);
    /* The encoder reads the colours and 12 waves of them, and is not used. */
    return s == XD_OK ? xd_vae_colours(3, c->out_channels, e) : s;
}

void xd_mochi_info(const void *cfg_, xd_vae_info *out)
{
    const xd_mochi_cfg *c = cfg_;
    int                 f = c->cell[1];
    *out = (xd_vae_info){ .channels = c->latent_channels,
                          .cell = { c->cell[0], f, f },
                          .scaling = 1,
                          .alone = 1,
                          .overlap = { 0.25, 0.25 },
                          .pack = 1,
                          .rgb = xd_vae_rgb(c->latent_channels, c->widths.v[0], c->scaling) };
    out->tile[0] = out->tile[1] = TILE / f;
}

/* ---- weights ------------------------------------------------------------------------------ */

static void w_res(xd_decl *d, xd_mochi_res *w, int i, int64_t C)
{
    xd_w_enter(d, "resnets.%d", i);
    for (int k = 0; k < 2; k++) {
        xd_w_enter(d, "norm%d", k + 1);
        xd_w_affine(d, "norm_layer", &w->gain[k], &w->bias[k], C);
        xd_w_leave(d);
        xd_w_enter(d, "conv%d", k + 1);
        xd_w_conv(d, &w->conv[k], "conv",
                  &(xd_conv_spec){ .out = C, .in = C, .nk = 3, .kernel = { 3, 3, 3 }, .bias = 1 });
        xd_w_leave(d);
    }
    xd_w_leave(d);
}

static void w_stage(xd_decl *d, const xd_mochi_cfg *c, xd_mochi_stage *w, int s)
{
    if (xd_mochi_is_up(c, s))
        xd_w_enter(d, "up_blocks.%d", s - 1);
    else
        xd_w_enter(d, s ? "block_out" : "block_in");
    for (int i = 0; i < xd_mochi_layers(c, s); i++)
        w_res(d, &w->res[i], i, xd_mochi_width(c, s));
    if (xd_mochi_is_up(c, s)) {
        int64_t side = xd_mochi_growth(c, s, &c->sides),
                out = xd_mochi_width(c, s + 1) * xd_mochi_growth(c, s, &c->frames) * side * side;
        xd_w_linear(d, &w->proj, "proj",
                    &(xd_linear_spec){ .in = xd_mochi_width(c, s), .out = out, .bias = 1 });
    }
    xd_w_leave(d);
}

/* Declares the attention after residual block i of the encoder. */
static void w_attention(xd_decl *d, int i, int64_t C)
{
    static const char *const names[] = { "to_q", "to_k", "to_v", "to_out.0" };
    xd_tensor                gain, bias;
    xd_lin                   w;
    xd_w_enter(d, "norms.%d", i);
    xd_w_affine(d, "norm_layer", &gain, &bias, C);
    xd_w_leave(d);
    xd_w_enter(d, "attentions.%d", i);
    for (int k = 0; k < 4; k++)
        xd_w_linear(d, &w, names[k], &(xd_linear_spec){ .in = C, .out = C, .bias = k == 3 });
    xd_w_leave(d);
}

/* Declares stage s of the encoder, whose stages are counted in execution order. */
static void w_unread_stage(xd_decl *d, const xd_mochi_cfg *c, int s)
{
    int          n = c->enc_widths.n, last = n, down = s > 0 && s < last;
    int64_t      C = c->enc_widths.v[s < n ? s : n - 1];
    xd_mochi_res w;
    if (down)
        xd_w_enter(d, "down_blocks.%d", s - 1);
    else
        xd_w_enter(d, s ? "block_out" : "block_in");
    if (down) {
        int side = (int)c->sides.v[s - 1];
        xd_w_enter(d, "conv_in");
        xd_w_conv(d, &w.conv[0], "conv",
                  &(xd_conv_spec){ .out = C,
                                   .in = c->enc_widths.v[s - 1],
                                   .nk = 3,
                                   .kernel = { (int)c->frames.v[s - 1], side, side },
                                   .bias = 1 });
        xd_w_leave(d);
    }
    for (int i = 0; i < c->layers.v[s]; i++) {
        w_res(d, &w, i, C);
        if (c->attends.v[s])
            w_attention(d, i, C);
    }
    xd_w_leave(d);
}

/* Declares the tensors of the encoder for lists of all tensors in files. */
static void w_unread(xd_decl *d, const xd_mochi_cfg *c)
{
    int       at = d->nlist, n = c->enc_widths.n;
    xd_tensor gain, bias;
    xd_lin    w;
    if (d->visit != XD_VISIT_LIST || !d->whole)
        return;
    int64_t first = c->enc_widths.v[0], end = c->enc_widths.v[n - 1];
    xd_w_enter(d, "encoder");
    xd_w_linear(d, &w, "proj_in",
                &(xd_linear_spec){ .in = c->in_channels, .out = first, .bias = 1 });
    for (int s = 0; s <= n; s++)
        w_unread_stage(d, c, s);
    xd_w_enter(d, "norm_out");
    xd_w_affine(d, "norm_layer", &gain, &bias, end);
    xd_w_leave(d);
    xd_w_linear(d, &w, "proj_out", &(xd_linear_spec){ .in = end, .out = 2 * c->latent_channels });
    xd_w_leave(d);
    for (; at < d->nlist; at++)
        d->list[at].unread = 1;
}

/* The layer next to the latents has f32 weights, whatever the type of the maps: the latents are the
 * smallest map, and rounding errors there affect every pixel. */
static void weights(xd_decl *d, const void *cfg_, void *glob_)
{
    const xd_mochi_cfg *c = cfg_;
    xd_mochi_glob      *g = glob_;
    xd_dtype            type = d->type;
    xd_w_enter(d, "decoder");
    d->type = XD_F32;
    xd_w_linear_as(d, &g->in, "conv_in", 5,
                   (int64_t[]){ xd_mochi_width(c, 0), c->latent_channels, 1, 1, 1 }, 1);
    d->type = type;
    for (int s = 0; s <= xd_mochi_last(c); s++)
        w_stage(d, c, &g->stage[s], s);
    xd_w_linear(d, &g->out, "proj_out",
                &(xd_linear_spec){
                    .in = xd_mochi_width(c, xd_mochi_last(c)), .out = c->out_channels, .bias = 1 });
    xd_w_leave(d);
    w_unread(d, c);
}

static void encode(xd_exec *x, const xd_net *n, xd_tensor rgb, xd_tensor moments)
{
    (void)n, (void)rgb, (void)moments;
    xd_exec_fail(x, XD_EUNSUPPORTED,
                 "vae: only the decoder of AutoencoderKLMochi is supported, so no images can be "
                 "encoded");
}

extern const xd_vae xd_vae_mochi;

const xd_vae xd_vae_mochi = {
    .net = { .name = "mochi-vae",
             .classes = { "AutoencoderKLMochi" },
             .unread = { "encoder.*" },
             .fields = fields,
             .cfg_size = sizeof(xd_mochi_cfg),
             .glob_size = sizeof(xd_mochi_glob),
             .check = check_config,
             .weights = weights },
    .info = xd_mochi_info,
    .decode = xd_mochi_decode,
    .encode = encode,
};
