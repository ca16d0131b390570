/* hunyuanvideo_15_run.c - encodes videos to latents, and decodes latents to videos, with
 * AutoencoderKLHunyuanVideo15.
 *
 * All norms are per position, and convolutions and attention read only the current and earlier
 * frames. Resampling moves positions to channels and back: 2 x 2 positions of one or two frames at
 * the finer level are one position at the coarser level. The first frame of a video stays alone; it
 * has half of the channels for positions. Beside each resampling convolution there is a shortcut,
 * which repeats channels (decoder) or is their mean in groups (encoder).
 *
 * In the arena, the current feature map `h` comes first. */
#include <string.h>

#include "exec/op.h"
#include "vae/bands.h"
#include "vae/edges.h"
#include "vae/hunyuanvideo.h"
#include "vae/maps.h"
#include "vae/vae.h"

/* Epsilon of the RMS norms. diffusers divides a vector by its length, or by 1e-12 if the length is
 * smaller. */
static const float EPS = 1e-24f;

typedef struct run {
    xd_exec            *x;
    const xd_hy15_cfg  *c;
    const xd_hy15_half *w;
    int                 dec;
    size_t              base; /* position of the map h in the arena (a mark) */
    xd_tensor           h;    /* [T,H,W,C] at `base`: the current map */
} run;

static const xd_tensor none;

/* ---- convolutions and blocks --------------------------------------------------------------- */

static void read_normalized(xd_exec *x, const void *gain, xd_tensor to, xd_tensor from)
{
    xd_band_rms(x, to, from, *(const xd_tensor *)gain, EPS);
}

/* Computes out = conv(silu(norm(in))) + plus, where plus may be the tensor `out`. If `gain` is
 * NULL, computes out = conv(in) + plus. */
static void convolve(run *r, xd_tensor out, xd_tensor in, const xd_tensor *gain, const xd_cnv *w,
                     xd_tensor plus)
{
    xd_edges e = { .in = in, .read = gain ? read_normalized : NULL, .reader = gain };
    xd_edges_conv(r->x, out, &e, w, plus);
}

/* Runs a residual block: h = h + conv2(silu(norm2(conv1(silu(norm1(h)))))) */
static void run_residual(run *r, const xd_hy15_res *w)
{
    size_t    mark = xd_arena_mark(r->x->tmp);
    int64_t  *d = r->h.d;
    xd_tensor a = xd_map(r->x, d[0], d[1], d[2], d[3]);
    convolve(r, a, r->h, &w->gain1, &w->conv1, none);
    convolve(r, r->h, a, &w->gain2, &w->conv2, r->h);
    xd_arena_rewind(r->x->tmp, mark);
}

static void attend(run *r)
{
    xd_exec  *x = r->x;
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor h = r->h;
    int64_t   T = h.d[0], C = h.d[3];
    xd_tensor q = xd_new(x, T * h.d[1] * h.d[2], C), kv = xd_map(x, T, h.d[1], h.d[2], 2 * C);
    size_t    above = xd_arena_mark(x->tmp);
    xd_tensor y = xd_rms_norm(x, xd_map_rows(h), xd_reshape(r->w->attn_gain, 1, &C), EPS);
    xd_linear_into(x, q, y, &r->w->q);
    xd_linear_into(x, xd_cols(xd_map_rows(kv), 0, C), y, &r->w->k);
    xd_linear_into(x, xd_cols(xd_map_rows(kv), C, C), y, &r->w->v);
    xd_arena_rewind(x->tmp, above);
    xd_edges_attend(x, h, q, kv, &r->w->proj);
    xd_arena_rewind(x->tmp, mark);
}

static void run_middle(run *r)
{
    run_residual(r, &r->w->mid[0]);
    attend(r);
    run_residual(r, &r->w->mid[1]);
}

/* ---- positions as channels ------------------------------------------------------------------ */

/* Returns a view of a frame [1,H,W,C]: every second row and column, beginning with row yx / 2 and
 * column yx % 2. */
static xd_tensor quarter(xd_tensor t, int yx)
{
    if (t.p)
        t.p = (char *)t.p + (yx / 2 * t.s[1] + yx % 2 * t.s[2]) * (int64_t)xd_dtype_size(t.type);
    t.d[1] /= 2, t.d[2] /= 2;
    t.s[1] *= 2, t.s[2] *= 2;
    return t;
}

/* Returns a view of the channels [at, at + n) of a frame [1,H,W,C]. */
static xd_tensor channels(xd_tensor t, int64_t at, int64_t n)
{
    if (t.p)
        t.p = (char *)t.p + at * t.s[3] * (int64_t)xd_dtype_size(t.type);
    t.d[3] = n;
    return t;
}

/* Returns a view of a frame's rows [n,C] as [n,parts,groups,same], with the strides of the last
 * three extents in `s`. */
static xd_tensor grouped(xd_tensor frame, const int64_t d[3], const int64_t s[3])
{
    xd_tensor t = xd_map_rows(frame);
    t.nd = 4;
    for (int i = 0; i < 3; i++)
        t.d[1 + i] = d[i], t.s[1 + i] = s[i];
    return t;
}

