/* tiny.c - runs AutoencoderTiny, a class of small autoencoders of images (TAESD and variants;
 * https://github.com/madebyollin/taesd).
 *
 * The network has plain convolutions and ReLU; all feature maps have the same number of channels.
 * In TAEF2, each block of the smallest maps first adds a group norm between two 1 x 1 convolutions.
 * The encoder outputs latents and not a distribution. In the arena, the current map h is at the
 * bottom, and the two maps of a block are above h. Every convolution exchanges its halo rows with
 * other ranks. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "exec/op.h"
#include "vae/bands.h"
#include "vae/maps.h"
#include "vae/scale_rows.h"
#include "vae/vae.h"

enum {
    LEVELS = 8,
    BLOCKS = 16,
    MOST = 4096,
    TILE = 512,
    MAX_PACK = 4,
    GROUPS = 4, /* groups of a group norm, and the factor of the channels that are normalized */
};

static const float EPS = 1e-5f; /* epsilon of the group norms */

/* How files name modules: as diffusers does ("decoder.layers.0"), or as TAESD does in a file of the
 * decoder alone ("1"), where the clamp of the latents is counted, too. */
static const char own_names[] = "taesd";

typedef struct cfg {
    int64_t in_channels, out_channels, latent_channels, factor;
    double  scaling, shift;
    /* pack: each latent cell packs pack x pack cells of the network (xd_vae_info). norm: 1: blocks
     * of the smallest maps have a group norm. */
    int64_t pack;
    int     norm;
    char    names[XD_FIELD_TEXT]; /* own_names, or empty: diffusers' names and an encoder */
    char    act[XD_FIELD_TEXT], upsample[XD_FIELD_TEXT];
    /* [0]: encoder, [1]: decoder; each list has one element per level. */
    xd_ints width[2], blocks[2];
} cfg;

typedef struct block {
    xd_cnv    conv[3];
    xd_lin    up, down; /* 1 x 1 convolutions before and after the group norm */
    xd_tensor gain, bias;
} block;

typedef struct half {
    xd_cnv in, out, between[LEVELS]; /* between[i]: the convolution after level i */
    block  block[LEVELS][BLOCKS];
} half;

typedef struct glob { half side[2]; } glob;

