/* cogvideox_run.c - encodes videos to latents, and decodes latents to videos, with
 * AutoencoderKLCogVideoX.
 *
 * Frames are computed in batches as in diffusers, because a group norm covers all frames of a
 * batch. Convolutions over time read only the current and past frames; each of them keeps its last
 * input frames for the next batch.
 *
 * In the arena, the frames that convolutions keep come first. The current feature map `h` follows
 * them, as the first memory of a batch. The input of a convolution is normalized a few frames at a
 * time, so that only h, one other map and these frames are in memory; at 480 x 720 pixels, a map of
 * eight frames is the largest tensor. In the decoder the scale and shift of a norm are 1x1
 * convolutions of the latents. Scale and shift are computed at the size of the latents and
 * upsampled while the norm is applied. */
#include "base/minmax.h"
#include "exec/op.h"
#include "vae/bands.h"
#include "vae/cogvideox.h"
#include "vae/maps.h"
#include "vae/vae.h"

enum {
    MAX_CACHES = 2 + 2 * (XD_COG_MID + XD_COG_LEVELS * XD_COG_RES),
    LATENTS = 2, /* latent frames per batch: num_latent_frames_batch_size */
    SAMPLES = 8, /* video frames per batch: num_sample_frames_batch_size */
};

typedef struct run {
    xd_exec           *x;
    const xd_cog_cfg  *c;
    const xd_cog_half *w;
    int                dec;
    size_t             base; /* position of the map h in the arena (a mark) */
    xd_tensor          h;    /* [T,H,W,C] at `base`: the current map */
    xd_tensor          z;    /* [t,h,w,C] F32: latent frames of the batch (decoder) */
    /* For each convolution, the frames that it keeps: [XD_PAST,H,W,C]. */
    xd_tensor          cache[MAX_CACHES];
    /* Number of convolutions in `cache`; 0 if there is only one batch. */
    int                ncache;
    int                at;    /* index in `cache` of the convolution that runs next */
    int                first; /* 1: first batch, so no frames are kept yet */
} run;

static const xd_tensor none;

/* ---- kept frames ------------------------------------------------------------------ */

static void keep_for(run *r, int64_t H, int64_t W, const xd_cnv *w)
{
    r->cache[r->ncache++] = xd_map_as(r->x, w->w.type, XD_PAST, H, W, w->w.in);
}

static void keep_res(run *r, int64_t H, int64_t W, const xd_cog_res *w)
{
    keep_for(r, H, W, &w->conv1);
    keep_for(r, H, W, &w->conv2);
}

static void keep_mid(run *r, int64_t H, int64_t W)
{
    for (int i = 0; i < XD_COG_MID; i++)
        keep_res(r, H, W, &r->w->mid[i]);
}

/* For all convolutions, in execution order, allocates the frames that the convolution keeps. `H`
 * and `W` are the height and width of the input frames. */
static void open_caches(run *r, int64_t H, int64_t W)
{
    int last = xd_cog_levels(r->c) - 1;
    keep_for(r, H, W, &r->w->in);
    if (r->dec)
        keep_mid(r, H, W);
    for (int l = 0; l <= last; l++) {
        for (int i = 0; i < xd_cog_residuals(r->c, r->dec); i++)
            keep_res(r, H, W, &r->w->level[l].res[i]);
        if (l < last)
            H = r->dec ? 2 * H : H / 2, W = r->dec ? 2 * W : W / 2;
    }
    if (!r->dec)
        keep_mid(r, H, W);
    keep_for(r, H, W, &r->w->out);
}

/* Allocates a map that exists during one residual block. In the first batch, the map may use the
 * memory in which later convolutions will keep their frames. */
static xd_tensor new_beside(run *r, int64_t T, int64_t H, int64_t W, int64_t C)
{
    int64_t   d[4] = { T, H, W, C };
    xd_tensor t = xd_view(NULL, r->x->act, 4, d);
    if (r->first && r->at + 2 < r->ncache) {
        const xd_tensor *last = &r->cache[r->ncache - 1];
        t.p = r->cache[r->at + 2].p;
        if ((char *)last->p + xd_bytes(*last) - (char *)t.p >= (ptrdiff_t)xd_bytes(t))
            return t;
    }
    return xd_map(r->x, T, H, W, C);
}

/* ---- convolutions over time ---------------------------------------------------------------- */

