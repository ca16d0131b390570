/* causal_run.c - encodes videos to latents, and decodes latents to videos, with the causal video
 * autoencoder.
 *
 * Frames are computed in chunks: the first frame alone, then one latent frame at a time. A
 * convolution over frames keeps its last input frames for the next chunk; in place of frames before
 * the first one, the convolution reads zeros. All norms are per position, so the division into
 * chunks and bands of rows does not change the result.
 *
 * In the arena, the frames that convolutions keep come first. The current feature map `h` follows
 * them, as the first memory of a chunk. The input of a convolution is normalized when it is read: a
 * few frames at a time, or a few rows of an image (bands.h). Besides h, only one other map and the
 * normalized frames or rows exist at the same time. */
#include <math.h>

#include "base/minmax.h"
#include "exec/op.h"
#include "vae/bands.h"
#include "vae/causal.h"
#include "vae/maps.h"
#include "vae/scale_rows.h"

enum { MAX_CACHES = 2 + 2 * XD_CAUSAL_MID + XD_CAUSAL_LEVELS * (2 * XD_CAUSAL_RES + 1) };

/* Epsilon of the RMS norms. diffusers divides a vector by its length, or by 1e-12 if the length is
 * less; the epsilon is the square of 1e-12. */
static const float EPS = 1e-24f;

typedef struct kept {
    xd_tensor t;
    int64_t   n;
} kept; /* XD_PAST frames; the last n are valid */

typedef struct run {
    xd_exec              *x;
    const xd_causal_cfg  *c;
    const xd_causal_half *w;
    int                   dec;
    size_t                base; /* position of the map h in the arena (a mark) */
    xd_tensor             h;    /* [T,H,W,C] at `base`: the current map */
    /* For each convolution over frames, the frames that it keeps. */
    kept                  cache[MAX_CACHES];
    /* Number of convolutions in `cache`; 0 if there is only one chunk. */
    int                   ncache;
    int                   at;    /* index in `cache` of the convolution that runs next */
    int                   first; /* 1: this chunk is the first frame alone */
} run;

static const xd_tensor none;

/* ---- kept frames ------------------------------------------------------------------ */

static void keep_for(run *r, int64_t H, int64_t W, const xd_cnv *w)
{
    r->cache[r->ncache++] = (kept){ xd_map_as(r->x, w->w.type, XD_PAST, H, W, w->w.in), 0 };
}

static void keep_res(run *r, int64_t H, int64_t W, const xd_causal_res *w)
{
    keep_for(r, H, W, &w->conv1);
    keep_for(r, H, W, &w->conv2);
}

static void keep_mid(run *r, int64_t H, int64_t W)
{
    for (int i = 0; i < XD_CAUSAL_MID; i++)
        keep_res(r, H, W, &r->w->mid[i]);
}

/* For all convolutions over frames, in execution order, allocates the frames that the convolution
 * keeps. `H` and `W` are the height and width of the input frames. */
static void open_caches(run *r, int64_t H, int64_t W)
{
    int last = xd_causal_levels(r->c) - 1;
    keep_for(r, H, W, &r->w->in);
    if (r->dec)
        keep_mid(r, H, W);
    for (int l = 0; l <= last; l++) {
        int time = xd_causal_time(r->c, r->dec, l);
        for (int i = 0; i < xd_causal_residuals(r->c, r->dec); i++)
            keep_res(r, H, W, &r->w->level[l].res[i]);
        if (time && r->dec)
            keep_for(r, H, W, &r->w->level[l].time);
        if (l < last)
            H = r->dec ? 2 * H : H / 2, W = r->dec ? 2 * W : W / 2;
        if (time && !r->dec)
            keep_for(r, H, W, &r->w->level[l].time);
    }
    if (!r->dec)
        keep_mid(r, H, W);
    keep_for(r, H, W, &r->w->out);
}

/* ---- convolutions -------------------------------------------------------------------------- */

/* Computes out = conv(in) + plus. `absent` frames of zeros are put before the frames of `in`. */
static void convolve(run *r, xd_tensor out, xd_tensor in, const xd_cnv *w, int64_t absent,
                     xd_tensor plus)
{
    const int *k = w->w.kernel;
    const int  lo[3] = { (int)absent, k[1] / 2, k[2] / 2 }, hi[3] = { 0, k[1] / 2, k[2] / 2 };
    xd_conv2d_into(r->x, out, in, w, &(xd_conv_options){ .lo = lo, .hi = hi, .residual = plus });
}