static const xd_field fields[] = {
    { "in_channels", offsetof(cfg, in_channels), 'l', 3, NULL },
    { "out_channels", offsetof(cfg, out_channels), 'l', 3, NULL },
    { "latent_channels", offsetof(cfg, latent_channels), 'l', 4, NULL },
    { "encoder_block_out_channels", offsetof(cfg, width[0]), 'L', 0, NULL },
    { "decoder_block_out_channels", offsetof(cfg, width[1]), 'L', 0, NULL },
    { "num_encoder_blocks", offsetof(cfg, blocks[0]), 'L', 0, NULL },
    { "num_decoder_blocks", offsetof(cfg, blocks[1]), 'L', 0, NULL },
    { "upsampling_scaling_factor", offsetof(cfg, factor), 'l', 2, NULL },
    { "act_fn", offsetof(cfg, act), 's', 0, "relu" },
    { "upsample_fn", offsetof(cfg, upsample), 's', 0, "nearest" },
    { "scaling_factor", offsetof(cfg, scaling), 'd', 1, NULL },
    { "shift_factor", offsetof(cfg, shift), 'd', 0, NULL },
    { "latent_pack", offsetof(cfg, pack), 'l', 1, NULL },
    { "use_midblock_gn", offsetof(cfg, norm), 'b', 0, NULL },
    { "tensor_names", offsetof(cfg, names), 's', 0, "" },
    { "block_out_channels", 0, '-', 0, NULL }, /* equals decoder_block_out_channels */
    { "latent_magnitude", 0, '-', 0, NULL },   /* used only for latents stored as bytes */
    { "latent_shift", 0, '-', 0, NULL },
    { "force_upcast", 0, '-', 0, NULL },
    { "_class_name", 0, '-', 0, NULL },
    { "_diffusers_version", 0, '-', 0, NULL },
    { "_name_or_path", 0, '-', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

/* ---- the config --------------------------------------------------------------------------- */

static void set_list(xd_ints *v, int64_t a, int64_t b, int64_t c, int64_t d)
{
    if (!v->n)
        *v = (xd_ints){ 4, { a, b, c, d } };
}

static xd_status check_lists(const cfg *c, int dec, xd_err *e)
{
    const char    *who = dec ? "decoder" : "encoder";
    const xd_ints *w = &c->width[dec], *n = &c->blocks[dec];
    if (w->n != n->n || w->n != c->width[0].n || w->n < 1 || w->n > LEVELS)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vae: the %s has %d widths and %d numbers of blocks; "
                       "both must have the same length, 1 to %d",
                       who, w->n, n->n, LEVELS);
    for (int i = 0; i < w->n; i++) {
        if (w->v[i] != c->width[dec].v[0] || w->v[i] < 1 || w->v[i] > MOST)
            return xd_fail(e, XD_EUNSUPPORTED,
                           "vae: a level of the %s has %lld channels; all must "
                           "have the same number, 1 to %d",
                           who, (long long)w->v[i], MOST);
        if (n->v[i] < 0 || n->v[i] > BLOCKS)
            return xd_fail(e, XD_EUNSUPPORTED,
                           "vae: a level of the %s has %lld blocks; it must be "
                           "from 0 to %d",
                           who, (long long)n->v[i], BLOCKS);
    }
    return XD_OK;
}

static xd_status check_config(void *c_, xd_err *e)
{
    cfg *c = c_;
    for (int i = 0; i < 2; i++)
        set_list(&c->width[i], 64, 64, 64, 64);
    set_list(&c->blocks[0], 1, 3, 3, 3);
    set_list(&c->blocks[1], 3, 3, 3, 1);
    if (xd_vae_colours(c->in_channels, c->out_channels, e) != XD_OK)
        return XD_EUNSUPPORTED;
    if (c->latent_channels < 1 || c->latent_channels > MOST)
        return xd_fail(e, XD_EUNSUPPORTED, "vae: latent_channels is %lld; it must be from 1 to %d",
                       (long long)c->latent_channels, MOST);
    if (c->pack < 1 || c->pack > MAX_PACK)
        return xd_fail(e, XD_EUNSUPPORTED, "vae: latent_pack is %lld; it must be from 1 to %d",
                       (long long)c->pack, MAX_PACK);
    if (*c->names && strcmp(c->names, own_names) != 0)
        return xd_fail(e, XD_EUNSUPPORTED, "vae: tensor_names is %s; only %s is supported",
                       c->names, own_names);
    if (strcmp(c->act, "relu") != 0)
        return xd_fail(e, XD_EUNSUPPORTED, "vae: act_fn is %s; only relu is supported", c->act);
    if (strcmp(c->upsample, "nearest") != 0 || c->factor != 2)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vae: upsample_fn is %s by %lld; only nearest by 2 is supported",
                       c->upsample, (long long)c->factor);
    if (!isfinite(c->scaling) || c->scaling == 0 || !isfinite(c->shift))
        return xd_fail(e, XD_EFORMAT, "vae: scaling_factor %g or shift_factor %g is invalid",
                       c->scaling, c->shift);
    xd_status s = check_lists(c, 0, e);
    return s == XD_OK ? check_lists(c, 1, e) : s;
}

static int levels(const cfg *c)
{
    return c->width[0].n;
}

static void info(const void *c_, xd_vae_info *out)
{
    const cfg *c = c_;
    int        f = (int)c->pack << (levels(c) - 1);
    *out = (xd_vae_info){ .channels = c->latent_channels * c->pack * c->pack,
                          .cell = { 1, f, f },
                          .scaling = c->scaling,
                          .shift = c->shift,
                          .pack = (int)c->pack,
                          .tile = { TILE / f, TILE / f },
                          .overlap = { 0.125, 0.125 } };
}

/* ---- weights ------------------------------------------------------------------------------ */

typedef struct shape {
    int64_t out, in;
    int     stride, bias;
} shape;

static void w_conv(xd_decl *d, xd_cnv *w, const char *name, shape s)
{
    xd_w_conv(d, w, name,
              &(xd_conv_spec){ .out = s.out,
                               .in = s.in,
                               .nk = 2,
                               .kernel = { 1, 3, 3 },
                               .stride = { 1, s.stride, s.stride },
                               .bias = s.bias });
}

/* Enters the scope of module `at` of the encoder or the decoder. */
static void enter_module(xd_decl *d, const cfg *c, int at)
{
    if (*c->names)
        xd_w_enter(d, "%d", at + 1);
    else
        xd_w_enter(d, "layers.%d", at);
}

