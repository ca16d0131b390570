/* hunyuanvideo_run.c - encodes videos to latents, and decodes latents to videos, with
 * AutoencoderKLHunyuanVideo.
 *
 * A group norm covers all frames of a video, so diffusers computes long videos in tiles of 17
 * frames, which overlap by four frames and are blended there. The tiles are part of the result.
 * Within a tile, convolutions and attention read only the current and earlier frames.
 *
 * A convolution reads copies of the outermost pixels in place of pixels outside the video. The
 * padded input of a convolution is made a few frames at a time, from the normalized or upsampled
 * map and the rows of neighbouring ranks. In the arena, the current feature map `h` comes first;
 * besides h, only one other map and these frames exist at the same time. */
#include "base/minmax.h"
#include "exec/op.h"
#include "vae/edges.h"
#include "vae/hunyuanvideo.h"
#include "vae/maps.h"
#include "vae/vae.h"

enum {
    /* The frames of a tile besides its first frame, and the distance of tiles in frames
     * (tile_sample_min_num_frames, tile_sample_stride_num_frames). */
    TILE = 16,
    STEP = 12,
    SHARED = TILE - STEP
};

static const float EPS = 1e-6f;

typedef struct run {
    xd_exec           *x;
    const xd_hyv_cfg  *c;
    const xd_hyv_half *w;
    int                dec;
    size_t             base; /* position of the map h in the arena (a mark) */
    xd_tensor          h;    /* [T,H,W,C] at `base`: the current map */
} run;

static const xd_tensor none;

/* ---- convolutions -------------------------------------------------------------------------- */

typedef struct feed { /* input of a convolution */
    xd_tensor          in;
    const xd_hyv_norm *norm; /* group norm, followed by SiLU; NULL: none */
    xd_gsum            sum;
    /* 1: rows and columns (wide) or all frames except the first (time) are repeated twice. */
    int                wide, time;
} feed;

/* Strides of a convolution along frames (time), and along rows and columns (wide). */
typedef struct stride { int time, wide; } stride;

static const stride one = { 1, 1 };

static feed norm_feed(run *r, xd_tensor in, const xd_hyv_norm *w)
{
    return (feed){ .in = in, .norm = w, .sum = xd_group_sums(r->x, in, (int)r->c->groups) };
}

static void group_norm(xd_exec *x, xd_tensor to, xd_tensor from, const xd_gsum *sum,
                       const xd_hyv_norm *w, int silu)
{
    xd_group_apply_into(
        x, sum,
        &(xd_gnorm){
            .out = to, .in = from, .gain = w->gain, .bias = w->bias, .eps = EPS, .silu = silu });
}

static void read_normalized(xd_exec *x, const void *reader, xd_tensor to, xd_tensor from)
{
    const feed *f = reader;
    group_norm(x, to, from, &f->sum, f->norm, 1);
}

/* Computes out = conv(f) + plus, where plus may be the tensor `out`. */
static void convolve(run *r, xd_tensor out, const feed *f, const xd_cnv *w, stride by,
                     xd_tensor plus)
{
    xd_edges e = { .in = f->in,
                   .read = f->norm ? read_normalized : NULL,
                   .reader = f,
                   .wide = f->wide,
                   .time = f->time,
                   .stride_time = by.time,
                   .stride_wide = by.wide };
    xd_edges_conv(r->x, out, &e, w, plus);
}

/* ---- blocks -------------------------------------------------------------------------------- */

/* Runs a residual block: h = shortcut(h) + conv2(silu(norm2(conv1(silu(norm1(h)))))) */
static void run_residual(run *r, const xd_hyv_res *w)
{
    xd_exec  *x = r->x;
    xd_tensor h = r->h;
    int64_t   in = w->conv1.w.in, out = w->conv1.w.out, *d = h.d;
    if (out > in)
        r->h = xd_map_at(x, r->base, d[0], d[1], d[2], out);
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor a = xd_map(x, d[0], d[1], d[2], out);
    size_t    above = xd_arena_mark(x->tmp);
    feed      f = norm_feed(r, h, &w->norm1);
    convolve(r, a, &f, &w->conv1, one, none);
    xd_arena_rewind(x->tmp, above);
    if (in != out)
        h = xd_map_reshape(x, h, &w->shortcut);
    f = norm_feed(r, a, &w->norm2);
    convolve(r, h, &f, &w->conv2, one, h);
    if (in != out)
        r->h = xd_map_at(x, r->base, d[0], d[1], d[2], out);
    else
        xd_arena_rewind(x->tmp, mark);
}