/* Copies frames. Unless `gain` is NULL, the copied frames are normalized by an RMS norm and
 * SiLU. */
static void read_frames(run *r, xd_tensor to, xd_tensor from, const xd_tensor *gain)
{
    if (gain)
        xd_band_rms(r->x, to, from, *gain, EPS);
    else
        xd_copy_to(r->x, to, from);
}

static void conv_frames(run *r, xd_tensor out, xd_tensor in, const xd_tensor *gain, const xd_cnv *w,
                        xd_tensor plus)
{
    xd_exec  *x = r->x;
    size_t    mark = xd_arena_mark(x->tmp);
    kept     *k = r->ncache ? &r->cache[r->at++] : NULL;
    int64_t   T = in.d[0], n = xd_map_frames(x, in), p = k ? k->n : 0;
    xd_tensor buf = xd_map_as(x, w->w.type, XD_PAST + n, in.d[1], in.d[2], in.d[3]);
    if (p)
        xd_map_keep(x, buf, k->t, p);
    for (int64_t t = 0; t < T; t += n) {
        int64_t m = xd_min(n, T - t), was = p;
        read_frames(r, xd_rows(buf, XD_PAST, m), xd_rows(in, t, m), gain);
        convolve(r, xd_rows(out, t, m), xd_rows(buf, XD_PAST - was, was + m), w, XD_PAST - was,
                 plus.p ? xd_rows(plus, t, m) : none);
        p = xd_min(XD_PAST, was + m);
        if (t + m < T)
            xd_map_keep(x, buf, xd_rows(buf, 0, XD_PAST + m), p);
        else if (k)
            xd_map_keep(x, k->t, xd_rows(buf, 0, XD_PAST + m), p);
    }
    if (k)
        k->n = p;
    xd_arena_rewind(x->tmp, mark);
}

/* Computes out = conv(silu(norm(in))) + plus, where plus may be the tensor `out`. If `gain` is
 * NULL, computes out = conv(in) + plus. */
static void conv(run *r, xd_tensor out, xd_tensor in, const xd_tensor *gain, const xd_cnv *w,
                 xd_tensor plus)
{
    if (w->w.kernel[0] > 1) {
        conv_frames(r, out, in, gain, w, plus);
        return;
    }
    xd_band_conv(
        r->x,
        &(xd_banded){
            .feed = { .in = in, .rms = gain != NULL, .gain = gain ? *gain : none, .eps = EPS },
            .w = w,
            .out = out,
            .plus = plus,
            .stride = 1,
            .lo = { 0, 1, 1 },
            .hi = { 0, 1, 1 } });
}

/* ---- blocks -------------------------------------------------------------------------------- */

/* Runs a residual block: h = shortcut(h) + conv2(silu(norm2(conv1(silu(norm1(h)))))) */
static void run_residual(run *r, const xd_causal_res *w)
{
    xd_tensor h = r->h;
    int64_t   in = w->conv1.w.in, out = w->conv1.w.out, *d = h.d;
    if (out > in)
        r->h = xd_map_at(r->x, r->base, d[0], d[1], d[2], out);
    size_t    mark = xd_arena_mark(r->x->tmp);
    xd_tensor a = xd_map(r->x, d[0], d[1], d[2], out);
    conv(r, a, h, &w->gain1, &w->conv1, none);
    if (in != out)
        h = xd_map_reshape(r->x, h, &w->shortcut);
    conv(r, h, a, &w->gain2, &w->conv2, h);
    if (in != out)
        r->h = xd_map_at(r->x, r->base, d[0], d[1], d[2], out);
    else
        xd_arena_rewind(r->x->tmp, mark);
}

/* Computes h += proj(attention(norm(h))) for one frame h. The attention has one head, which is as
 * wide as the map. */
static void attend(run *r, xd_tensor h)
{
    xd_exec  *x = r->x;
    size_t    mark = xd_arena_mark(x->tmp);
    int64_t   C = h.d[3];
    xd_tensor flat = xd_map_rows(h), qkv = xd_new(x, flat.d[0], 3 * C), q[3];
    size_t    above = xd_arena_mark(x->tmp);
    xd_tensor a = xd_rms_norm(x, flat, xd_reshape(r->w->attn_gain, 1, &C), EPS);
    xd_linear_into(x, qkv, a, &r->w->qkv);
    xd_arena_rewind(x->tmp, above);
    for (int i = 0; i < 3; i++)
        q[i] = xd_heads(xd_cols(qkv, i * C, C), C);
    xd_tensor o = xd_flat(xd_attn(x, q[0], q[1], q[2], 0));
    xd_linear_add(x, flat, none, o, &r->w->proj);
    xd_arena_rewind(x->tmp, mark);
}