static void w_layer(xd_decl *d, const cfg *c, xd_cnv *w, int *at, shape s)
{
    char name[32];
    snprintf(name, sizeof name, *c->names ? "%d" : "layers.%d", *at + (*c->names != 0));
    (*at)++;
    w_conv(d, w, name, s);
}

static void w_block(xd_decl *d, const cfg *c, block *w, int *at, int64_t C, int norm)
{
    static const char *const names[] = { "conv.0", "conv.2", "conv.4" };
    const int64_t            G = GROUPS * C;
    enter_module(d, c, (*at)++);
    for (int i = 0; i < 3; i++)
        w_conv(d, &w->conv[i], names[i], (shape){ C, C, 1, 1 });
    if (norm) {
        xd_w_linear_as(d, &w->up, "pool.0", 4, (int64_t[]){ G, C, 1, 1 }, 0);
        xd_w_affine(d, "pool.1", &w->gain, &w->bias, G);
        xd_w_linear_as(d, &w->down, "pool.3", 4, (int64_t[]){ C, G, 1, 1 }, 0);
    }
    xd_w_leave(d);
}

/* Returns 1 if the blocks of a level have a group norm: those of the level next to the latents. */
static int has_norm(const cfg *c, int dec, int l)
{
    return c->norm && l == (dec ? 0 : levels(c) - 1);
}

/* Declares the encoder or the decoder. Convolutions next to the latents have f32 weights, because
 * rounding errors there affect every pixel. In tensor names, layers are numbered; layers without
 * weights are counted, too: the activation after the decoder's first convolution, and upsampling
 * layers. */
static void w_half(xd_decl *d, const cfg *c, half *w, int dec)
{
    const int64_t  C = c->width[dec].v[0];
    const xd_dtype type = d->type;
    int            at = 0;
    d->type = dec ? XD_F32 : type;
    w_layer(d, c, &w->in, &at, (shape){ C, dec ? c->latent_channels : c->in_channels, 1, 1 });
    d->type = type;
    at += dec;
    for (int l = 0; l < levels(c); l++) {
        for (int i = 0; i < c->blocks[dec].v[l]; i++)
            w_block(d, c, &w->block[l][i], &at, C, has_norm(c, dec, l));
        if (l == levels(c) - 1)
            break;
        at += dec;
        w_layer(d, c, &w->between[l], &at, (shape){ C, C, dec ? 1 : 2, 0 });
    }
    d->type = dec ? type : XD_F32;
    w_layer(d, c, &w->out, &at, (shape){ dec ? c->out_channels : c->latent_channels, C, 1, 1 });
    d->type = type;
}

static void weights(xd_decl *d, const void *cfg_, void *g_)
{
    const cfg *c = cfg_;
    glob      *g = g_;
    if (*c->names) {
        w_half(d, c, &g->side[1], 1);
        return;
    }
    for (int dec = 0; dec < 2; dec++) {
        xd_w_enter(d, dec ? "decoder" : "encoder");
        w_half(d, c, &g->side[dec], dec);
        xd_w_leave(d);
    }
}

/* ---- running ------------------------------------------------------------------------------ */

typedef struct run {
    xd_exec  *x;
    size_t    base; /* position of the map h in the arena (a mark) */
    xd_tensor h;    /* [1,H,W,C] at `base`: the current map */
} run;

/* Computes out = conv(in) + plus with a 3 x 3 kernel. */
static void conv3(run *r, xd_tensor out, xd_tensor in, const xd_cnv *w, xd_tensor plus, int stride)
{
    xd_band_conv(r->x, &(xd_banded){ .feed = { .in = in },
                                     .w = w,
                                     .out = out,
                                     .plus = plus,
                                     .stride = stride,
                                     .lo = { 0, 1, 1 },
                                     .hi = { 0, stride == 1, stride == 1 } });
}

static void relu(run *r, xd_tensor map)
{
    xd_activate(r->x, xd_map_rows(map), XD_RELU);
}

/* Computes h += down(relu(norm(up(h)))), a group norm over all positions between two 1 x 1
 * convolutions. */
