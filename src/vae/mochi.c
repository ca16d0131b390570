/* mochi.c - decodes videos like diffusers' AutoencoderKLMochi (Genmo 2024); the encoder is not
 * supported.
 *
 * The decoder consists of residual blocks, whose group norms are over single frames, and of linear
 * layers that turn the channels of a position into several frames, rows and columns. Convolutions
 * read the current and the two earlier frames. Frames, rows and columns beyond the edges are copies
 * of those at the edges. The frames before the last frame of the first latent frame are dropped.
 *
 * Latent frames are decoded one after the other. In the arena, the frames that convolutions keep
 * for the next latent frame come first. The current feature map `h` follows them, as the first
 * memory of a latent frame. Besides h, only one other map and a few padded frames exist at the same
 * time. */
#include <math.h>
#include <string.h>

#include "base/minmax.h"
#include "exec/op.h"
#include "vae/maps.h"
#include "vae/scale_rows.h"
#include "vae/vae.h"

enum {
    LEVELS = 8,           /* max number of resolutions */
    RES = 16,             /* max number of residual blocks per stage */
    STAGES = LEVELS + 1,  /* block_in, up_blocks, block_out */
    GROUPS = 32,          /* groups of the norms */
    TILE = 256,           /* height and width of a tile in pixels */
    MAX_WIDTH = 1 << 16,  /* max channels of a layer */
    MAX_CELL = 64,        /* max pixels, or frames, per latent cell */
    CACHES = 2 * STAGES * RES,
};

static const float eps = 1e-5f;

typedef struct cfg {
    int64_t  in_channels, out_channels, latent_channels;
    xd_ints  widths, layers, frames, sides; /* frames, sides: temporal and spatial expansions */
    xd_reals mean, std;
    double   scaling;
    char     act[XD_FIELD_TEXT];
    int      cell[2]; /* frames, and rows and columns, per latent cell */
} cfg;

#define AT(member) offsetof(cfg, member)
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
    { "encoder_block_out_channels", 0, '-', 0, NULL },
    { "add_attention_block", 0, '-', 0, NULL }, /* only the encoder has attention */
    { "_class_name", 0, '-', 0, NULL },
    { "_diffusers_version", 0, '-', 0, NULL },
    { "_name_or_path", 0, '-', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

/* Values for config keys that are absent. */
static const xd_ints  default_widths = { 4, { 128, 256, 512, 768 } };
static const xd_ints  default_layers = { 5, { 3, 3, 4, 6, 3 } };
static const xd_ints  default_frames = { 3, { 1, 2, 3 } }, default_sides = { 3, { 2, 2, 2 } };
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

typedef struct res {
    xd_tensor gain[2], bias[2];
    xd_cnv    conv[2];
} res;

typedef struct stage { /* residual blocks at one resolution, then a linear layer */
    res    res[RES];
    xd_lin proj; /* a stage of up_blocks: makes the channels of the next resolution */
} stage;

typedef struct glob {
    xd_lin in, out;
    stage  stage[STAGES];
} glob;

/* Stages are counted in execution order: stage 0 is block_in, the last stage is block_out. */
static int last_stage(const cfg *c)
{
    return c->widths.n;
}

static int is_up(const cfg *c, int s)
{
    return s > 0 && s < last_stage(c);
}

static int64_t width_of(const cfg *c, int s)
{
    int n = c->widths.n;
    return c->widths.v[s == 0 ? n - 1 : n - s];
}

static int layers_of(const cfg *c, int s)
{
    return (int)c->layers.v[c->widths.n - s];
}

/* Returns the number of frames (sides: rows and columns) that an up block makes of one. */
static int64_t growth(const cfg *c, int s, const xd_ints *of)
{
    return of->v[c->widths.n - 1 - s];
}

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

static xd_status check_widths(const cfg *c, xd_err *e)
{
    if (c->widths.n > LEVELS)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vae: decoder_block_out_channels has %d entries; at most %d are supported",
                       c->widths.n, LEVELS);
    xd_status s = check_list(&c->widths, "decoder_block_out_channels", c->widths.n, MAX_WIDTH, e);
    for (int i = 0; s == XD_OK && i < c->widths.n; i++)
        if (c->widths.v[i] % GROUPS)
            return xd_fail(e, XD_EFORMAT,
                           "vae: decoder_block_out_channels has %lld; it must be a multiple of %d",
                           (long long)c->widths.v[i], GROUPS);
    return s;
}

static xd_status check_latents(const cfg *c, xd_err *e)
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
static xd_status set_cell(cfg *c, xd_err *e)
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