static void run_middle(run *r)
{
    run_residual(r, &r->w->mid[0]);
    for (int64_t t = 0; t < r->h.d[0]; t++)
        attend(r, xd_rows(r->h, t, 1));
    run_residual(r, &r->w->mid[1]);
}

/* Doubles the frames. For each frame, a convolution over frames outputs twice as many channels;
 * each half of the channels is one of the two new frames. The very first frame of a video stays
 * single, and the convolution does not read it. */
static void double_frames(run *r, const xd_cnv *w)
{
    xd_tensor old = r->h;
    int64_t   T = old.d[0], H = old.d[1], W = old.d[2], C = old.d[3];
    if (r->first) {
        r->at += r->ncache > 0;
        return;
    }
    r->h = xd_map_at(r->x, r->base, 2 * T, H, W, C);
    size_t    mark = xd_arena_mark(r->x->tmp);
    xd_tensor two = xd_map(r->x, T, H, W, 2 * C);
    conv_frames(r, two, old, NULL, w, none);
    two = xd_permute(xd_reshape(two, 4, (int64_t[]){ T, H * W, 2, C }), (int[]){ 0, 2, 1, 3 });
    xd_copy_to(r->x, xd_reshape(r->h, 4, two.d), two);
    xd_arena_rewind(r->x->tmp, mark);
}

/* Halves the frames by a convolution over frames, which computes one frame from two frames and the
 * frame before them. The very first frame of a video stays single. */
static void halve_frames(run *r, const xd_cnv *w)
{
    xd_exec  *x = r->x;
    xd_tensor h = r->h;
    int64_t   T = h.d[0];
    kept     *k = r->ncache ? &r->cache[r->at++] : NULL;
    if (r->first) {
        if (k)
            xd_map_keep(x, k->t, h, 1);
        return;
    }
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor buf = xd_map(x, 1 + T, h.d[1], h.d[2], h.d[3]);
    xd_copy_to(x, xd_rows(buf, 0, 1), xd_rows(k->t, XD_PAST - 1, 1));
    xd_copy_to(x, xd_rows(buf, 1, T), h);
    for (int64_t i = 0; i < T / 2; i++)
        convolve(r, xd_rows(h, i, 1), xd_rows(buf, 2 * i, XD_PAST + 1), w, 0, none);
    xd_map_keep(x, k->t, buf, 1);
    xd_arena_rewind(x->tmp, mark);
    r->h = xd_map_at(x, r->base, T / 2, h.d[1], h.d[2], h.d[3]);
}

/* Doubles the rows and columns of the map h and, if `time` is set, its frames. The frames are
 * computed from the last to the first, because the new map overlaps the old map in memory. */
static void run_upsample(run *r, const xd_causal_level *w, int time)
{
    if (time)
        double_frames(r, &w->time);
    xd_tensor old = r->h;
    r->h = xd_map_at(r->x, r->base, old.d[0], 2 * old.d[1], 2 * old.d[2], w->up[0].w.out);
    for (int64_t t = old.d[0] - 1; t >= 0; t--)
        xd_band_enlarge(r->x, xd_rows(r->h, t, 1), xd_rows(old, t, 1), w->up, none);
}

/* Halves the rows and columns of the map h and, if `time` is set, its frames. */
static void run_downsample(run *r, const xd_causal_level *w, int time)
{
    xd_tensor old = r->h;
    int64_t   d[4] = { old.d[0], old.d[1] / 2, old.d[2] / 2, old.d[3] };
    xd_tensor to = xd_view(old.p, old.type, 4, d);
    for (int64_t t = 0; t < d[0]; t++)
        xd_map_halve(r->x, xd_rows(to, t, 1), xd_rows(old, t, 1), &w->down);
    r->h = xd_map_at(r->x, r->base, d[0], d[1], d[2], d[3]);
    if (time)
        halve_frames(r, &w->time);
}

/* ---- shortcuts around levels --------------------------------------------------------------- */

/* Divides `t` [H f,W f,C] into squares of f x f positions. Returns a view [H,W,C / step] of one
 * position of each square: yx[0] is the row, and yx[1] the column, of this position in the square.
 * The view has every `step`th channel, beginning with channel `at`. */
