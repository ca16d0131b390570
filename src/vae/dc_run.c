/* dc_run.c - runs AutoencoderDC (dc.h).
 *
 * Some blocks have two convolutions, the others linear attention over all pixels and a feed-forward
 * with a convolution of each channel. Layers that change the size have a shortcut, which moves
 * pixels to channels or back, and repeats or averages channels. The current map h is at the bottom
 * of the arena; a layer allocates its other maps above h. Blocks and changes of the size of the
 * decoder are computed in bands of rows (bands.h), so that besides h only the queries, keys and
 * values of the smaller maps are complete maps. */
#include <string.h>

#include "base/minmax.h"
#include "vae/bands.h"
#include "vae/dc.h"
#include "vae/maps.h"

static const float EPS = 1e-5f; /* epsilon of every norm, which no config sets */

typedef struct run {
    xd_exec         *x;
    const xd_dc_cfg *c;
    int              dec;
    size_t           base; /* position of the map h in the arena (a mark) */
    xd_tensor        h;    /* [1,H,W,C] at `base`: the current map */
} run;

static xd_tensor map_like(run *r, int64_t C)
{
    return xd_map(r->x, 1, r->h.d[1], r->h.d[2], C);
}

/* Computes a convolution that keeps the size of the map. */
static void conv(run *r, xd_tensor out, xd_tensor in, const xd_cnv *w)
{
    const int k = w->w.kernel[1] / 2;
    xd_conv2d_into(r->x, out, in, w,
                   &(xd_conv_options){ .lo = (int[]){ 0, k, k }, .hi = (int[]){ 0, k, k } });
}

static void conv3(run *r, xd_banded a)
{
    a.stride = a.stride ? a.stride : 1;
    a.lo[1] = a.lo[2] = 1;
    a.hi[1] = a.hi[2] = a.stride == 1;
    xd_band_conv(r->x, &a);
}

static void norm_rows(run *r, xd_tensor map, xd_tensor gain, xd_tensor bias)
{
    xd_tensor rows = xd_map_rows(map);
    xd_norm_into(
        r->x,
        &(xd_norm){ .out = rows, .in = rows, .gain = gain, .bias = bias, .rms = 1, .eps = EPS });
}

/* Returns the bytes of a row of C channels as wide as a map. */
static int64_t row_bytes(xd_tensor map, int64_t C)
{
    return map.d[2] * C * (int64_t)xd_dtype_size(map.type);
}

/* ---- blocks --------------------------------------------------------------------------------- */

typedef struct layer { /* argument of a pass over bands */
    run               *r;
    const xd_dc_block *w;
    const xd_dc_level *level;
    xd_tensor          out;
    int64_t            at; /* first channel of the result, or an index */
} layer;

static xd_tensor rows_of(xd_tensor map, int64_t y, int64_t n)
{
    if (map.p && n)
        map.p = (char *)map.p + y * map.s[1] * (int64_t)xd_dtype_size(map.type);
    map.d[1] = n;
    return map;
}

/* Returns conv(in) for all rows except `above` rows at the upper edge and `below` rows at the lower
 * edge, which only neighbours read. Beyond rows that are not there, there are zeros. */
static xd_tensor conv_inner(xd_exec *x, xd_tensor in, const xd_cnv *w, int64_t above, int64_t below)
{
    const int k = w->w.kernel[1] / 2, lo = k - (int)above, hi = k - (int)below;
    xd_tensor out = xd_map(x, 1, in.d[1] - above - below, in.d[2], w->w.out);
    xd_conv_rows_into(x, out, in, w,
                      &(xd_conv_options){ .lo = (int[]){ 0, lo, k }, .hi = (int[]){ 0, hi, k } });
    return out;
}

/* Adds the norm of y to the rows of h that belong to a band. */
static void add_normed(run *r, const xd_band *b, xd_tensor y, xd_tensor gain, xd_tensor bias)
{
    norm_rows(r, y, gain, bias);
    xd_add(r->x, xd_map_rows(rows_of(r->h, b->first, b->n)), xd_map_rows(y));
}