static xd_status check_config(void *cfg_, xd_err *e)
{
    cfg *c = cfg_;
    c->widths = c->widths.n ? c->widths : default_widths;
    c->layers = c->layers.n ? c->layers : default_layers;
    c->frames = c->frames.n ? c->frames : default_frames;
    c->sides = c->sides.n ? c->sides : default_sides;
    c->mean = c->mean.n ? c->mean : default_mean;
    c->std = c->std.n ? c->std : default_std;
    int       n = c->widths.n;
    xd_status s = check_widths(c, e);
    if (s == XD_OK)
        s = check_list(&c->layers, "layers_per_block", n + 1, RES, e);
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

static void info(const void *cfg_, xd_vae_info *out)
{
    const cfg *c = cfg_;
    int        f = c->cell[1];
    *out = (xd_vae_info){ .channels = c->latent_channels,
                          .cell = { c->cell[0], f, f },
                          .scaling = 1,
                          .alone = 1,
                          .overlap = { 0.25, 0.25 },
                          .pack = 1 };
    out->tile[0] = out->tile[1] = TILE / f;
}

/* ---- weights ------------------------------------------------------------------------------ */

static void w_res(xd_decl *d, res *w, int i, int64_t C)
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

static void w_stage(xd_decl *d, const cfg *c, stage *w, int s)
{
    if (is_up(c, s))
        xd_w_enter(d, "up_blocks.%d", s - 1);
    else
        xd_w_enter(d, s ? "block_out" : "block_in");
    for (int i = 0; i < layers_of(c, s); i++)
        w_res(d, &w->res[i], i, width_of(c, s));
    if (is_up(c, s)) {
        int64_t side = growth(c, s, &c->sides),
                out = width_of(c, s + 1) * growth(c, s, &c->frames) * side * side;
        xd_w_linear(d, &w->proj, "proj",
                    &(xd_linear_spec){ .in = width_of(c, s), .out = out, .bias = 1 });
    }
    xd_w_leave(d);
}

/* The layer next to the latents has f32 weights, whatever the type of the maps: the latents are the
 * smallest map, and rounding errors there affect every pixel. */
static void weights(xd_decl *d, const void *cfg_, void *glob_)
{
    const cfg *c = cfg_;
    glob      *g = glob_;
    xd_dtype   type = d->type;
    xd_w_enter(d, "decoder");
    d->type = XD_F32;
    xd_w_linear_as(d, &g->in, "conv_in", 5,
                   (int64_t[]){ width_of(c, 0), c->latent_channels, 1, 1, 1 }, 1);
    d->type = type;
    for (int s = 0; s <= last_stage(c); s++)
        w_stage(d, c, &g->stage[s], s);
    xd_w_linear(d, &g->out, "proj_out",
                &(xd_linear_spec){
                    .in = width_of(c, last_stage(c)), .out = c->out_channels, .bias = 1 });
    xd_w_leave(d);
}

/* ---- convolutions ------------------------------------------------------------------------- */

typedef struct run {
    xd_exec    *x;
    const cfg  *c;
    const glob *g;
    size_t      base; /* position of the map h in the arena (a mark) */
    xd_tensor   h;    /* [T,H,W,C] at `base`: the current map */
    /* For each convolution, the padded frames that it keeps: [XD_PAST,H + 2,W + 2,C]. */
    xd_tensor   cache[CACHES];
    int         ncache; /* number of convolutions in `cache`; 0 if there is one latent frame */
    int         at;     /* index in `cache` of the convolution that runs next */
    int         first;  /* 1: first latent frame, so no frames are kept yet */
} run;

static const xd_tensor none;

/* For all convolutions, in execution order, allocates the frames that the convolution keeps. */
static void open_caches(run *r, int64_t H, int64_t W)
{
    for (int s = 0; s <= last_stage(r->c); s++) {
        for (int i = 0; i < 2 * layers_of(r->c, s); i++) {
            const xd_cnv *w = &r->g->stage[s].res[i / 2].conv[i % 2];
            r->cache[r->ncache++] = xd_map_as(r->x, w->w.type, XD_PAST, H + 2, W + 2, w->w.in);
        }
        if (is_up(r->c, s))
            H *= growth(r->c, s, &r->c->sides), W *= growth(r->c, s, &r->c->sides);
    }
}

/* Returns a view of some rows and columns of each frame. */
static xd_tensor part_of(xd_tensor t, int64_t row, int64_t rows, int64_t col, int64_t cols)
{
    if (t.p)
        t.p = (char *)t.p + (row * t.s[1] + col * t.s[2]) * (int64_t)xd_dtype_size(t.type);
    t.d[1] = rows, t.d[2] = cols;
    return t;
}

/* Writes frames `in` [n,H,W,C] to `to` [n,H + 2,W + 2,C]. Rows beyond this rank's rows come from
 * other ranks; rows and columns beyond the image's edges are copies of those at the edges. */
static void pad(xd_exec *x, xd_tensor to, xd_tensor in)
{
    int64_t H = in.d[1], W = in.d[2];
    size_t  mark = xd_arena_mark(x->tmp);
    xd_halo beside = xd_halo_of(x, in, 1, 1);
    if (H) {
        xd_copy_to(x, part_of(to, 1, H, 1, W), in);
        xd_copy_to(x, part_of(to, 0, 1, 1, W),
                   beside.above.d[1] ? beside.above : part_of(in, 0, 1, 0, W));
        xd_copy_to(x, part_of(to, H + 1, 1, 1, W),
                   beside.below.d[1] ? beside.below : part_of(in, H - 1, 1, 0, W));
        xd_copy_to(x, part_of(to, 0, H + 2, 0, 1), part_of(to, 0, H + 2, 1, 1));
        xd_copy_to(x, part_of(to, 0, H + 2, W + 1, 1), part_of(to, 0, H + 2, W, 1));
    }
    xd_arena_rewind(x->tmp, mark);
}

/* Writes silu(norm(in)) to `to`. Each frame has its own statistics. */
static void norm_frames(xd_exec *x, xd_tensor to, xd_tensor in, const res *w, int k)
{
    for (int64_t t = 0; t < in.d[0]; t++) {
        size_t    mark = xd_arena_mark(x->tmp);
        xd_tensor one = xd_rows(in, t, 1);
        xd_gsum   sum = xd_group_sums(x, one, GROUPS);
        xd_group_apply_into(x, &sum,
                            &(xd_gnorm){ .out = xd_rows(to, t, 1),
                                         .in = one,
                                         .gain = w->gain[k],
                                         .bias = w->bias[k],
                                         .eps = eps,
                                         .silu = 1 });
        xd_arena_rewind(x->tmp, mark);
    }
}

/* Computes out = conv(silu(norm(in))) + plus, where plus may be the tensor `out`. In place of the
 * frames before the first one, the convolution reads copies of the first frame. */
static void convolve(run *r, xd_tensor out, xd_tensor in, const res *w, int k, xd_tensor plus)
{
    xd_exec  *x = r->x;
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor cache = r->ncache ? r->cache[r->at++] : none;
    int64_t   T = in.d[0], H = in.d[1], W = in.d[2], C = in.d[3], most = xd_map_frames(x, in);
    xd_tensor buf = xd_map_as(x, w->conv[k].w.type, XD_PAST + most, H + 2, W + 2, C);
    xd_tensor normed = xd_map_as(x, w->conv[k].w.type, most, H, W, C);
    for (int64_t t = 0; t < T; t += most) {
        int64_t n = xd_min(most, T - t);
        norm_frames(x, xd_rows(normed, 0, n), xd_rows(in, t, n), w, k);
        pad(x, xd_rows(buf, XD_PAST, n), xd_rows(normed, 0, n));
        for (int i = 0; !t && r->first && i < XD_PAST; i++)
            xd_copy_to(x, xd_rows(buf, i, 1), xd_rows(buf, XD_PAST, 1));
        if (!t && !r->first)
            xd_map_keep(x, buf, cache, XD_PAST);
        xd_conv_rows_into(x, xd_rows(out, t, n), xd_rows(buf, 0, XD_PAST + n), &w->conv[k],
                          &(xd_conv_options){ .residual =
                                                  plus.p ? xd_rows(plus, t, n) : none });
        if (t + n < T || r->ncache)
            xd_map_keep(x, t + n < T ? buf : cache, xd_rows(buf, n, XD_PAST), XD_PAST);
    }
    xd_arena_rewind(x->tmp, mark);
}

/* ---- stages ------------------------------------------------------------------------------- */

/* Runs a residual block: h += conv2(silu(norm2(conv1(silu(norm1(h)))))) */
static void run_residual(run *r, const res *w)
{
    const int64_t *d = r->h.d;
    size_t         mark = xd_arena_mark(r->x->tmp);
    xd_tensor      a = xd_map(r->x, d[0], d[1], d[2], d[3]);
    convolve(r, a, r->h, w, 0, none);
    convolve(r, r->h, a, w, 1, r->h);
    xd_arena_rewind(r->x->tmp, mark);
}

/* Copies the output y [H,W,(C,ft,f,f)] of the linear layer of a stage to ft frames
 * [ft,H f,W f,C]. */
static void unpack(xd_exec *x, xd_tensor to, xd_tensor y, int64_t f)
{
    int64_t ft = to.d[0], H = y.d[1], W = y.d[2], C = to.d[3], cells = f * f;
    for (int64_t a = 0; a < ft; a++) {
        xd_tensor from = xd_view(y.p, y.type, 5, (int64_t[]){ H, W, C, f, f });
        from.s[0] = y.s[1], from.s[1] = y.s[2], from.s[2] = ft * cells;
        if (from.p)
            from.p = (char *)from.p + a * cells * (int64_t)xd_dtype_size(y.type);
        xd_tensor out = xd_reshape(xd_rows(to, a, 1), 5, (int64_t[]){ H, f, W, f, C });
        xd_copy_to(x, xd_permute(out, (int[]){ 0, 2, 4, 1, 3 }), from);
    }
}

/* Enlarges the map h. The frames are computed from the last to the first, because the new map
 * overlaps the old map in memory; the frame that is read is copied first. */
static void enlarge(run *r, const xd_lin *w, int64_t ft, int64_t f, int64_t C)
{
    xd_exec  *x = r->x;
    xd_tensor old = r->h;
    int64_t   T = old.d[0], H = old.d[1], W = old.d[2];
    /* The arena must have room for the larger of the two maps. */
    r->h = xd_map_at(x, r->base, T * ft, H * f, W * f, C);
    if (xd_count(old) > xd_count(r->h))
        xd_map_at(x, r->base, T, H, W, old.d[3]);
    xd_tensor y = xd_map(x, 1, H, W, w->w.out);
    for (int64_t i = 0; i < T; i++) {
        int64_t t = xd_count(old) > xd_count(r->h) ? i : T - 1 - i;
        xd_linear_into(x, xd_map_rows(y), xd_map_rows(xd_rows(old, t, 1)), w);
        unpack(x, xd_rows(r->h, t * ft, ft), y, f);
    }
    r->h = xd_map_at(x, r->base, T * ft, H * f, W * f, C);
}

static void run_stage(run *r, int s)
{
    const stage *w = &r->g->stage[s];
    for (int i = 0; i < layers_of(r->c, s); i++)
        run_residual(r, &w->res[i]);
    if (is_up(r->c, s))
        enlarge(r, &w->proj, growth(r->c, s, &r->c->frames), growth(r->c, s, &r->c->sides),
                width_of(r->c, s + 1));
}

/* Decodes one latent frame z [1,h,w,C]. Writes only the last frames, as many as rgb has. */
static void decode_frame(run *r, xd_tensor z, xd_tensor rgb)
{
    xd_exec *x = r->x;
    size_t   mark = xd_arena_mark(x->tmp);
    r->base = mark;
    r->at = 0;
    r->h = xd_map_at(x, r->base, 1, z.d[1], z.d[2], width_of(r->c, 0));
    xd_linear_into(x, xd_map_rows(r->h), xd_map_rows(z), &r->g->in);
    for (int s = 0; s <= last_stage(r->c); s++)
        run_stage(r, s);
    xd_tensor h = xd_map_rows(xd_rows(r->h, r->h.d[0] - rgb.d[0], rgb.d[0]));
    xd_activate(x, h, XD_SILU);
    xd_linear_into(x, xd_map_rows(rgb), h, &r->g->out);
    xd_arena_rewind(x->tmp, mark);
}

/* Decodes latents that were normalized, lat = (z - mean) scaling / std, with the mean and std of
 * each channel. The decoder reads z. */
static void decode(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb)
{
    const cfg  *c = n->cfg;
    int64_t     C = c->latent_channels, T = lat.d[0], done = 0;
    float       gain[XD_FIELD_LIST], bias[XD_FIELD_LIST];
    size_t      mark = xd_arena_mark(x->tmp);
    run         r = { .x = x, .c = c, .g = n->glob, .first = 1 };
    xd_vae_info v;
    info(c, &v);
    if (!xd_map_video_fits(x, rgb, lat, v.cell[1], C, T) ||
        !xd_map_frames_fit(x, rgb.d[0], xd_vae_frames(&v, T)))
        return;
    for (int64_t i = 0; i < C; i++)
        gain[i] = (float)(c->std.v[i] / c->scaling), bias[i] = (float)c->mean.v[i];
    xd_tensor z = xd_scale_rows(x, xd_map_rows(lat), gain, bias);
    z = xd_reshape(z, 4, lat.d);
    if (T > 1)
        open_caches(&r, lat.d[1], lat.d[2]);
    for (int64_t t = 0, k; t < T; t++, done += k, r.first = 0) {
        k = t ? v.cell[0] : 1;
        if (t)
            xd_pause(x);
        decode_frame(&r, xd_rows(z, t, 1), xd_rows(rgb, done, k));
    }
    xd_arena_rewind(x->tmp, mark);
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
    .net = { .name = "mochi",
             .classes = { "AutoencoderKLMochi" },
             .unread = { "encoder.*" },
             .fields = fields,
             .cfg_size = sizeof(cfg),
             .glob_size = sizeof(glob),
             .check = check_config,
             .weights = weights },
    .info = info,
    .decode = decode,
    .encode = encode,
};