static void add_norm(run *r, const block *w)
{
    size_t    mark = xd_arena_mark(r->x->tmp);
    xd_tensor wide = xd_map(r->x, 1, r->h.d[1], r->h.d[2], GROUPS * r->h.d[3]);
    xd_linear_into(r->x, xd_map_rows(wide), xd_map_rows(r->h), &w->up);
    xd_gsum sum = xd_group_sums(r->x, wide, GROUPS);
    xd_group_apply_into(
        r->x, &sum,
        &(xd_gnorm){ .out = wide, .in = wide, .gain = w->gain, .bias = w->bias, .eps = EPS });
    relu(r, wide);
    xd_linear_add(r->x, xd_map_rows(r->h), (xd_tensor){ 0 }, xd_map_rows(wide), &w->down);
    xd_arena_rewind(r->x->tmp, mark);
}

/* Runs a block: h = relu(conv(relu(conv(relu(conv(h))))) + h) */
static void run_block(run *r, const block *w)
{
    const xd_tensor none = { 0 };
    size_t          mark = xd_arena_mark(r->x->tmp);
    xd_tensor       a = xd_map(r->x, 1, r->h.d[1], r->h.d[2], r->h.d[3]);
    xd_tensor       b = xd_map(r->x, 1, r->h.d[1], r->h.d[2], r->h.d[3]);
    conv3(r, a, r->h, &w->conv[0], none, 1);
    relu(r, a);
    conv3(r, b, a, &w->conv[1], none, 1);
    relu(r, b);
    conv3(r, r->h, b, &w->conv[2], r->h, 1);
    relu(r, r->h);
    xd_arena_rewind(r->x->tmp, mark);
}

/* Doubles the rows and columns of the map h, then convolves the map. The old h is upsampled to
 * memory above the new h; the new h overwrites the old h. */
static void run_upsample(run *r, const xd_cnv *w)
{
    xd_tensor old = r->h;
    r->h = xd_map_at(r->x, r->base, 1, 2 * old.d[1], 2 * old.d[2], old.d[3]);
    size_t mark = xd_arena_mark(r->x->tmp);
    conv3(r, r->h, xd_enlarge(r->x, old, 1, 2, 2), w, (xd_tensor){ 0 }, 1);
    xd_arena_rewind(r->x->tmp, mark);
}

static void run_downsample(run *r, const xd_cnv *w)
{
    xd_tensor old = r->h, small = xd_map(r->x, 1, old.d[1] / 2, old.d[2] / 2, old.d[3]);
    conv3(r, small, old, w, (xd_tensor){ 0 }, 2);
    xd_tensor to = old;
    to.d[1] = small.d[1], to.d[2] = small.d[2];
    to = xd_view(old.p, old.type, 4, to.d);
    xd_copy_to(r->x, to, small);
    r->h = xd_map_at(r->x, r->base, 1, to.d[1], to.d[2], to.d[3]);
}

static void run_half(run *r, const cfg *c, const half *w, int dec)
{
    for (int l = 0; l < levels(c); l++) {
        for (int i = 0; i < c->blocks[dec].v[l]; i++) {
            if (has_norm(c, dec, l))
                add_norm(r, &w->block[l][i]);
            run_block(r, &w->block[l][i]);
        }
        if (l < levels(c) - 1 && dec)
            run_upsample(r, &w->between[l]);
        else if (l < levels(c) - 1)
            run_downsample(r, &w->between[l]);
    }
}

/* Writes in * gain + bias to `out`; the elements of `out` need not be contiguous. */
static void scale_map(xd_exec *x, xd_tensor out, xd_tensor in, float gain, float bias)
{
    const float g[3] = { gain, gain, gain }, b[3] = { bias, bias, bias };
    xd_copy_to(x, out, xd_reshape(xd_scale_rows(x, xd_map_rows(in), g, b), 4, in.d));
}

/* Returns a view [h,P,w,P,C] of packed cells [h,w,C P P], in the order of the network's map
 * [h P,w P,C]. */
static xd_tensor unpacked_order(xd_tensor t, int64_t P)
{
    int64_t   C = t.d[3] / (P * P);
    xd_tensor v = xd_reshape(t, 5, (int64_t[]){ t.d[1], t.d[2], C, P, P });
    return xd_permute(v, (int[]){ 0, 3, 1, 4, 2 });
}

/* Returns a map [1,h P,w P,C] as a tensor with the extents of unpacked_order. */
static xd_tensor unpacked_cells(xd_tensor map, int64_t P)
{
    return xd_reshape(map, 5, (int64_t[]){ map.d[1] / P, P, map.d[2] / P, P, map.d[3] });
}