/* Runs a ResBlock for a band, with up to two rows on both sides. */
static void convolve_band(xd_exec *x, void *ctx, const xd_band *b)
{
    const layer *a = ctx;
    int64_t      above = xd_min(b->above, 1), below = xd_min(b->below, 1);
    xd_tensor    y = conv_inner(x, b->in, &a->w->conv[0], b->above - above, b->below - below);
    xd_activate(x, xd_map_rows(y), XD_SILU);
    y = conv_inner(x, y, &a->w->conv[1], above, below);
    add_normed(a->r, b, y, a->w->gain, a->w->bias);
}

/* Runs a ResBlock: h += norm(conv2(silu(conv1(h)))). */
static void run_convolutions(run *r, const xd_dc_block *w)
{
    layer a = { .r = r, .w = w };
    xd_band_each(r->x, &(xd_band_pass){ .map = r->h,
                                        .reach = 2,
                                        .row = row_bytes(r->h, w->conv[0].w.out),
                                        .run = convolve_band,
                                        .ctx = &a });
}

/* Returns a view of third i of each group of 3 D channels as heads [n,H,D]. */
static xd_tensor third(xd_tensor rows, int64_t D, int i)
{
    xd_tensor t = xd_heads(rows, 3 * D);
    t.p = (char *)t.p + i * D * (int64_t)xd_dtype_size(t.type);
    t.d[2] = D;
    return t;
}

/* Computes one scale of queries, keys and values for a band. */
static void mix_band(xd_exec *x, void *ctx, const xd_band *b)
{
    const layer *a = ctx;
    int64_t      C = b->in.d[3];
    xd_tensor    y = conv_inner(x, b->in, &a->w->wide[a->at], b->above, b->below);
    xd_tensor    to = xd_map_rows(rows_of(a->out, b->first, b->n));
    y = conv_inner(x, y, &a->w->mix[a->at], 0, 0);
    xd_copy_to(x, xd_cols(to, (1 + a->at) * C, C), xd_map_rows(y));
}

/* Adds multi-scale linear attention to h. The channels of queries, keys and values, and of their
 * convolutions, are one list of groups of 3 D channels; each group has the query, the key and the
 * value of one head. */
static void run_attention(run *r, const xd_dc_block *w, int scales)
{
    size_t        mark = xd_arena_mark(r->x->tmp);
    const int64_t D = r->c->head_dim, C = w->qkv.w.out;
    xd_tensor     all = map_like(r, C * (1 + scales)), rows = xd_map_rows(all);
    size_t        above = xd_arena_mark(r->x->tmp);
    xd_tensor     qkv = map_like(r, C);
    xd_linear_into(r->x, xd_map_rows(qkv), xd_map_rows(r->h), &w->qkv);
    xd_copy_to(r->x, xd_cols(rows, 0, C), xd_map_rows(qkv));
    for (int i = 0; i < scales; i++) {
        layer a = { .r = r, .w = w, .out = all, .at = i };
        xd_band_each(r->x, &(xd_band_pass){ .map = qkv,
                                            .reach = w->wide[i].w.kernel[1] / 2,
                                            .row = row_bytes(qkv, C),
                                            .run = mix_band,
                                            .ctx = &a });
    }
    xd_arena_rewind(r->x->tmp, above);
    xd_tensor o = xd_attn_linear(r->x, third(rows, D, 0), third(rows, D, 1), third(rows, D, 2));
    xd_tensor y = map_like(r, r->h.d[3]);
    xd_linear_into(r->x, xd_map_rows(y), xd_flat(o), &w->out);
    norm_rows(r, y, w->gain, w->bias);
    xd_add(r->x, xd_map_rows(r->h), xd_map_rows(y));
    xd_arena_rewind(r->x->tmp, mark);
}