static xd_tensor every(xd_tensor t, const int yx[2], int f, int64_t at, int64_t step)
{
    int64_t   e = (int64_t)xd_dtype_size(t.type);
    xd_tensor v = xd_view(t.p, t.type, 3, (int64_t[]){ t.d[1] / f, t.d[2] / f, t.d[3] / step });
    v.s[0] = f * t.s[1], v.s[1] = f * t.s[2], v.s[2] = step;
    if (t.p)
        v.p = (char *)t.p + (yx[0] * t.s[1] + yx[1] * t.s[2] + at) * e;
    return v;
}

static int frame_factor(const run *r, int l)
{
    return xd_causal_time(r->c, r->dec, l) ? 2 : 1;
}

/* Adds the decoder's shortcut to h: the level's input, in which each position is repeated at 2 x 2
 * positions in 1 or 2 frames. If the output has fewer channels than the input, several consecutive
 * input channels become one output channel: each of them supplies the values at a part of the
 * repeated positions. The very first frame of the video becomes two frames, but only the second of
 * these frames is added to h. */
static void add_enlarged(run *r, xd_tensor in, int l)
{
    xd_exec *x = r->x;
    int      ft = frame_factor(r, l), skip = r->first ? ft - 1 : 0;
    int64_t  step = in.d[3] / r->h.d[3], share = 4 * ft / step;
    for (int64_t t = 0; t < r->h.d[0]; t++) {
        size_t    mark = xd_arena_mark(x->tmp);
        xd_tensor h = xd_rows(r->h, t, 1), s = xd_map(x, 1, h.d[1], h.d[2], h.d[3]);
        xd_tensor from = xd_rows(in, (t + skip) / ft, 1);
        int       a = (int)((t + skip) % ft);
        for (int q = 0; q < 4; q++)
            xd_copy_to(x, every(s, (int[]){ q / 2, q % 2 }, 2, 0, 1),
                       every(from, (int[]){ 0, 0 }, 1, (4 * a + q) / share, step));
        xd_add(x, xd_map_rows(h), xd_map_rows(s));
        xd_arena_rewind(x->tmp, mark);
    }
}

/* Writes the mean over n positions of each f x f square to `mean` [H,W,C] F32. The positions in a
 * square are numbered, frame after frame; the mean is over the positions with numbers from `from`
 * to `from` + n - 1. Negative numbers are positions before the first frame, and these positions
 * count as zeros. */
static void mean_of(run *r, xd_tensor mean, xd_tensor in, int f, int64_t from, int64_t n)
{
    size_t    mark = xd_arena_mark(r->x->tmp);
    int64_t   all = xd_count(mean);
    xd_tensor one = xd_new_as(r->x, XD_F32, 3, mean.d);
    for (int64_t i = 0; i < n; i++) {
        int64_t q = from + i < 0 ? 0 : from + i, p = q % (f * f);
        xd_copy_to(
            r->x, one,
            every(xd_rows(in, q / (f * f), 1), (int[]){ (int)(p / f), (int)(p % f) }, f, 0, 1));
        xd_axpby(r->x, xd_reshape(mean, 1, &all), from + i < 0 ? 0 : 1.0f / (float)n,
                 xd_reshape(one, 1, &all), i ? 1 : 0);
    }
    xd_arena_rewind(r->x->tmp, mark);
}

/* Adds the encoder's shortcut to h: the means of the level's input over f x f positions in 1 or 2
 * frames. If the output has more channels than the input, each output channel is the mean over a
 * part of the f x f positions. */
static void add_reduced(run *r, xd_tensor in, int l)
{
    xd_exec *x = r->x;
    int      f = l < xd_causal_levels(r->c) - 1 ? 2 : 1, ft = frame_factor(r, l);
    int64_t  step = r->h.d[3] / in.d[3], all = f * f * ft, skip = r->first ? (ft - 1) * f * f : 0;
    for (int64_t t = 0; t < r->h.d[0]; t++) {
        size_t    mark = xd_arena_mark(x->tmp);
        xd_tensor h = xd_rows(r->h, t, 1), s = xd_map(x, 1, h.d[1], h.d[2], h.d[3]);
        xd_tensor mean = xd_new_as(x, XD_F32, 3, (int64_t[]){ h.d[1], h.d[2], in.d[3] });
        for (int64_t k = 0; k < step; k++) {
            mean_of(r, mean, in, f, t * all + k * (all / step) - skip, all / step);
            xd_copy_to(x, every(s, (int[]){ 0, 0 }, 1, k, step), mean);
        }
        xd_add(x, xd_map_rows(h), xd_map_rows(s));
        xd_arena_rewind(x->tmp, mark);
    }
}