/* Computes the first map of the decoder from a frame of latents, whose cells may be packed. */
static void read_latents(run *r, const cfg *c, const xd_cnv *in, xd_tensor from)
{
    xd_exec  *x = r->x;
    int64_t   P = c->pack;
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor z = xd_map_as(x, XD_F32, 1, P * from.d[1], P * from.d[2], c->latent_channels);
    xd_tensor cells = xd_map_as(x, XD_F32, 1, from.d[1], from.d[2], from.d[3]);
    xd_copy_to(x, cells, from);
    xd_copy_to(x, unpacked_cells(z, P), unpacked_order(cells, P));
    xd_map_clamp(x, z, 3);
    conv3(r, r->h, z, in, (xd_tensor){ 0 }, 1);
    relu(r, r->h);
    xd_arena_rewind(x->tmp, mark);
}

static void decode(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb)
{
    const cfg  *c = n->cfg;
    const half *w = &((const glob *)n->glob)->side[1];
    int64_t     P = c->pack;
    if (!xd_map_image_fits(x, rgb, lat, P << (levels(c) - 1), P * P * c->latent_channels))
        return;
    for (int64_t t = 0; t < lat.d[0]; t++) {
        size_t    mark = xd_arena_mark(x->tmp);
        run       r = { .x = x, .base = mark };
        xd_tensor to = xd_rows(rgb, t, 1);
        r.h = xd_map_at(x, mark, 1, P * lat.d[1], P * lat.d[2], c->width[1].v[0]);
        read_latents(&r, c, &w->in, xd_rows(lat, t, 1));
        run_half(&r, c, w, 1);
        xd_tensor out = xd_map_as(x, XD_F32, 1, to.d[1], to.d[2], 3);
        conv3(&r, out, r.h, &w->out, (xd_tensor){ 0 }, 1);
        scale_map(x, to, out, 2, -1);
        xd_arena_rewind(x->tmp, mark);
    }
}

/* Writes the latents of the last map to the means of a frame of moments. */
static void write_latents(run *r, const cfg *c, const xd_cnv *w, xd_tensor to)
{
    xd_exec  *x = r->x;
    int64_t   P = c->pack, C = P * P * c->latent_channels;
    xd_tensor z = xd_map_as(x, XD_F32, 1, P * to.d[1], P * to.d[2], c->latent_channels);
    xd_tensor cells = xd_map_as(x, XD_F32, 1, to.d[1], to.d[2], C), mean = to;
    conv3(r, z, r->h, w, (xd_tensor){ 0 }, 1);
    xd_copy_to(x, unpacked_order(cells, P), unpacked_cells(z, P));
    mean.d[3] = C;
    xd_copy_to(x, mean, cells);
    xd_map_no_variance(x, to, C);
}

static void encode(xd_exec *x, const xd_net *n, xd_tensor rgb, xd_tensor moments)
{
    const cfg  *c = n->cfg;
    const half *w = &((const glob *)n->glob)->side[0];
    int64_t     P = c->pack;
    if (!xd_check(x, !*c->names,
                  "vae: the file of a TAESD decoder has no encoder, so no images can be encoded: "
                  "use the model's own VAE") ||
        !xd_map_image_fits(x, rgb, moments, P << (levels(c) - 1), 2 * P * P * c->latent_channels))
        return;
    for (int64_t t = 0; t < rgb.d[0]; t++) {
        size_t mark = xd_arena_mark(x->tmp);
        run    r = { .x = x, .base = mark };
        r.h = xd_map_at(x, mark, 1, rgb.d[1], rgb.d[2], c->width[0].v[0]);
        size_t    above = xd_arena_mark(x->tmp);
        xd_tensor in = xd_map_as(x, XD_F32, 1, rgb.d[1], rgb.d[2], 3);
        scale_map(x, in, xd_rows(rgb, t, 1), 0.5f, 0.5f);
        conv3(&r, r.h, in, &w->in, (xd_tensor){ 0 }, 1);
        xd_arena_rewind(x->tmp, above);
        run_half(&r, c, w, 0);
        write_latents(&r, c, &w->out, xd_rows(moments, t, 1));
        xd_arena_rewind(x->tmp, mark);
    }
}

/* ---- the config of a file ------------------------------------------------------------------- */