/* Runs the feed-forward for a band, with a row on both sides. */
static void feed_band(xd_exec *x, void *ctx, const xd_band *b)
{
    const layer  *a = ctx;
    const int64_t C = a->w->down.w.in, W = b->in.d[2];
    xd_tensor     up = xd_map(x, 1, b->in.d[1], W, 2 * C);
    xd_linear_act_into(x, xd_map_rows(up), xd_map_rows(b->in), &a->w->up, XD_SILU);
    xd_tensor wide = xd_map_rows(conv_inner(x, up, &a->w->depth, b->above, b->below));
    xd_tensor u = xd_map_rows(xd_map(x, 1, b->n, W, C));
    xd_gated_into(x, u, xd_cols(wide, C, C), xd_cols(wide, 0, C), XD_SILU);
    xd_tensor y = xd_map(x, 1, b->n, W, b->in.d[3]);
    xd_linear_into(x, xd_map_rows(y), u, &a->w->down);
    add_normed(a->r, b, y, a->w->ff_gain, a->w->ff_bias);
}

/* Adds the feed-forward to h: one half of the convolved channels gates the other half. */
static void run_feed(run *r, const xd_dc_block *w)
{
    layer a = { .r = r, .w = w };
    xd_band_each(r->x, &(xd_band_pass){ .map = r->h,
                                        .reach = 1,
                                        .row = row_bytes(r->h, w->down.w.in),
                                        .run = feed_band,
                                        .ctx = &a });
}

static void run_blocks(run *r, const xd_dc_level *w, int level)
{
    int size[XD_DC_SCALES], scales = xd_dc_scales(r->c, r->dec, level, size);
    for (int i = 0; i < r->c->layers[r->dec].v[level]; i++) {
        if (!xd_dc_attends(r->c, r->dec, level)) {
            run_convolutions(r, &w->block[i]);
            continue;
        }
        run_attention(r, &w->block[i], scales);
        run_feed(r, &w->block[i]);
    }
}

/* ---- changes of the size -------------------------------------------------------------------- */

/* Returns a view [H,W,n] of every second row and column of a fine map, from row a and column b on,
 * and of n channels that are `step` apart, from channel `first` on. */
static xd_tensor quarter(xd_tensor fine, int a, int b, int64_t first, int64_t step, int64_t n)
{
    xd_tensor t = fine;
    t.p = (char *)t.p + (a * fine.s[1] + b * fine.s[2] + first) * (int64_t)xd_dtype_size(t.type);
    t.d[1] /= 2, t.d[2] /= 2, t.d[3] = n;
    t.s[1] *= 2, t.s[2] *= 2, t.s[3] = step;
    return t;
}

/* Returns a view of n channels of a map that are `step` apart, from channel `first` on. */
static xd_tensor some_channels(xd_tensor map, int64_t first, int64_t step, int64_t n)
{
    map.p = (char *)map.p + first * (int64_t)xd_dtype_size(map.type);
    map.d[3] = n, map.s[3] = step;
    return map;
}

/* Moves the channels of `coarse` to the pixels of `fine` (pixel shuffle), where each channel is
 * first repeated until there are four times as many channels as in `fine`: channel 4 c + 2 a + b
 * becomes channel c of the pixels in rows 2 y + a and columns 2 x + b. */
static void spread(xd_exec *x, xd_tensor fine, xd_tensor coarse)
{
    const int64_t C = fine.d[3], n = 4 * C / coarse.d[3], q = xd_max(n / 4, 1);
    for (int k = 0; k < 4; k++)
        for (int64_t u = 0; u < q; u++)
            xd_copy_to(x, quarter(fine, k / 2, k % 2, u, q, C / q),
                       some_channels(coarse, n < 4 ? k / n : 0, n < 4 ? 4 / n : 1, C / q));
}

/* Computes the rows of the doubled map, a->out, that become of a band. */
static void enlarge_band(xd_exec *x, void *ctx, const xd_band *b)
{
    const layer *a = ctx;
    xd_tensor    fine = rows_of(a->out, 2 * b->first, 2 * b->n);
    xd_tensor    more = xd_map_as(x, fine.type, 1, fine.d[1], fine.d[2], fine.d[3]);
    if (xd_dc_plain(a->r->c, 1))
        xd_band_enlarge_one(x, fine, b, a->level->enlarge);
    else
        spread(x, fine, conv_inner(x, b->in, &a->level->size, b->above, b->below));
    spread(x, more, rows_of(b->in, b->above, b->n));
    xd_add(x, xd_map_rows(fine), xd_map_rows(more));
}