/* Moves h down to `base`, a position in the arena, over the level's input, which is no longer
 * needed. Copies h piece by piece; a piece is as large as the level's input, so that a piece and
 * its copy do not overlap. */
static void move_down(run *r, size_t base, xd_tensor in)
{
    xd_tensor from = r->h;
    int64_t   part = xd_count(in), all = xd_count(from), size = (int64_t)xd_dtype_size(from.type);
    r->base = base;
    r->h = xd_map_at(r->x, r->base, from.d[0], from.d[1], from.d[2], from.d[3]);
    for (int64_t i = 0; i < all; i += part) {
        int64_t n = xd_min(part, all - i);
        xd_copy_to(r->x, xd_view((char *)r->h.p + i * size, from.type, 1, &n),
                   xd_view((char *)from.p + i * size, from.type, 1, &n));
    }
}

static void run_level(run *r, int l)
{
    const xd_causal_level *w = &r->w->level[l];
    int       last = l == xd_causal_levels(r->c) - 1, cut = r->c->residual && !(r->dec && last);
    size_t    base = r->base;
    xd_tensor in = r->h;
    if (cut) {
        r->base = xd_arena_mark(r->x->tmp);
        r->h = xd_map_at(r->x, r->base, in.d[0], in.d[1], in.d[2], in.d[3]);
        xd_copy_to(r->x, r->h, in);
    }
    for (int i = 0; i < xd_causal_residuals(r->c, r->dec); i++)
        run_residual(r, &w->res[i]);
    if (!last)
        (r->dec ? run_upsample : run_downsample)(r, w, xd_causal_time(r->c, r->dec, l));
    if (!cut)
        return;
    (r->dec ? add_enlarged : add_reduced)(r, in, l);
    move_down(r, base, in);
}

/* ---- patches ------------------------------------------------------------------------------- */

/* Returns a view of a frame's pixels [H p,W p,K] as patches [H,W,K p p]. The elements of a patch
 * are in the order (channel, column, row). */
static xd_tensor by_patches(xd_tensor rgb, int64_t p)
{
    xd_tensor v = xd_reshape(rgb, 5, (int64_t[]){ rgb.d[1] / p, p, rgb.d[2] / p, p, rgb.d[3] });
    return xd_permute(v, (int[]){ 0, 2, 4, 3, 1 });
}

/* Copies pixels to a map of patches [T,H / p,W / p,K p p] F32 or, if to_pixels is set, the map to
 * pixels. */
static void copy_patches(run *r, xd_tensor map, xd_tensor rgb, int to_pixels)
{
    int64_t p = r->c->patch, d[5] = { map.d[1], map.d[2], rgb.d[3], p, p };
    for (int64_t t = 0; t < rgb.d[0]; t++) {
        xd_tensor m = xd_reshape(xd_rows(map, t, 1), 5, d), v = by_patches(xd_rows(rgb, t, 1), p);
        xd_copy_to(r->x, to_pixels ? v : m, to_pixels ? m : v);
    }
}

/* ---- chunks -------------------------------------------------------------------------------- */

static void run_chunk(run *r, xd_tensor in, xd_tensor out)
{
    size_t mark = xd_arena_mark(r->x->tmp);
    r->base = mark;
    r->at = 0;
    r->h = xd_map_at(r->x, r->base, in.d[0], in.d[1], in.d[2], r->w->in.w.out);
    conv(r, r->h, in, NULL, &r->w->in, none);
    if (r->dec)
        run_middle(r);
    for (int l = 0; l < xd_causal_levels(r->c); l++)
        run_level(r, l);
    if (!r->dec)
        run_middle(r);
    conv(r, out, r->h, &r->w->gain, &r->w->out, none);
    xd_arena_rewind(r->x->tmp, mark);
}

/* Runs a chunk of frames. If the autoencoder uses patches, an encoder's pixels are converted to
 * patches before the run, and a decoder's patches are converted to pixels after the run. */
static void run_patches(run *r, xd_tensor in, xd_tensor out)
{
    size_t    mark = xd_arena_mark(r->x->tmp);
    int64_t   p = r->c->patch;
    xd_tensor rgb = r->dec ? out : in, map = rgb;
    if (p > 1)
        map = xd_map_as(r->x, XD_F32, rgb.d[0], rgb.d[1] / p, rgb.d[2] / p, rgb.d[3] * p * p);
    if (p > 1 && !r->dec)
        copy_patches(r, map, rgb, 0);
    run_chunk(r, r->dec ? in : map, r->dec ? map : out);
    if (p > 1 && r->dec)
        copy_patches(r, map, rgb, 1);
    xd_arena_rewind(r->x->tmp, mark);
}