typedef struct feed { /* input of a convolution: a map, and an optional norm of the map */
    xd_tensor          in;
    const xd_cog_norm *norm; /* norm of the input; NULL: none */
    xd_gsum            sum;
    xd_tensor          y, b; /* scale y and shift b of the norm, in the size of the latents */
} feed;

static feed plain_feed(xd_tensor in)
{
    return (feed){ .in = in };
}

static xd_tensor of_latent(run *r, const xd_lin *w)
{
    xd_tensor t =
        xd_new_as(r->x, XD_F32, 4, (int64_t[]){ r->z.d[0], r->z.d[1], r->z.d[2], w->w.out });
    xd_linear_into(r->x, xd_map_rows(t), xd_map_rows(r->z), w);
    return t;
}

/* Returns the convolution input silu(norm(in)). The norm is computed when the convolution reads its
 * input. */
static feed norm_feed(run *r, xd_tensor in, const xd_cog_norm *w)
{
    feed f = { .in = in, .norm = w };
    f.sum = xd_group_sums(r->x, in, (int)r->c->groups);
    if (r->dec) {
        f.y = of_latent(r, &w->y);
        f.b = of_latent(r, &w->b);
    }
    return f;
}

/* The latents have n frames. Returns the index of the latent frame that corresponds to frame t of a
 * map with T frames. If T is odd, the first latent frame corresponds only to the first frame of the
 * map. */
static int64_t latent_frame(int64_t t, int64_t T, int64_t n)
{
    if (T > 1 && T % 2)
        return t ? 1 + (t - 1) * (n - 1) / (T - 1) : 0;
    return t * n / T;
}

/* Copies frames of a convolution's input to `to`, beginning with frame t. If the convolution has a
 * norm, the copied frames are normalized. */
static void read_feed(run *r, xd_tensor to, const feed *f, int64_t t)
{
    int64_t n = to.d[0], T = f->in.d[0];
    if (!f->norm) {
        xd_copy_to(r->x, to, xd_rows(f->in, t, n));
        return;
    }
    for (int64_t i = 0, k; i < n; i += k) {
        xd_tensor y = f->y, b = f->b;
        k = y.p ? 1 : n;
        if (y.p) {
            int64_t at = latent_frame(t + i, T, y.d[0]);
            y = xd_rows(y, at, 1), b = xd_rows(b, at, 1);
        }
        xd_group_apply_into(r->x, &f->sum,
                            &(xd_gnorm){ .out = xd_rows(to, i, k),
                                         .in = xd_rows(f->in, t + i, k),
                                         .gain = f->norm->gain,
                                         .bias = f->norm->bias,
                                         .scale = y,
                                         .shift = b,
                                         .eps = f->norm->eps,
                                         .silu = 1 });
    }
}

/* Computes out = conv(f) + plus, where plus may be the tensor `out`. In place of the frames before
 * the first one, the convolution reads copies of the first frame. */
static void causal_conv(run *r, xd_tensor out, const feed *f, const xd_cnv *w, xd_tensor plus)
{
    xd_exec  *x = r->x;
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor in = f->in, cache = r->ncache ? r->cache[r->at++] : none;
    int64_t   T = in.d[0], n = xd_map_frames(x, in);
    xd_tensor buf = xd_map_as(x, w->w.type, XD_PAST + n, in.d[1], in.d[2], in.d[3]);
    for (int64_t t = 0; t < T; t += n) {
        int64_t k = T - t < n ? T - t : n;
        read_feed(r, xd_rows(buf, XD_PAST, k), f, t);
        if (!t && r->first)
            for (int i = 0; i < XD_PAST; i++)
                xd_copy_to(x, xd_rows(buf, i, 1), xd_rows(buf, XD_PAST, 1));
        else if (!t)
            xd_map_keep(x, buf, cache, XD_PAST);
        xd_conv3d_into(x, xd_rows(out, t, k), xd_rows(buf, 0, XD_PAST + k), w,
                       plus.p ? xd_rows(plus, t, k) : none);
        if (t + k < T)
            xd_map_keep(x, buf, xd_rows(buf, k, XD_PAST), XD_PAST);
        else if (r->ncache)
            xd_map_keep(x, cache, xd_rows(buf, k, XD_PAST), XD_PAST);
    }
    xd_arena_rewind(x->tmp, mark);
}

/* ---- blocks -------------------------------------------------------------------------------- */