/* Doubles the rows and columns of h. The new map overlaps the old one, and is not smaller. */
static void run_upsample(run *r, const xd_dc_level *w, int64_t C)
{
    layer     a = { .r = r, .level = w };
    xd_tensor old = r->h;
    a.out = xd_map_at(r->x, r->base, 1, 2 * old.d[1], 2 * old.d[2], C);
    xd_band_each(r->x, &(xd_band_pass){ .map = old,
                                        .reach = 1,
                                        .row = row_bytes(a.out, 4 * C),
                                        .last_first = 1,
                                        .run = enlarge_band,
                                        .ctx = &a });
    r->h = xd_map_at(r->x, r->base, 1, 2 * old.d[1], 2 * old.d[2], C);
}

/* Computes the means of groups of n neighbouring channels, and adds them to `out`. */
static void add_means(run *r, xd_tensor out, xd_tensor in)
{
    const int64_t C = out.d[3], n = in.d[3] / C;
    size_t        mark = xd_arena_mark(r->x->tmp);
    xd_tensor     one = xd_map_as(r->x, XD_F32, 1, out.d[1], out.d[2], C);
    xd_tensor     by = xd_new_f32(r->x, 1, 1);
    float         share = 1.0f / (float)n;
    xd_put(r->x, by, &share);
    by.d[1] = C, by.s[1] = 0;
    xd_tensor gate = xd_new_f32(r->x, 1, C);
    xd_copy_to(r->x, gate, by);
    for (int64_t i = 0; i < n; i++) {
        xd_copy_to(r->x, one, some_channels(in, i, n, C));
        xd_add_gated(r->x, xd_map_rows(out), gate, xd_map_rows(one));
    }
    xd_arena_rewind(r->x->tmp, mark);
}

/* Returns the pixels of `fine` as channels of a map of half the size: channel 4 c + 2 a + b is
 * channel c of the pixels in rows 2 y + a and columns 2 x + b (pixel unshuffle). */
static xd_tensor gather(run *r, xd_tensor fine)
{
    const int64_t C = fine.d[3];
    xd_tensor     t = xd_map_as(r->x, fine.type, 1, fine.d[1] / 2, fine.d[2] / 2, 4 * C);
    for (int k = 0; k < 4; k++)
        xd_copy_to(r->x, some_channels(t, k, 4, C), quarter(fine, k / 2, k % 2, 0, 1, C));
    return t;
}

/* Halves the rows and columns of h. */
static void run_downsample(run *r, const xd_dc_level *w, int64_t C)
{
    const int64_t H = r->h.d[1] / 2, W = r->h.d[2] / 2;
    xd_tensor     out = xd_map(r->x, 1, H, W, C);
    size_t        mark = xd_arena_mark(r->x->tmp);
    if (xd_dc_plain(r->c, 0)) {
        conv3(r, (xd_banded){ .feed = { .in = r->h }, .w = &w->size, .out = out, .stride = 2 });
    } else {
        xd_tensor y = map_like(r, C / 4);
        conv(r, y, r->h, &w->size);
        xd_copy_to(r->x, out, gather(r, y));
    }
    xd_arena_rewind(r->x->tmp, mark);
    add_means(r, out, gather(r, r->h));
    r->h = xd_map_at(r->x, r->base, 1, H, W, C);
    xd_copy_to(r->x, r->h, out);
}

/* ---- decoding and encoding ------------------------------------------------------------------ */

/* Adds the latents to h, each channel repeated until there are as many channels as in h. */
static void add_repeated(run *r, xd_tensor z)
{
    const int64_t C = z.d[3], n = r->h.d[3] / C;
    size_t        mark = xd_arena_mark(r->x->tmp);
    xd_tensor     y = xd_map_as(r->x, XD_F32, 1, r->h.d[1], r->h.d[2], r->h.d[3]);
    for (int64_t i = 0; i < n; i++)
        xd_copy_to(r->x, some_channels(y, i, n, C), z);
    xd_add(r->x, xd_map_rows(r->h), xd_map_rows(y));
    xd_arena_rewind(r->x->tmp, mark);
}