/* Runs the first frame alone, then runs chunks, each of which converts n frames of `in` to m frames
 * of `out`. In an autoencoder for images, every frame is computed alone, like a first frame. */
static void run_chunks(run *r, xd_tensor in, xd_tensor out, int64_t n, int64_t m)
{
    int64_t chunks = r->c->images ? in.d[0] : 1 + (in.d[0] - 1) / n;
    if (chunks > 1 && !r->c->images)
        open_caches(r, in.d[1] / (r->dec ? 1 : r->c->patch), in.d[2] / (r->dec ? 1 : r->c->patch));
    for (int64_t i = 0, from = 0, to = 0; i < chunks; i++) {
        r->first = !i || r->c->images;
        int64_t k = r->first ? 1 : n, l = r->first ? 1 : m;
        if (i)
            xd_pause(r->x);
        run_patches(r, xd_rows(in, from, k), xd_rows(out, to, l));
        from += k, to += l;
    }
}

/* Decodes latents that were normalized, lat = (z - mean) / std, with the mean and std of each
 * channel. The decoder reads z. */
void xd_causal_decode(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb)
{
    const xd_causal_cfg  *c = n->cfg;
    const xd_causal_glob *g = n->glob;
    int64_t               C = c->latent_channels;
    float                 gain[XD_FIELD_LIST], bias[XD_FIELD_LIST];
    size_t                mark = xd_arena_mark(x->tmp);
    run                   r = { .x = x, .c = c, .w = &g->dec, .dec = 1 };
    xd_vae_info           v;
    xd_causal_info(c, &v);
    if (!xd_map_pixels_fit(x, rgb, c->colours, lat, v.cell[1], C, xd_vae_latents(&v, rgb.d[0])) ||
        !xd_map_frames_fit(x, rgb.d[0], xd_vae_frames(&v, lat.d[0])))
        return;
    for (int64_t i = 0; i < C; i++)
        gain[i] = (float)c->std.v[i], bias[i] = (float)c->mean.v[i];
    xd_tensor z = xd_new_as(x, XD_F32, 4, lat.d);
    size_t    above = xd_arena_mark(x->tmp);
    xd_linear_into(x, xd_map_rows(z), xd_scale_rows(x, xd_map_rows(lat), gain, bias),
                   &g->post_quant);
    xd_arena_rewind(x->tmp, above);
    run_chunks(&r, z, rgb, 1, v.cell[0]);
    xd_arena_rewind(x->tmp, mark);
}

/* Encodes, then normalizes the moments: the mean becomes (mean - m) / s, and the log variance
 * becomes log variance - 2 log s, with the mean m and the standard deviation s of each channel.
 * Frames after the last complete chunk are dropped, as in diffusers. */
void xd_causal_encode(xd_exec *x, const xd_net *n, xd_tensor rgb, xd_tensor moments)
{
    const xd_causal_cfg  *c = n->cfg;
    const xd_causal_glob *g = n->glob;
    int64_t               C = c->latent_channels;
    float                 gain[2 * XD_FIELD_LIST], bias[2 * XD_FIELD_LIST];
    size_t                mark = xd_arena_mark(x->tmp);
    run                   r = { .x = x, .c = c, .w = &g->enc };
    xd_vae_info           v;
    xd_causal_info(c, &v);
    if (!xd_map_pixels_fit(x, rgb, c->colours, moments, v.cell[1], 2 * C,
                           xd_vae_latents(&v, rgb.d[0])))
        return;
    for (int64_t i = 0; i < C; i++) {
        gain[i] = (float)(1 / c->std.v[i]), bias[i] = (float)(-c->mean.v[i] / c->std.v[i]);
        gain[C + i] = 1, bias[C + i] = (float)(-2 * log(c->std.v[i]));
    }
    run_chunks(&r, rgb, moments, v.cell[0], 1);
    xd_tensor m = xd_new_as(x, XD_F32, 4, moments.d);
    xd_linear_into(x, xd_map_rows(m), xd_map_rows(moments), &g->quant);
    xd_copy_to(x, xd_map_rows(moments), xd_scale_rows(x, xd_map_rows(m), gain, bias));
    xd_arena_rewind(x->tmp, mark);
}