/* The shape of a weight of module `at`, counted as in diffusers; nd 0: the file has no such
 * tensor. */
static xd_tensor shape_of(const xd_source *file, const cfg *c, int dec, int at, const char *rest)
{
    char      name[64];
    xd_tensor t = { 0 };
    if (*c->names)
        snprintf(name, sizeof name, "%d.%sweight", at + 1, rest);
    else
        snprintf(name, sizeof name, "%s.layers.%d.%sweight", dec ? "decoder" : "encoder", at, rest);
    return file->has(file->self, name, &t) && t.nd == 4 ? t : (xd_tensor){ 0 };
}

/* Reads the numbers of blocks of the encoder or the decoder; returns the number of its last
 * module. */
static int read_levels(const xd_source *file, cfg *c, int dec)
{
    xd_ints *n = &c->blocks[dec], *w = &c->width[dec];
    int      at = 1 + dec;
    for (n->n = 0; n->n < LEVELS;) {
        for (n->v[n->n] = 0; shape_of(file, c, dec, at, "conv.0.").nd; at++)
            n->v[n->n]++;
        w->v[n->n++] = shape_of(file, c, dec, 0, "").d[0];
        /* a convolution that changes the resolution is followed by a block or another module */
        int more = shape_of(file, c, dec, at + dec, "").nd != 0;
        if (!more || (!dec && !shape_of(file, c, dec, at + 1, "").nd &&
                      !shape_of(file, c, dec, at + 1, "conv.0.").nd))
            break;
        at += 1 + dec;
    }
    w->n = n->n;
    return at;
}

/* Reads what the shapes of a file's tensors show about the config; returns 0 for the file of
 * another network. */
static int read_shapes(const xd_source *file, cfg *c)
{
    memset(c, 0, sizeof *c);
    if (!shape_of(file, c, 1, 0, "").nd)
        strcpy(c->names, own_names);
    xd_tensor in = shape_of(file, c, 1, 0, ""), first = shape_of(file, c, 1, 2, "conv.0.");
    if (!in.nd || !first.nd || first.d[0] != first.d[1])
        return 0;
    c->latent_channels = in.d[1];
    c->norm = shape_of(file, c, 1, 2, "pool.0.").nd != 0;
    xd_tensor out = shape_of(file, c, 1, read_levels(file, c, 1), "");
    c->out_channels = out.nd ? out.d[0] : 3;
    if (*c->names)
        c->width[0] = c->width[1], c->blocks[0] = c->blocks[1];
    else
        read_levels(file, c, 0);
    return 1;
}

static void add_list(xd_text_buf *b, const char *key, const xd_ints *v)
{
    xd_buf_add(b, ", \"%s\": [", key);
    for (int i = 0; i < v->n; i++)
        xd_buf_add(b, "%s%lld", i ? ", " : "", (long long)v->v[i]);
    xd_buf_add(b, "]");
}

static xd_status describe(const xd_source *file, const xd_vae_info *own, xd_text_buf *b, xd_err *e)
{
    cfg c;
    (void)e;
    if (!read_shapes(file, &c))
        return XD_OK;
    int pack = own && own->pack > 1 && own->channels == own->pack * own->pack * c.latent_channels;
    xd_buf_add(b,
               "{\"_class_name\": \"AutoencoderTiny\", \"latent_channels\": %lld, "
               "\"out_channels\": %lld, \"use_midblock_gn\": %s, \"latent_pack\": %d, "
               "\"tensor_names\": \"%s\"",
               (long long)c.latent_channels, (long long)c.out_channels, c.norm ? "true" : "false",
               pack ? own->pack : 1, c.names);
    add_list(b, "encoder_block_out_channels", &c.width[0]);
    add_list(b, "decoder_block_out_channels", &c.width[1]);
    add_list(b, "num_encoder_blocks", &c.blocks[0]);
    add_list(b, "num_decoder_blocks", &c.blocks[1]);
    xd_buf_add(b, "}");
    return XD_OK;
}

extern const xd_vae xd_vae_tiny;

const xd_vae xd_vae_tiny = {
    .net = { .name = "tiny",
             .classes = { "AutoencoderTiny" },
             .fields = fields,
             .cfg_size = sizeof(cfg),
             .glob_size = sizeof(glob),
             .check = check_config,
             .weights = weights },
    .info = info,
    .describe = describe,
    .decode = decode,
    .encode = encode,
};