/* Computes h += proj(attention(norm(h))). The attention has one head, which is as wide as the map.
 * The positions of a frame attend to all positions of this frame and of the earlier frames. */
static void attend(run *r)
{
    xd_exec  *x = r->x;
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor h = r->h;
    int64_t   T = h.d[0], C = h.d[3], n = h.d[1] * h.d[2];
    xd_tensor q = xd_new(x, T * n, C), kv = xd_map(x, T, h.d[1], h.d[2], 2 * C);
    size_t    above = xd_arena_mark(x->tmp);
    xd_tensor y = xd_map(x, T, h.d[1], h.d[2], C);
    xd_gsum   sum = xd_group_sums(x, h, (int)r->c->groups);
    group_norm(x, y, h, &sum, &r->w->attn_norm, 0);
    xd_linear_into(x, q, xd_map_rows(y), &r->w->q);
    xd_linear_into(x, xd_map_rows(kv), xd_map_rows(y), &r->w->kv);
    xd_arena_rewind(x->tmp, above);
    xd_edges_attend(x, h, q, kv, &r->w->proj);
    xd_arena_rewind(x->tmp, mark);
}

static void run_middle(run *r)
{
    run_residual(r, &r->w->mid[0]);
    if (r->c->attention)
        attend(r);
    run_residual(r, &r->w->mid[1]);
}

/* Repeats rows, columns (wide) and frames (time), then applies a convolution. The old map is copied
 * behind the new one, which overwrites it. */
static void run_upsample(run *r, const xd_cnv *w, int wide, int time)
{
    xd_exec  *x = r->x;
    xd_tensor old = r->h;
    int64_t   T = time ? 2 * old.d[0] - 1 : old.d[0];
    r->h = xd_map_at(x, r->base, T, old.d[1] << wide, old.d[2] << wide, old.d[3]);
    size_t mark = xd_arena_mark(x->tmp);
    feed   f = { .wide = wide, .time = time };
    f.in = xd_map(x, old.d[0], old.d[1], old.d[2], old.d[3]);
    xd_copy_to(x, f.in, old);
    convolve(r, r->h, &f, w, one, none);
    xd_arena_rewind(x->tmp, mark);
}

/* Halves rows, columns (wide) and frames (time) by the stride of a convolution. The first frame
 * stays alone. */
static void run_downsample(run *r, const xd_cnv *w, int wide, int time)
{
    xd_tensor old = r->h;
    int64_t   d[4] = { time ? (old.d[0] + 1) / 2 : old.d[0], old.d[1] >> wide, old.d[2] >> wide,
                       old.d[3] };
    feed      f = { .in = old };
    convolve(r, xd_view(old.p, old.type, 4, d), &f, w, (stride){ 1 + time, 1 + wide }, none);
    r->h = xd_map_at(r->x, r->base, d[0], d[1], d[2], d[3]);
}

static void run_levels(run *r)
{
    for (int l = 0; l < xd_hyv_levels(r->c); l++) {
        const xd_hyv_level *w = &r->w->level[l];
        int                 wide = xd_hyv_rows(r->c, l), time = xd_hyv_time(r->c, l);
        for (int i = 0; i < xd_hyv_residuals(r->c, r->dec); i++)
            run_residual(r, &w->res[i]);
        if (wide || time)
            (r->dec ? run_upsample : run_downsample)(r, &w->resample, wide, time);
    }
}

/* ---- tiles over frames --------------------------------------------------------------------- */

/* Computes `out` from `in` with all layers of the encoder or the decoder. */
static void run_layers(run *r, xd_tensor in, xd_tensor out)
{
    xd_exec *x = r->x;
    size_t   mark = xd_arena_mark(x->tmp);
    feed     f = { .in = in };
    r->base = mark;
    r->h = xd_map_at(x, r->base, in.d[0], in.d[1], in.d[2], r->w->in.w.out);
    convolve(r, r->h, &f, &r->w->in, one, none);
    if (r->dec)
        run_middle(r);
    run_levels(r);
    if (!r->dec)
        run_middle(r);
    f = norm_feed(r, r->h, &r->w->norm);
    convolve(r, out, &f, &r->w->out, one, none);
    xd_arena_rewind(x->tmp, mark);
}

