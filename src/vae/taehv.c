/* taehv.c - reads the config and declares the weights of TAEHV (taehv.h).
 *
 * Published files have no config. xd_vae.describe makes a config of the names and shapes of their
 * tensors, and of the properties of the autoencoder that the file replaces. */
#include "vae/taehv.h"

#include <math.h>
#include <stdio.h>

enum {
    TILE = 512,   /* height and width of a tile in pixels */
    DEFAULTS = 3, /* levels of the published files, whose widths are the default */
    COLOURS = 3,
};

#define AT(member) offsetof(xd_taehv_cfg, member)
static const xd_field fields[] = {
    { "latent_channels", AT(latent_channels), 'l', 16, NULL },
    { "patch_size", AT(patch), 'l', 1, NULL },
    { "decoder_block_out_channels", AT(width), 'L', 0, NULL },
    { "encoder_channels", AT(encoder_width), 'l', 64, NULL },
    { "layers_per_block", AT(blocks), 'l', 3, NULL },
    { "decoder_time_upscale", AT(grow), 'L', 0, NULL },
    { "encoder_time_downscale", AT(pool), 'L', 0, NULL },
    { "super", AT(super), 'b', 0, NULL },
    { "encoder", AT(encodes), 'b', 1, NULL },
    { "images", AT(images), 'b', 0, NULL },
    { "first_frame_alone", AT(alone), 'b', 1, NULL },
    { "scaling_factor", AT(scaling), 'd', 1, NULL },
    { "invert_scale_latents", AT(invert), 'b', 0, NULL },
    { "chunk", AT(chunk), 'L', 0, NULL },
    { "last_chunk", AT(shared), 'L', 0, NULL },
    { "_class_name", 0, '-', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

static const xd_ints default_width = { DEFAULTS + 1, { 256, 128, 64, 64 } };
static const xd_ints default_grow = { DEFAULTS, { 1, 2, 2 } };
static const xd_ints default_pool = { DEFAULTS, { 2, 2, 1 } };

/* ---- the config --------------------------------------------------------------------------- */

static xd_status check_number(int64_t v, const char *key, int64_t min, int64_t max, xd_err *e)
{
    if (v >= min && v <= max)
        return XD_OK;
    return xd_fail(e, XD_EUNSUPPORTED, "vae: %s is %lld; it must be from %lld to %lld", key,
                   (long long)v, (long long)min, (long long)max);
}

static xd_status check_list(const xd_ints *v, const char *key, int n, int64_t max, xd_err *e)
{
    xd_status s = XD_OK;
    if (v->n != n)
        return xd_fail(e, XD_EFORMAT, "vae: %s has %d entries, and needs %d", key, v->n, n);
    for (int i = 0; s == XD_OK && i < n; i++)
        s = check_number(v->v[i], key, 1, max, e);
    return s;
}

/* Checks the lists of chunks, which a video has if both are given. */
static xd_status check_chunks(const xd_taehv_cfg *c, xd_err *e)
{
    int64_t up = xd_taehv_frames(c, 1);
    if (!c->chunk.n && !c->shared.n)
        return XD_OK;
    xd_status s = check_list(&c->chunk, "chunk", 2, 1 << 16, e);
    if (s == XD_OK)
        s = check_list(&c->shared, "last_chunk", 2, 1 << 16, e);
    if (s == XD_OK && c->chunk.v[0] * up - c->chunk.v[1] != c->shared.v[0] * up - c->shared.v[1])
        s = xd_fail(e, XD_EFORMAT,
                    "vae: the decoder drops %lld frames of a chunk and %lld of last_chunk; both "
                    "numbers must be equal",
                    (long long)(c->chunk.v[0] * up - c->chunk.v[1]),
                    (long long)(c->shared.v[0] * up - c->shared.v[1]));
    return s == XD_OK ? check_number(c->chunk.v[0] * up - c->chunk.v[1], "chunk", 0, up - 1, e) : s;
}

static xd_status check_config(void *cfg_, xd_err *e)
{
    xd_taehv_cfg *c = cfg_;
    c->width = c->width.n ? c->width : default_width;
    c->grow = c->grow.n ? c->grow : default_grow;
    c->pool = c->pool.n ? c->pool : default_pool;
    int       n = c->grow.n;
    xd_status s = check_number(n, "the number of levels", 1, XD_TAEHV_LEVELS, e);
    if (s == XD_OK)
        s = check_list(&c->grow, "decoder_time_upscale", n, XD_TAEHV_FRAMES, e);
    if (s == XD_OK)
        s = check_list(&c->pool, "encoder_time_downscale", n, XD_TAEHV_FRAMES, e);
    if (s == XD_OK)
        s = check_list(&c->width, "decoder_block_out_channels", n + 1, XD_TAEHV_WIDTH, e);
    if (s == XD_OK)
        s = check_number(c->latent_channels, "latent_channels", 1, XD_TAEHV_WIDTH, e);
    if (s == XD_OK)
        s = check_number(c->encoder_width, "encoder_channels", 1, XD_TAEHV_WIDTH, e);
    if (s == XD_OK)
        s = check_number(c->blocks, "layers_per_block", 0, XD_TAEHV_BLOCKS, e);
    if (s == XD_OK)
        s = check_number(c->patch, "patch_size", 1, XD_TAEHV_PATCH, e);
    if (s == XD_OK && (!isfinite(c->scaling) || c->scaling == 0))
        s = xd_fail(e, XD_EFORMAT, "vae: scaling_factor %g is invalid", c->scaling);
    if (s == XD_OK && c->encodes && xd_taehv_frames(c, 0) != xd_taehv_frames(c, 1))
        s = xd_fail(e, XD_EFORMAT,
                    "vae: the encoder makes a latent frame of %lld frames, but the decoder makes "
                    "%lld frames of a latent frame",
                    (long long)xd_taehv_frames(c, 0), (long long)xd_taehv_frames(c, 1));
    return s == XD_OK ? check_chunks(c, e) : s;
}

void xd_taehv_info(const void *cfg_, xd_vae_info *out)
{
    const xd_taehv_cfg *c = cfg_;
    int                 f = (int)c->patch << xd_taehv_levels(c);
    *out = (xd_vae_info){ .channels = c->latent_channels,
                          .cell = { c->images ? 1 : (int)xd_taehv_frames(c, 1), f, f },
                          .scaling = c->scaling,
                          .invert = c->invert,
                          .alone = c->alone,
                          .pack = 1,
                          .overlap = { 0.125, 0.125 } };
    out->tile[0] = out->tile[1] = f < TILE ? TILE / f : 1;
    for (int i = 0; i < 2 && c->chunk.n; i++)
        out->chunk[i] = c->chunk.v[i], out->shared[i] = c->shared.v[i];
}

/* ---- weights ------------------------------------------------------------------------------ */

typedef struct shape {
    int64_t out, in;
    int     side, stride, bias;
} shape;

static void w_conv(xd_decl *d, xd_cnv *w, const char *name, shape s)
{
    xd_w_conv(d, w, name,
              &(xd_conv_spec){ .out = s.out,
                               .in = s.in,
                               .nk = 2,
                               .kernel = { 1, s.side, s.side },
                               .stride = { 1, s.stride, s.stride },
                               .bias = s.bias });
}

/* Declares the convolution that is module `at` of the encoder or the decoder. */
static void w_module(xd_decl *d, xd_cnv *w, int at, shape s)
{
    char name[16];
    snprintf(name, sizeof name, "%d", at);
    w_conv(d, w, name, s);
}

/* Declares a 1 x 1 convolution as a linear layer. */
static void w_mix(xd_decl *d, xd_lin *w, const char *name, int64_t out, int64_t in, int bias)
{
    xd_w_linear_as(d, w, name, 4, (int64_t[]){ out, in, 1, 1 }, bias);
}

static void w_block(xd_decl *d, xd_taehv_block *w, int at, int64_t C, int super)
{
    static const char *const names[] = { "conv.0", "conv.2", "conv.4" };
    xd_w_enter(d, "%d", at);
    if (super) {
        xd_w_conv(d, &w->conv[0], names[0],
                  &(xd_conv_spec){ .out = 2 * C,
                                   .in = 1,
                                   .groups = (int)(2 * C),
                                   .nk = 2,
                                   .kernel = { 1, XD_TAEHV_SUPER, XD_TAEHV_SUPER } });
        w_mix(d, &w->up, "conv.1", 4 * C, 2 * C, 1);
        w_mix(d, &w->down, "conv.3", C, 4 * C, 0);
    }
    for (int i = 0; i < 3 && !super; i++)
        w_conv(d, &w->conv[i], names[i], (shape){ C, i ? C : 2 * C, 3, 1, 1 });
    xd_w_leave(d);
}

static void w_time(xd_decl *d, xd_lin *w, int at, int64_t out, int64_t in)
{
    char name[24];
    snprintf(name, sizeof name, "%d.conv", at);
    w_mix(d, w, name, out, in, 0);
}

/* Declares the decoder. Modules are numbered; modules without weights are counted, too: the clamp
 * of the latents, activations, upsampling and the shuffle of pixels. The convolution next to the
 * latents has f32 weights, because rounding errors there affect every pixel. */
static void w_decoder(xd_decl *d, const xd_taehv_cfg *c, xd_taehv_half *w)
{
    const xd_dtype type = d->type;
    const int      super = c->super, B = (int)c->blocks, L = xd_taehv_levels(c);
    int            at = super ? 0 : 1;
    xd_w_enter(d, "decoder");
    d->type = XD_F32;
    w_module(d, &w->in, at, (shape){ c->width.v[0], c->latent_channels, super ? 1 : 3, 1, !super });
    d->type = type;
    at += super ? 1 : 2;
    for (int l = 0; l < L; l++) {
        int64_t C = c->width.v[l], next = c->width.v[l + 1];
        for (int i = 0; i < B; i++)
            w_block(d, &w->level[l].block[i], at++, C, super);
        if (super) {
            w_module(d, &w->level[l].side, at, (shape){ 4 * next, C, 3, 1, 1 });
            w_time(d, &w->level[l].time, at + 3, c->grow.v[l] * next, next);
            at += 4;
        } else {
            w_time(d, &w->level[l].time, at + 1, c->grow.v[l] * C, C);
            w_module(d, &w->level[l].side, at + 2, (shape){ next, C, 3, 1, 0 });
            at += 3;
        }
    }
    w_module(d, &w->out, at + !super,
             (shape){ COLOURS * c->patch * c->patch, c->width.v[L], 3, 1, 1 });
    xd_w_leave(d);
}

static void w_encoder(xd_decl *d, const xd_taehv_cfg *c, xd_taehv_half *w)
{
    const xd_dtype type = d->type;
    int64_t        C = c->encoder_width;
    int            at = 2;
    xd_w_enter(d, "encoder");
    w_module(d, &w->in, 0, (shape){ C, COLOURS * c->patch * c->patch, 3, 1, 1 });
    for (int l = 0; l < xd_taehv_levels(c); l++) {
        w_time(d, &w->level[l].time, at++, C, c->pool.v[l] * C);
        w_module(d, &w->level[l].side, at++, (shape){ C, C, 3, 2, 0 });
        for (int i = 0; i < c->blocks; i++)
            w_block(d, &w->level[l].block[i], at++, C, 0);
    }
    d->type = XD_F32;
    w_module(d, &w->out, at, (shape){ c->latent_channels, C, 3, 1, 1 });
    d->type = type;
    xd_w_leave(d);
}

static void weights(xd_decl *d, const void *cfg_, void *g_)
{
    const xd_taehv_cfg *c = cfg_;
    xd_taehv_glob      *g = g_;
    if (c->encodes)
        w_encoder(d, c, &g->side[0]);
    w_decoder(d, c, &g->side[1]);
}

/* ---- the config of a file ------------------------------------------------------------------- */

/* The shape of a module's weight; nd 0: the file has no such tensor. */
static xd_tensor shape_of(const xd_source *file, const char *half, int at, const char *rest)
{
    char      name[64];
    xd_tensor t = { 0 };
    snprintf(name, sizeof name, "%s.%d.%sweight", half, at, rest);
    return file->has(file->self, name, &t) && t.nd == 4 ? t : (xd_tensor){ 0 };
}

/* Reads the levels of the decoder; returns the number of its last module, or 0 if a level is not
 * that of a TAEHV. */
static int read_levels(const xd_source *file, xd_taehv_cfg *c, int at)
{
    for (int l = 0; l < XD_TAEHV_LEVELS; l++) {
        xd_tensor block = shape_of(file, "decoder", at, "conv.0.");
        if (!block.nd)
            break;
        c->width.v[l] = c->super ? block.d[0] / 2 : block.d[0];
        for (c->blocks = 0; shape_of(file, "decoder", at, "conv.0.").nd; c->blocks++)
            at++;
        xd_tensor time = shape_of(file, "decoder", at + (c->super ? 3 : 1), "conv.");
        xd_tensor side = shape_of(file, "decoder", at + (c->super ? 0 : 2), "");
        if (!time.nd || !side.nd || c->blocks > XD_TAEHV_BLOCKS)
            return 0;
        c->width.v[l + 1] = c->super ? side.d[0] / 4 : side.d[0];
        c->grow.v[l] = time.d[0] / time.d[1];
        c->grow.n = l + 1;
        at += c->super ? 4 : 3;
    }
    c->width.n = c->grow.n + 1;
    return c->grow.n ? at + !c->super : 0;
}

/* Reads what the shapes of a file's tensors show about the config; returns 0 for the file of
 * another network. */
static int read_shapes(const xd_source *file, xd_taehv_cfg *c)
{
    xd_tensor plain = shape_of(file, "decoder", 1, ""), super = shape_of(file, "decoder", 0, "");
    *c = (xd_taehv_cfg){ .super = super.nd && super.d[2] == 1, .alone = 1 };
    c->latent_channels = c->super ? super.d[1] : plain.d[1];
    xd_tensor block = shape_of(file, "decoder", c->super ? 1 : 3, "conv.0.");
    if ((!c->super && !plain.nd) || !block.nd || (!c->super && block.d[1] != 2 * block.d[0]) ||
        (c->super && block.d[1] != 1))
        return 0;
    int       last = read_levels(file, c, c->super ? 1 : 3), at = 2;
    xd_tensor out = shape_of(file, "decoder", last, ""), in = shape_of(file, "encoder", 0, "");
    if (!last || !out.nd)
        return 0;
    c->patch = llround(sqrt((double)out.d[0] / COLOURS));
    c->encodes = in.nd > 0;
    c->encoder_width = c->encodes ? in.d[0] : 64;
    for (int l = 0; l < c->grow.n; l++, at += 2 + (int)c->blocks) {
        xd_tensor time = shape_of(file, "encoder", at, "conv.");
        c->pool.v[c->pool.n++] = time.nd ? time.d[1] / time.d[0] : 1;
    }
    return 1;
}

static void add_list(xd_text_buf *b, const char *key, const int64_t *v, int n)
{
    xd_buf_add(b, ", \"%s\": [", key);
    for (int i = 0; i < n; i++)
        xd_buf_add(b, "%s%lld", i ? ", " : "", (long long)v[i]);
    xd_buf_add(b, "]");
}

/* Appends the members of the config that follow from the autoencoder that the file replaces. The
 * published files read the latents of the diffusion model. Only taecvx, the file for an autoencoder
 * whose first frame need not be alone, reads latents without the model's scaling. */
static void add_own(xd_text_buf *b, const xd_vae_info *own)
{
    int video = own->cell[0] > 1;
    xd_buf_add(b, ", \"images\": %s, \"first_frame_alone\": %s", video ? "false" : "true",
               own->alone || !video ? "true" : "false");
    if (video && !own->alone && !own->chunk[0])
        xd_buf_add(b, ", \"scaling_factor\": %.17g, \"invert_scale_latents\": %s", own->scaling,
                   own->invert ? "true" : "false");
    if (own->chunk[0]) {
        add_list(b, "chunk", own->chunk, 2);
        add_list(b, "last_chunk", own->shared, 2);
    }
}

static xd_status describe(const xd_source *file, const xd_vae_info *own, xd_text_buf *b, xd_err *e)
{
    xd_taehv_cfg c;
    (void)e;
    if (!read_shapes(file, &c))
        return XD_OK;
    xd_buf_add(b,
               "{\"_class_name\": \"TAEHV\", \"latent_channels\": %lld, \"patch_size\": %lld, "
               "\"encoder_channels\": %lld, \"layers_per_block\": %lld, \"super\": %s, "
               "\"encoder\": %s",
               (long long)c.latent_channels, (long long)c.patch, (long long)c.encoder_width,
               (long long)c.blocks, c.super ? "true" : "false", c.encodes ? "true" : "false");
    add_list(b, "decoder_block_out_channels", c.width.v, c.width.n);
    add_list(b, "decoder_time_upscale", c.grow.v, c.grow.n);
    add_list(b, "encoder_time_downscale", c.pool.v, c.pool.n);
    if (own)
        add_own(b, own);
    xd_buf_add(b, "}");
    return XD_OK;
}

extern const xd_vae xd_vae_taehv;

const xd_vae xd_vae_taehv = {
    .net = { .name = "taehv",
             .classes = { "TAEHV" },
             .fields = fields,
             .cfg_size = sizeof(xd_taehv_cfg),
             .glob_size = sizeof(xd_taehv_glob),
             .check = check_config,
             .weights = weights },
    .info = xd_taehv_info,
    .describe = describe,
    .decode = xd_taehv_decode,
    .encode = xd_taehv_encode,
};