/* Writes the mean over groups of n neighbouring channels of a map [T,H,W,C] to `to`
 * [T,H,W,C/n]. */
static void mean_channels(xd_exec *x, xd_tensor to, xd_tensor in, int64_t n)
{
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor from = xd_map_rows(in), out = xd_map_rows(to);
    int64_t   all = xd_count(out);
    xd_tensor sum = xd_new_f32(x, out.d[0], out.d[1]), one = xd_new_f32(x, out.d[0], out.d[1]);
    from.d[1] /= n, from.s[1] *= n;
    for (int64_t i = 0; i < n; i++) {
        xd_tensor part = from;
        if (part.p)
            part.p = (char *)part.p + i * (int64_t)xd_dtype_size(part.type);
        xd_copy_to(x, one, part);
        xd_axpby(x, xd_reshape(sum, 1, &all), 1 / (float)n, xd_reshape(one, 1, &all), i > 0);
    }
    xd_copy_to(x, out, sum);
    xd_arena_rewind(x->tmp, mark);
}

typedef struct shuffle { /* a resampling in progress */
    xd_tensor in, out;
    int       time;
} shuffle;

/* ---- finer levels --------------------------------------------------------------------------- */

/* Writes the decoder's shortcut of frame t: each channel of the input repeated. Of the first frame
 * only the first half of each quarter's channels is read later. */
static void before_upsample(xd_exec *x, void *sink, int64_t t, xd_tensor frame)
{
    const shuffle *s = sink;
    int64_t        C = s->in.d[3], c = s->out.d[3], rep = frame.d[3] / C, half = rep / 2;
    xd_tensor      in = xd_rows(s->in, t, 1);
    if (s->time && !t)
        xd_copy_to(x, grouped(frame, (int64_t[]){ 4, C / 4, half }, (int64_t[]){ 2 * c, half, 1 }),
                   grouped(in, (int64_t[]){ 4, C / 4, half }, (int64_t[]){ C / 4, 1, 0 }));
    else
        xd_copy_to(x, grouped(frame, (int64_t[]){ 1, C, rep }, (int64_t[]){ 0, rep, 1 }),
                   grouped(in, (int64_t[]){ 1, C, rep }, (int64_t[]){ 0, 1, 0 }));
}

/* Moves the channels of frame t to positions of one or two frames. */
static void after_upsample(xd_exec *x, void *sink, int64_t t, xd_tensor frame)
{
    const shuffle *s = sink;
    int64_t        c = s->out.d[3], first = s->time && t ? 2 * t - 1 : t;
    int            n = s->time && t ? 8 : 4;
    for (int i = 0; i < n; i++)
        xd_copy_to(x, quarter(xd_rows(s->out, first + i / 4, 1), i % 4),
                   channels(frame, s->time && !t ? 2 * i * c : i * c, c));
}

/* Doubles rows, columns and, if `time` is set, frames. The old map is copied behind the new one,
 * which overwrites it. */
static void run_upsample(run *r, const xd_cnv *w, int time)
{
    xd_exec  *x = r->x;
    xd_tensor old = r->h;
    int64_t   T = old.d[0], *d = old.d;
    r->h =
        xd_map_at(x, r->base, time ? 2 * T - 1 : T, 2 * d[1], 2 * d[2], w->w.out / (time ? 8 : 4));
    size_t  mark = xd_arena_mark(x->tmp);
    shuffle s = { xd_map(x, T, d[1], d[2], d[3]), r->h, time };
    xd_copy_to(x, s.in, old);
    xd_edges_conv_to(x, &(xd_edges_sink){ before_upsample, after_upsample, &s },
                     &(xd_edges){ .in = s.in }, w);
    xd_arena_rewind(x->tmp, mark);
}

/* ---- coarser levels ------------------------------------------------------------------------- */

/* Writes the encoder's shortcut of frame t: means of groups of channels. The first frame, whose
 * groups are smaller, gets its shortcut in after_downsample. */
static void before_downsample(xd_exec *x, void *sink, int64_t t, xd_tensor frame)
{
    static const float nothing = 0;
    const shuffle     *s = sink;
    size_t             mark = xd_arena_mark(x->tmp);
    if (s->time && !t) {
        xd_tensor zero = xd_new_as(x, XD_F32, 4, (int64_t[]){ 1, 1, 1, 1 });
        xd_put(x, zero, &nothing);
        for (int i = 0; i < 4; i++)
            zero.d[i] = frame.d[i], zero.s[i] = 0;
        xd_copy_to(x, frame, zero);
    } else {
        mean_channels(x, frame, xd_rows(s->in, t, 1), s->in.d[3] / frame.d[3]);
    }
    xd_arena_rewind(x->tmp, mark);
}