static void decode_tile(run *r, xd_tensor lat, xd_tensor rgb, const xd_lin *before)
{
    size_t    mark = xd_arena_mark(r->x->tmp);
    xd_tensor z = xd_new_as(r->x, XD_F32, 4, lat.d);
    xd_linear_into(r->x, xd_map_rows(z), xd_map_rows(lat), before);
    run_layers(r, z, rgb);
    xd_arena_rewind(r->x->tmp, mark);
}

static void encode_tile(run *r, xd_tensor rgb, xd_tensor moments, const xd_lin *after)
{
    size_t    mark = xd_arena_mark(r->x->tmp);
    xd_tensor m = xd_new_as(r->x, XD_F32, 4, moments.d);
    run_layers(r, rgb, m);
    xd_linear_into(r->x, xd_map_rows(moments), xd_map_rows(m), after);
    xd_arena_rewind(r->x->tmp, mark);
}

/* Puts the frames of a tile, except its first one, behind the first frame of `rgb`. The frames that
 * this tile shares with the tile before are blended: the k-th frame is a (1 - k / SHARED) + b k /
 * SHARED. */
static void blend_frames(run *r, xd_tensor rgb, xd_tensor tile)
{
    int64_t n = xd_count(tile) / tile.d[0];
    for (int64_t k = 0; k < tile.d[0] - 1; k++) {
        xd_tensor to = xd_rows(rgb, 1 + k, 1), from = xd_rows(tile, 1 + k, 1);
        float     part = k < SHARED ? (float)k / SHARED : 1;
        xd_axpby(r->x, xd_reshape(to, 1, &n), part, xd_reshape(from, 1, &n), 1 - part);
    }
}

void xd_hyv_decode(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb)
{
    const xd_hyv_cfg  *c = n->cfg;
    const xd_hyv_glob *g = n->glob;
    int64_t            T = lat.d[0], most = TILE / XD_HYV_RATIO, step = STEP / XD_HYV_RATIO;
    run                r = { .x = x, .c = c, .w = &g->dec, .dec = 1 };
    if (!xd_map_video_fits(x, rgb, lat, c->cell, c->latent_channels, T) ||
        !xd_map_frames_fit(x, rgb.d[0], (T - 1) * XD_HYV_RATIO + 1))
        return;
    if (T <= most) {
        decode_tile(&r, lat, rgb, &g->post_quant);
        return;
    }
    for (int64_t t = 0; t < T - 1; t += step) { /* the last frame needs no tile of its own */
        size_t    mark = xd_arena_mark(x->tmp);
        int64_t   k = xd_min(most + 1, T - t), frames = (k - 1) * XD_HYV_RATIO + 1;
        xd_tensor to = xd_rows(rgb, t * XD_HYV_RATIO, frames), tile = to;
        if (t)
            xd_pause(x);
        if (t)
            tile = xd_new_as(x, XD_F32, 4, to.d);
        decode_tile(&r, xd_rows(lat, t, k), tile, &g->post_quant);
        if (t)
            blend_frames(&r, to, tile);
        xd_arena_rewind(x->tmp, mark);
    }
}

/* Encodes. Neighbouring tiles share one latent frame, in which diffusers' blend leaves only the
 * earlier tile. */
void xd_hyv_encode(xd_exec *x, const xd_net *n, xd_tensor rgb, xd_tensor moments)
{
    const xd_hyv_cfg  *c = n->cfg;
    const xd_hyv_glob *g = n->glob;
    int64_t            T = rgb.d[0], C = 2 * c->latent_channels;
    run                r = { .x = x, .c = c, .w = &g->enc };
    if (!xd_map_video_fits(x, rgb, moments, c->cell, C, (T - 1) / XD_HYV_RATIO + 1))
        return;
    if (T <= TILE) {
        encode_tile(&r, rgb, moments, &g->quant);
        return;
    }
    for (int64_t t = 0; t < T; t += STEP) {
        size_t  mark = xd_arena_mark(x->tmp);
        int64_t k = xd_min(TILE + 1, T - t), all = (k - 1) / XD_HYV_RATIO + 1, old = t ? 2 : 0;
        if (all <= old)
            continue;
        if (t)
            xd_pause(x);
        xd_tensor m = xd_new_as(x, XD_F32, 4, (int64_t[]){ all, moments.d[1], moments.d[2], C });
        encode_tile(&r, xd_rows(rgb, t, k), m, &g->quant);
        xd_copy_to(x, xd_rows(moments, t / XD_HYV_RATIO + old, all - old),
                   xd_rows(m, old, all - old));
        xd_arena_rewind(x->tmp, mark);
    }
}