/* Runs a residual block: h = shortcut(h) + conv2(silu(norm2(conv1(silu(norm1(h)))))) */
static void run_residual(run *r, const xd_cog_res *w)
{
    xd_exec  *x = r->x;
    xd_tensor h = r->h;
    int64_t   in = w->conv1.w.in, out = w->conv1.w.out, *d = h.d;
    if (out > in)
        r->h = xd_map_at(x, r->base, d[0], d[1], d[2], out);
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor a = new_beside(r, d[0], d[1], d[2], out);
    size_t    above = xd_arena_mark(x->tmp);
    feed      f = norm_feed(r, h, &w->norm1);
    causal_conv(r, a, &f, &w->conv1, none);
    xd_arena_rewind(x->tmp, above);
    if (in != out)
        h = xd_map_reshape(x, h, &w->shortcut);
    f = norm_feed(r, a, &w->norm2);
    causal_conv(r, h, &f, &w->conv2, h);
    if (in != out)
        r->h = xd_map_at(x, r->base, d[0], d[1], d[2], out);
    else
        xd_arena_rewind(x->tmp, mark);
}

static void run_middle(run *r)
{
    for (int i = 0; i < XD_COG_MID; i++)
        run_residual(r, &r->w->mid[i]);
}

/* Doubles the rows and columns of the map h. If `time` is set, also doubles the frames; if their
 * number is odd, the first frame stays single. The two frames of a pair are equal, so only one of
 * them is convolved. The frames are computed from the last to the first, because the new map
 * overlaps the old map in memory. */
static void run_upsample(run *r, const xd_cog_level *level, int time)
{
    xd_exec  *x = r->x;
    xd_tensor old = r->h;
    int64_t   T = old.d[0], twice = time && T > 1, odd = twice && T % 2;
    r->h = xd_map_at(x, r->base, twice ? 2 * T - odd : T, 2 * old.d[1], 2 * old.d[2], old.d[3]);
    for (int64_t t = T - 1; t >= 0; t--) {
        size_t    mark = xd_arena_mark(x->tmp);
        int64_t   to = twice && t ? 2 * t - odd : t;
        xd_tensor out = xd_rows(r->h, to, 1);
        xd_band_enlarge(x, out, xd_rows(old, t, 1), level->up, none);
        if (twice && (t || !odd))
            xd_copy_to(x, xd_rows(r->h, to + 1, 1), out);
        xd_arena_rewind(x->tmp, mark);
    }
}

/* Returns the mean of two frames in f32. */
static xd_tensor mean_of(xd_exec *x, xd_tensor two)
{
    int64_t   n = xd_count(two) / 2, d[4] = { 1, two.d[1], two.d[2], two.d[3] };
    xd_tensor m = xd_new_as(x, XD_F32, 4, d), b = xd_as(x, xd_rows(two, 1, 1), XD_F32);
    xd_copy_to(x, m, xd_rows(two, 0, 1));
    xd_axpby(x, xd_reshape(m, 1, &n), 0.5f, xd_reshape(b, 1, &n), 0.5f);
    return m;
}

/* Halves the rows and columns of the map h. If `time` is set, first averages pairs of frames; if
 * the number of frames is odd, the first frame stays single. */
static void run_downsample(run *r, const xd_cog_level *level, int time)
{
    xd_exec  *x = r->x;
    xd_tensor old = r->h;
    int64_t   T = old.d[0], half = time && T > 1, odd = half && T % 2, n = half ? (T + 1) / 2 : T;
    int64_t   d[4] = { n, old.d[1] / 2, old.d[2] / 2, old.d[3] };
    xd_tensor to = xd_view(old.p, old.type, 4, d);
    for (int64_t t = 0; t < n; t++) {
        size_t    mark = xd_arena_mark(x->tmp);
        xd_tensor in = half && (t || !odd) ? mean_of(x, xd_rows(old, 2 * t - odd, 2))
                                           : xd_rows(old, t, 1);
        xd_map_halve(x, xd_rows(to, t, 1), in, &level->down);
        xd_arena_rewind(x->tmp, mark);
    }
    r->h = xd_map_at(x, r->base, n, d[1], d[2], d[3]);
}

static void run_levels(run *r)
{
    int last = xd_cog_levels(r->c) - 1;
    for (int l = 0; l <= last; l++) {
        const xd_cog_level *w = &r->w->level[l];
        for (int i = 0; i < xd_cog_residuals(r->c, r->dec); i++)
            run_residual(r, &w->res[i]);
        if (l < last)
            (r->dec ? run_upsample : run_downsample)(r, w, l < r->c->halvings);
    }
}

/* ---- batches ------------------------------------------------------------------------------- */

