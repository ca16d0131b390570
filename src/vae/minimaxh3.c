/* minimaxh3.c - reads the config and declares the weights of AutoencoderKLMiniMaxH3, whose encoder
 * is not supported */
#include "vae/minimaxh3.h"

#include <math.h>
#include <stddef.h>

#include "base/minmax.h"

enum {
    TILE = 256,    /* height and width of a tile in pixels */
    OVERLAP = 64,  /* smallest overlap of tiles in pixels */
    MAX_CELL = 64, /* max pixels, or frames, per latent cell */
};

#define AT(member) offsetof(xd_vit_cfg, member)
static const xd_field fields[] = {
    { "in_channels", AT(in_channels), 'l', 3, NULL },
    { "out_channels", AT(out_channels), 'l', 3, NULL },
    { "latent_channels", AT(channels), 'l', 24, NULL },
    { "spatial_downsample_factors", AT(side), 'L', 0, NULL },
    { "temporal_downsample_factors", AT(frames), 'L', 0, NULL },
    { "decoder_num_layers", AT(nlayers), 'i', 36, NULL },
    { "decoder_num_attention_heads", AT(heads), 'l', 32, NULL },
    { "decoder_attention_head_dim", AT(head_dim), 'l', 64, NULL },
    { "decoder_num_register_tokens", AT(registers), 'l', 4, NULL },
    { "decoder_ffn_mult", AT(ff_mult), 'l', 4, NULL },
    { "decoder_rope_theta", AT(theta), 'd', 100, NULL },
    { "decoder_rope_dim_ratio", AT(ratio), 'd', 0.75, NULL },
    { "decoder_norm_eps", AT(eps), 'f', 1e-5, NULL },
    { "clip_length", AT(clip), 'l', 17, NULL },
    { "token_drop", AT(drop), 'l', 3, NULL },
    { "latents_mean", AT(mean), 'D', 0, NULL },
    { "latents_std", AT(std), 'D', 0, NULL },
    /* keys of the encoder */
    { "block_out_channels", AT(widths), 'L', 0, NULL },
    { "layers_per_block", AT(layers), 'l', 2, NULL },
    { "norm_num_groups", 0, '-', 0, NULL },
    { "norm_eps", 0, '-', 0, NULL },
    { "spatial_padding_mode", 0, '-', 0, NULL },
    { "_class_name", 0, '-', 0, NULL },
    { "_diffusers_version", 0, '-', 0, NULL },
    { "_name_or_path", 0, '-', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

static const xd_ints default_side = { 6, { 2, 2, 2, 2, 1, 1 } };
static const xd_ints default_frames = { 6, { 1, 2, 2, 1, 1, 1 } };
static const xd_ints default_widths = { 6, { 128, 256, 256, 512, 512, 1024 } };

/* ---- the config --------------------------------------------------------------------------- */

/* Sets *cell to the product of the factors of the encoder's levels. */
static xd_status multiply(const xd_ints *f, const char *key, int *cell, xd_err *e)
{
    *cell = 1;
    for (int i = 0; i < f->n; i++) {
        if (f->v[i] < 1 || f->v[i] > MAX_CELL || (*cell *= (int)f->v[i]) > MAX_CELL)
            return xd_fail(e, XD_EUNSUPPORTED, "vae: %s must be numbers of a product up to %d", key,
                           MAX_CELL);
    }
    return XD_OK;
}

/* Sets the values of lists that the config does not have: latents are not normalized. */
static void set_lists(xd_vit_cfg *c)
{
    c->side = c->side.n ? c->side : default_side;
    c->frames = c->frames.n ? c->frames : default_frames;
    c->widths = c->widths.n ? c->widths : default_widths;
    if (c->mean.n || c->std.n || c->channels < 1 || c->channels > XD_FIELD_LIST)
        return;
    c->mean.n = c->std.n = (int)c->channels;
    for (int i = 0; i < c->std.n; i++)
        c->mean.v[i] = 0, c->std.v[i] = 1;
}

static xd_status check_latents(const xd_vit_cfg *c, xd_err *e)
{
    if (c->channels < 1 || c->mean.n != c->channels || c->std.n != c->channels)
        return xd_fail(e, XD_EFORMAT,
                       "vae: latents_mean has %d values, latents_std %d and latent_channels is "
                       "%lld",
                       c->mean.n, c->std.n, (long long)c->channels);
    for (int i = 0; i < c->mean.n; i++)
        if (!isfinite(c->mean.v[i]) || !(c->std.v[i] > 0) || !isfinite(c->std.v[i]))
            return xd_fail(e, XD_EFORMAT,
                           "vae: latents_mean %g and latents_std %g of channel %d are invalid",
                           c->mean.v[i], c->std.v[i], i);
    return XD_OK;
}

static xd_status check_numbers(const xd_vit_cfg *c, xd_err *e)
{
    const struct {
        const char *key;
        int64_t     value, min, max;
    } r[] = {
        { "decoder_num_layers", c->nlayers, 0, XD_VIT_LAYERS },
        { "decoder_num_attention_heads", c->heads, 1, 4096 },
        { "decoder_attention_head_dim", c->head_dim, 2, 512 },
        { "decoder_num_register_tokens", c->registers, 0, 4096 },
        { "decoder_ffn_mult", c->ff_mult, 1, 64 },
        { "clip_length", c->clip, 1, 4096 },
    };
    for (size_t i = 0; i < sizeof r / sizeof *r; i++)
        if (r[i].value < r[i].min || r[i].value > r[i].max)
            return xd_fail(e, XD_EUNSUPPORTED, "vae: %s is %lld, not %lld to %lld", r[i].key,
                           (long long)r[i].value, (long long)r[i].min, (long long)r[i].max);
    return XD_OK;
}

/* Computes the sizes of chunks. A clip has fewer frames than the latent frames of a chunk, because
 * its first latent frame stands for the last of its frames only. */
static xd_status set_chunk(xd_vit_cfg *c, xd_err *e)
{
    int64_t r = c->cell[0];
    c->chunk = xd_ceil_div(c->clip, r);
    c->before = c->chunk * r - c->clip;
    c->overlap = c->chunk - c->drop;
    if (c->drop < 1 || c->overlap < 1 || xd_vit_shared_frames(c) < 1 ||
        xd_vit_shared_frames(c) > c->clip)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vae: clip_length %lld and token_drop %lld give no chunks that overlap",
                       (long long)c->clip, (long long)c->drop);
    return XD_OK;
}

static xd_status check_config(void *cfg_, xd_err *e)
{
    xd_vit_cfg *c = cfg_;
    set_lists(c);
    xd_status s = check_numbers(c, e);
    if (s == XD_OK)
        s = multiply(&c->side, "spatial_downsample_factors", &c->cell[1], e);
    if (s == XD_OK)
        s = multiply(&c->frames, "temporal_downsample_factors", &c->cell[0], e);
    if (s == XD_OK)
        s = check_latents(c, e);
    if (s == XD_OK)
        s = set_chunk(c, e);
    if (s != XD_OK)
        return s;
    int64_t turned = (int64_t)((double)c->head_dim * c->ratio);
    c->freqs = turned / (2 * XD_VIT_AXES);
    if (!(c->ratio > 0 && c->ratio <= 1) || turned % (2 * XD_VIT_AXES) || !turned ||
        !(c->theta > 1 && c->theta < 1e12))
        return xd_fail(e, XD_EFORMAT,
                       "vae: decoder_rope_dim_ratio %g of %lld features must rotate a multiple of "
                       "%d, by decoder_rope_theta %g",
                       c->ratio, (long long)c->head_dim, 2 * XD_VIT_AXES, c->theta);
    return xd_vae_colours(c->in_channels, c->out_channels, e);
}

static void info(const void *cfg_, xd_vae_info *out)
{
    const xd_vit_cfg *c = cfg_;
    int               f = c->cell[1];
    int64_t           tile = xd_max(TILE / f, 1), least = OVERLAP / f < tile ? OVERLAP / f : 0;
    *out = (xd_vae_info){ .channels = c->channels,
                          .cell = { c->cell[0], f, f },
                          .scaling = 1,
                          .chunk = { c->chunk, c->clip },
                          .shared = { c->overlap, xd_vit_shared_frames(c) },
                          .covers = 1,
                          .tile = { tile, tile },
                          .step = { tile - least, tile - least },
                          .pack = 1 };
}

/* ---- weights ------------------------------------------------------------------------------ */

static void w_block(xd_decl *d, const xd_vit_cfg *c, xd_vit_block *w)
{
    static const char *const qkv[] = { "to_q", "to_k", "to_v" };
    const int64_t            D = c->heads * c->head_dim, F = c->ff_mult * D;
    xd_w_vec(d, &w->norm1, "norm1.weight", 1, &D);
    xd_w_vec(d, &w->norm2, "norm2.weight", 1, &D);
    xd_w_vec(d, &w->scale1, "scale1", 1, &D);
    xd_w_vec(d, &w->scale2, "scale2", 1, &D);
    xd_w_enter(d, "attn");
    xd_w_fused(d, &w->qkv,
               &(xd_fused_spec){ .n = 3, .names = qkv, .in = D, .out = { D, D, D }, .bias = 1 });
    xd_w_linear(d, &w->out, "to_out.0", &(xd_linear_spec){ .in = D, .out = D, .bias = 1 });
    xd_w_leave(d);
    xd_w_linear(d, &w->up, "ff.net.0.proj",
                &(xd_linear_spec){ .in = D, .nouts = 2, .outs = (int64_t[]){ F, F }, .bias = 1 });
    xd_w_linear(d, &w->down, "ff.net.2", &(xd_linear_spec){ .in = F, .out = D, .bias = 1 });
}

/* The layers next to the latents have f32 weights, whatever the type of the maps: they are small,
 * and rounding errors there affect every pixel. */
static void unread_conv(xd_decl *d, const char *name, int64_t out, int64_t in, int64_t side)
{
    xd_w_unread_layer(d, name, 5, (int64_t[]){ out, in, side, side, side });
}

static void unread_resnet(xd_decl *d, int64_t out, int64_t in)
{
    xd_w_unread_layer(d, "norm1", 1, &in);
    unread_conv(d, "conv1", out, in, 3);
    xd_w_unread_layer(d, "norm2", 1, &out);
    unread_conv(d, "conv2", out, out, 3);
    if (out != in)
        unread_conv(d, "conv_shortcut", out, in, 1);
}

/* Declares the encoder, which files contain but decoding does not read. */
static void unread_encoder(xd_decl *d, const xd_vit_cfg *c)
{
    int64_t in = c->widths.v[0];
    xd_w_enter(d, "encoder");
    unread_conv(d, "conv_in", in, c->in_channels, 3);
    for (int l = 0; l < c->widths.n; l++) {
        int64_t out = c->widths.v[l];
        xd_w_enter(d, "down_blocks.%d", l);
        for (int i = 0; i < c->layers; i++, in = out) {
            xd_w_enter(d, "resnets.%d", i);
            unread_resnet(d, out, in);
            xd_w_leave(d);
        }
        if ((l < c->side.n && c->side.v[l] > 1) || (l < c->frames.n && c->frames.v[l] > 1))
            unread_conv(d, "downsamplers.0.conv", out, out, 3);
        xd_w_leave(d);
    }
    xd_w_unread_layer(d, "norm_out", 1, &in);
    unread_conv(d, "conv_out", 2 * c->channels, in, 3);
    xd_w_leave(d);
    unread_conv(d, "quant_conv", 2 * c->channels, 2 * c->channels, 1);
}

static void weights(xd_decl *d, const void *cfg_, void *glob_)
{
    const xd_vit_cfg *c = cfg_;
    xd_vit_glob      *g = glob_;
    const int64_t     D = c->heads * c->head_dim, C = c->channels;
    const xd_dtype    type = d->type;
    d->type = XD_F32;
    xd_w_linear_as(d, &g->latents, "post_quant_conv", 5, (int64_t[]){ C, C, 1, 1, 1 }, 1);
    xd_w_enter(d, "decoder");
    xd_w_linear(d, &g->in, "proj_in", &(xd_linear_spec){ .in = C, .out = D, .bias = 1 });
    d->type = type;
    xd_w_vec(d, &g->registers, "register_tokens", 3, (int64_t[]){ 1, c->registers, D });
    xd_w_affine(d, "norm_out", &g->gain, &g->bias, D);
    xd_w_linear(
        d, &g->out, "proj_out",
        &(xd_linear_spec){ .in = D,
                           .out = c->out_channels * c->cell[0] * (int64_t)c->cell[1] * c->cell[1],
                           .bias = 1 });
    for (int i = 0; i < c->nlayers; i++) {
        xd_w_enter(d, "transformer_blocks.%d", i);
        w_block(d, c, &g->block[i]);
        xd_w_leave(d);
    }
    xd_w_leave(d);
    unread_encoder(d, c);
}

static void encode(xd_exec *x, const xd_net *n, xd_tensor rgb, xd_tensor moments)
{
    (void)n, (void)rgb, (void)moments;
    xd_exec_fail(x, XD_EUNSUPPORTED,
                 "vae: only the decoder of AutoencoderKLMiniMaxH3 is supported, so no images can "
                 "be encoded");
}

extern const xd_vae xd_vae_minimaxh3;

const xd_vae xd_vae_minimaxh3 = {
    .net = { .name = "minimaxh3-vae",
             .classes = { "AutoencoderKLMiniMaxH3" },
             .unread = { "encoder.*", "quant_conv.*" },
             .fields = fields,
             .cfg_size = sizeof(xd_vit_cfg),
             .glob_size = sizeof(xd_vit_glob),
             .check = check_config,
             .weights = weights },
    .info = info,
    .decode = xd_vit_decode,
    .encode = encode,
};