static void decode_frame(run *r, const xd_dc_half *w, xd_tensor lat, xd_tensor rgb)
{
    const int last = xd_dc_levels(r->c) - 1;
    r->h = xd_map_at(r->x, r->base, 1, lat.d[1], lat.d[2], r->c->width[1].v[last]);
    size_t    mark = xd_arena_mark(r->x->tmp);
    xd_tensor z = xd_map_as(r->x, XD_F32, 1, lat.d[1], lat.d[2], lat.d[3]);
    xd_copy_to(r->x, z, lat);
    conv3(r, (xd_banded){ .feed = { .in = z }, .w = &w->in, .out = r->h });
    if (r->c->shortcut[1])
        add_repeated(r, z);
    xd_arena_rewind(r->x->tmp, mark);
    for (int l = last; l >= 0; l--) {
        if (l < last)
            run_upsample(r, &w->level[l], r->c->width[1].v[l]);
        run_blocks(r, &w->level[l], l);
    }
    norm_rows(r, r->h, w->gain, w->bias);
    xd_activate(r->x, xd_map_rows(r->h), strcmp(r->c->act, "relu") == 0 ? XD_RELU : XD_SILU);
    xd_tensor out = xd_map_as(r->x, XD_F32, 1, rgb.d[1], rgb.d[2], 3);
    conv3(r, (xd_banded){ .feed = { .in = r->h }, .w = &w->out, .out = out });
    xd_copy_to(r->x, rgb, out);
}

void xd_dc_decode(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb)
{
    const xd_dc_cfg  *c = n->cfg;
    const xd_dc_glob *g = n->glob;
    if (!xd_map_image_fits(x, rgb, lat, (int64_t)1 << (xd_dc_levels(c) - 1), c->latent_channels))
        return;
    for (int64_t t = 0; t < lat.d[0]; t++) {
        size_t mark = xd_arena_mark(x->tmp);
        run    r = { .x = x, .c = c, .dec = 1, .base = mark };
        decode_frame(&r, &g->half[1], xd_rows(lat, t, 1), xd_rows(rgb, t, 1));
        xd_arena_rewind(x->tmp, mark);
    }
}

static void encode_frame(run *r, const xd_dc_half *w, xd_tensor rgb, xd_tensor moments)
{
    const int     levels = xd_dc_levels(r->c);
    const int64_t C = r->c->latent_channels;
    r->h = xd_map_at(r->x, r->base, 1, rgb.d[1], rgb.d[2], r->c->width[0].v[0]);
    conv3(r, (xd_banded){ .feed = { .in = rgb }, .w = &w->in, .out = r->h });
    for (int l = 0; l < levels; l++) {
        run_blocks(r, &w->level[l], l);
        if (l + 1 < levels)
            run_downsample(r, &w->level[l], r->c->width[0].v[l + 1]);
    }
    xd_tensor out = xd_map_as(r->x, XD_F32, 1, moments.d[1], moments.d[2], C);
    conv3(r, (xd_banded){ .feed = { .in = r->h }, .w = &w->out, .out = out });
    if (r->c->shortcut[0])
        add_means(r, out, r->h);
    xd_copy_to(r->x, some_channels(moments, 0, 1, C), out);
    xd_map_no_variance(r->x, moments, C);
}

void xd_dc_encode(xd_exec *x, const xd_net *n, xd_tensor rgb, xd_tensor moments)
{
    const xd_dc_cfg  *c = n->cfg;
    const xd_dc_glob *g = n->glob;
    if (!xd_map_image_fits(x, rgb, moments, (int64_t)1 << (xd_dc_levels(c) - 1),
                           2 * c->latent_channels))
        return;
    for (int64_t t = 0; t < rgb.d[0]; t++) {
        size_t mark = xd_arena_mark(x->tmp);
        run    r = { .x = x, .c = c, .dec = 0, .base = mark };
        encode_frame(&r, &g->half[0], xd_rows(rgb, t, 1), xd_rows(moments, t, 1));
        xd_arena_rewind(x->tmp, mark);
    }
}