static void begin_batch(run *r, xd_tensor in)
{
    feed f = plain_feed(in);
    r->base = xd_arena_mark(r->x->tmp);
    r->at = 0;
    r->h = xd_map_at(r->x, r->base, in.d[0], in.d[1], in.d[2], r->w->in.w.out);
    causal_conv(r, r->h, &f, &r->w->in, none);
}

static void decode_batch(run *r, xd_tensor lat, xd_tensor rgb, const xd_lin *before)
{
    xd_exec *x = r->x;
    size_t   mark = xd_arena_mark(x->tmp);
    r->z = lat;
    if (before) {
        r->z = xd_new_as(x, XD_F32, 4, lat.d);
        xd_linear_into(x, xd_map_rows(r->z), xd_map_rows(lat), before);
    }
    begin_batch(r, r->z);
    run_middle(r);
    run_levels(r);
    feed f = norm_feed(r, r->h, &r->w->norm);
    causal_conv(r, rgb, &f, &r->w->out, none);
    xd_arena_rewind(x->tmp, mark);
}

static void encode_batch(run *r, xd_tensor rgb, xd_tensor moments, const xd_lin *after)
{
    xd_exec *x = r->x;
    size_t   mark = xd_arena_mark(x->tmp);
    begin_batch(r, rgb);
    run_levels(r);
    run_middle(r);
    feed      f = norm_feed(r, r->h, &r->w->norm);
    xd_tensor m = after ? xd_new_as(x, XD_F32, 4, moments.d) : moments;
    causal_conv(r, m, &f, &r->w->out, none);
    if (after)
        xd_linear_into(x, xd_map_rows(moments), xd_map_rows(m), after);
    xd_arena_rewind(x->tmp, mark);
}

void xd_cog_decode(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb)
{
    const xd_cog_cfg  *c = n->cfg;
    const xd_cog_glob *g = n->glob;
    const xd_vae_info  v = { .cell = { 1 << c->halvings, 1 << (xd_cog_levels(c) - 1) } };
    size_t             mark = xd_arena_mark(x->tmp);
    int64_t            T = lat.d[0], done = 0;
    run                r = { .x = x, .c = c, .w = &g->dec, .dec = 1, .first = 1 };
    if (!xd_map_video_fits(x, rgb, lat, v.cell[1], c->latent_channels, T) ||
        !xd_map_frames_fit(x, rgb.d[0], xd_vae_frames(&v, T)))
        return;
    if (T >= 2 * LATENTS)
        open_caches(&r, lat.d[1], lat.d[2]);
    for (int64_t t = 0, k; t < T; t += k, r.first = 0) {
        k = t ? LATENTS : xd_min(T, LATENTS + T % LATENTS);
        int64_t frames = xd_vae_frames(&v, k);
        if (t)
            xd_pause(x);
        decode_batch(&r, xd_rows(lat, t, k), xd_rows(rgb, done, frames),
                     c->post_quant ? &g->post_quant : NULL);
        done += frames;
    }
    xd_arena_rewind(x->tmp, mark);
}

void xd_cog_encode(xd_exec *x, const xd_net *n, xd_tensor rgb, xd_tensor moments)
{
    const xd_cog_cfg  *c = n->cfg;
    const xd_cog_glob *g = n->glob;
    const xd_vae_info  v = { .cell = { 1 << c->halvings, 1 << (xd_cog_levels(c) - 1) } };
    size_t             mark = xd_arena_mark(x->tmp);
    int64_t            T = rgb.d[0], done = 0;
    run                r = { .x = x, .c = c, .w = &g->enc, .first = 1 };
    if (!xd_map_video_fits(x, rgb, moments, v.cell[1], 2 * c->latent_channels, moments.d[0]) ||
        !xd_map_frames_fit(x, moments.d[0], xd_vae_latents(&v, T)))
        return;
    if (T >= 2 * SAMPLES)
        open_caches(&r, rgb.d[1], rgb.d[2]);
    for (int64_t t = 0, k; t < T; t += k, r.first = 0) {
        k = t ? SAMPLES : xd_min(T, SAMPLES + T % SAMPLES);
        int64_t frames = xd_vae_latents(&v, k);
        if (t)
            xd_pause(x);
        encode_batch(&r, xd_rows(rgb, t, k), xd_rows(moments, done, frames),
                     c->quant ? &g->quant : NULL);
        done += frames;
    }
    xd_arena_rewind(x->tmp, mark);
}