/* Writes the first frame: its channels twice, plus the means of its input's channels. */
static void first_downsample(xd_exec *x, const shuffle *s, xd_tensor frame)
{
    size_t  mark = xd_arena_mark(x->tmp);
    int64_t q = frame.d[3], d[4];
    memcpy(d, s->out.d, sizeof d);
    xd_tensor out = xd_map(x, 1, d[1], d[2], d[3]), sum = xd_map(x, 1, d[1], d[2], d[3]);
    xd_tensor mean = xd_map(x, 1, frame.d[1], frame.d[2], 2 * q);
    mean_channels(x, mean, xd_rows(s->in, 0, 1), s->in.d[3] / (2 * q));
    for (int i = 0; i < 8; i++)
        xd_copy_to(x, channels(out, i * q, q), quarter(frame, i % 4));
    for (int i = 0; i < 4; i++)
        xd_copy_to(x, channels(sum, 2 * i * q, 2 * q), quarter(mean, i));
    xd_add(x, xd_map_rows(out), xd_map_rows(sum));
    xd_copy_to(x, xd_rows(s->out, 0, 1), out);
    xd_arena_rewind(x->tmp, mark);
}

/* Moves the positions of frame t to channels. */
static void after_downsample(xd_exec *x, void *sink, int64_t t, xd_tensor frame)
{
    const shuffle *s = sink;
    int64_t        q = frame.d[3], at = s->time ? (t + 1) / 2 : t, second = s->time && t % 2 == 0;
    if (s->time && !t) {
        first_downsample(x, s, frame);
        return;
    }
    for (int i = 0; i < 4; i++)
        xd_copy_to(x, channels(xd_rows(s->out, at, 1), (4 * second + i) * q, q), quarter(frame, i));
}

/* Halves rows, columns and, if `time` is set, frames. The new map overwrites the old map, of which
 * a frame is read before the frames of the new map that overwrite it are written. */
static void run_downsample(run *r, const xd_cnv *w, int time)
{
    xd_exec  *x = r->x;
    xd_tensor old = r->h;
    int64_t   T = old.d[0];
    int64_t   d[4] = { time ? (T + 1) / 2 : T, old.d[1] / 2, old.d[2] / 2,
                       w->w.out * (time ? 8 : 4) };
    shuffle   s = { old, xd_view(old.p, old.type, 4, d), time };
    xd_edges_conv_to(x, &(xd_edges_sink){ before_downsample, after_downsample, &s },
                     &(xd_edges){ .in = old }, w);
    r->h = xd_map_at(x, r->base, d[0], d[1], d[2], d[3]);
}

static void run_levels(run *r)
{
    for (int l = 0; l < r->c->widths.n; l++) {
        const xd_hy15_level *w = &r->w->level[l];
        int                  time = xd_hy15_time(r->c, r->dec, l);
        for (int i = 0; i < xd_hy15_residuals(r->c, r->dec); i++)
            run_residual(r, &w->res[i]);
        if (xd_hy15_rows(r->c, l))
            (r->dec ? run_upsample : run_downsample)(r, &w->resample, time);
    }
}

/* ---- the whole network ---------------------------------------------------------------------- */

void xd_hy15_decode(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb)
{
    const xd_hy15_cfg  *c = n->cfg;
    const xd_hy15_glob *g = n->glob;
    int64_t             T = lat.d[0], z = c->latent_channels, rep = g->dec.in.w.out / z;
    run                 r = { .x = x, .c = c, .w = &g->dec, .dec = 1 };
    if (!xd_map_video_fits(x, rgb, lat, c->cell, z, T) ||
        !xd_map_frames_fit(x, rgb.d[0], (T - 1) * c->ratio + 1))
        return;
    size_t mark = r.base = xd_arena_mark(x->tmp);
    r.h = xd_map_at(x, r.base, T, lat.d[1], lat.d[2], z * rep);
    xd_copy_to(x, grouped(r.h, (int64_t[]){ 1, z, rep }, (int64_t[]){ 0, rep, 1 }),
               grouped(lat, (int64_t[]){ 1, z, rep }, (int64_t[]){ 0, 1, 0 }));
    convolve(&r, r.h, lat, NULL, &r.w->in, r.h);
    run_middle(&r);
    run_levels(&r);
    convolve(&r, rgb, r.h, &r.w->gain, &r.w->out, none);
    xd_arena_rewind(x->tmp, mark);
}

void xd_hy15_encode(xd_exec *x, const xd_net *n, xd_tensor rgb, xd_tensor moments)
{
    const xd_hy15_cfg  *c = n->cfg;
    const xd_hy15_glob *g = n->glob;
    int64_t             t = (rgb.d[0] - 1) / c->ratio, C = 2 * c->latent_channels;
    run                 r = { .x = x, .c = c, .w = &g->enc };
    if (!xd_map_video_fits(x, rgb, moments, c->cell, C, t + 1))
        return;
    size_t    mark = r.base = xd_arena_mark(x->tmp);
    xd_tensor in = xd_rows(rgb, 0, t * c->ratio + 1);
    r.h = xd_map_at(x, r.base, in.d[0], in.d[1], in.d[2], r.w->in.w.out);
    convolve(&r, r.h, in, NULL, &r.w->in, none);
    run_levels(&r);
    run_middle(&r);
    mean_channels(x, moments, r.h, r.h.d[3] / C);
    convolve(&r, moments, r.h, &r.w->gain, &r.w->out, moments);
    xd_arena_rewind(x->tmp, mark);
}
