/* ltx_run.c - encodes videos to latents, and decodes latents to videos, with AutoencoderKLLTXVideo
 * and AutoencoderKLLTX2Video.
 *
 * All norms are RMS norms of single positions without gain. A causal convolution reads the current
 * and the two earlier frames, and another one the frames before and after the current frame; copies
 * of the outermost frame replace frames beyond the video. Beyond the edges of a frame there are
 * zeros, or in the decoder of LTX-2 mirrored pixels. The decoder is not causal, so all frames are
 * decoded at once. Versions from 0.9.1 on modulate the decoder's norms by a timestep, and may add
 * noise that is equal for all frames and, except for a factor, for all channels.
 *
 * The padded input of a convolution is made a few frames at a time. In the arena, the current
 * feature map `h` comes first. Besides h, only one other map, the copy of a map that is enlarged,
 * and these frames exist at the same time. */
#include <math.h>
#include <stdlib.h>

#include "base/minmax.h"
#include "base/rng.h"
#include "exec/op.h"
#include "vae/edges.h"
#include "vae/ltx.h"
#include "vae/maps.h"
#include "vae/scale_rows.h"

enum {
    AROUND = 2,  /* frames that a convolution reads besides the current one */
    WAVES = 256, /* sinusoids of a timestep */
};

static const float eps = 1e-8f;

typedef struct run {
    xd_exec           *x;
    const xd_ltx_cfg  *c;
    const xd_ltx_half *w;
    int                past;    /* number of frames before the current one that convolutions read */
    int                mirrors; /* 1: convolutions read mirrored pixels at edges */
    size_t             base;    /* position of the map h in the arena (a mark) */
    xd_tensor          h;       /* [T,H,W,C] at `base`: the current map */
    double             time;    /* timestep, as the embeddings read it */
    uint64_t           noise;   /* hash from which the next noise is drawn */
    int64_t            rows;    /* rows of a map per latent row, for the noise */
} run;

static const xd_tensor none;

/* ---- convolutions -------------------------------------------------------------------------- */

/* A convolution: out = conv(in), or out = conv(silu(norm(in) * (1 + scale) + shift)). */
typedef struct conv {
    xd_tensor     in;
    const xd_cnv *w;
    int           norm;
    xd_tensor     scale, shift; /* [1,C] F32, or absent */
} conv;

/* Writes frame t of the input to `to` [1,H,W,C]. */
static void read_frame(xd_exec *x, const conv *c, xd_tensor to, int64_t t)
{
    xd_tensor from = xd_rows(c->in, xd_max(0, xd_min(t, c->in.d[0] - 1)), 1);
    if (!c->norm) {
        xd_copy_to(x, to, from);
        return;
    }
    xd_norm_into(x, &(xd_norm){ .out = xd_map_rows(to),
                                .in = xd_map_rows(from),
                                .scale = c->scale,
                                .shift = c->shift,
                                .rms = 1,
                                .eps = eps });
    xd_activate(x, xd_map_rows(to), XD_SILU);
}

/* Computes frames [t, t + n) of the convolution's output, plus `plus`, which may be `out`. */
static void conv_part(run *r, const conv *c, int64_t t, xd_tensor out, xd_tensor plus)
{
    xd_exec  *x = r->x;
    size_t    mark = xd_arena_mark(x->tmp);
    int64_t   n = out.d[0] + AROUND;
    xd_tensor buf = xd_map_as(x, c->w->w.type, n, c->in.d[1], c->in.d[2], c->in.d[3]);
    for (int64_t i = 0; i < n; i++)
        read_frame(x, c, xd_rows(buf, i, 1), t - r->past + i);
    if (r->mirrors)
        xd_mirror_conv(x, out, buf, c->w, plus);
    else
        xd_conv3d_into(x, out, buf, c->w, plus);
    xd_arena_rewind(x->tmp, mark);
}

/* Returns how many frames of a convolution's output are computed together. */
static int64_t frames_of(run *r, const conv *c, int64_t frames, int64_t channels)
{
    xd_tensor most = c->in;
    most.d[0] = frames, most.d[3] = xd_max(channels, c->in.d[3]);
    return xd_map_frames(r->x, most);
}

static void convolve(run *r, xd_tensor out, const conv *c, xd_tensor plus)
{
    int64_t T = out.d[0], n = frames_of(r, c, T, out.d[3]);
    for (int64_t t = 0, k; t < T; t += k) {
        k = xd_min(n, T - t);
        conv_part(r, c, t, xd_rows(out, t, k), plus.p ? xd_rows(plus, t, k) : none);
    }
}

/* ---- the timestep and noise ----------------------------------------------------------------- */

/* Returns the sum of a table [k,C] and the embedding of the timestep by the layers w, F32. */
static xd_tensor modulation(run *r, const xd_lin w[2], xd_tensor table)
{
    xd_exec  *x = r->x;
    xd_tensor wave = xd_time_embed(x, &r->time, 1, WAVES, 1, 0);
    xd_tensor v = xd_linear_f32(x, xd_linear_act(x, wave, &w[0], XD_SILU), &w[1]);
    v = xd_reshape(v, 2, table.d);
    xd_add(x, v, table);
    return v;
}

typedef struct drawn { /* argument of fill_noise */
    uint64_t hash;
    int64_t  first, n;
} drawn;

static void fill_noise(void *ctx, float *buf)
{
    const drawn *a = ctx;
    xd_noise_philox(buf, a->first, a->n, (int64_t)(a->hash >> 1));
}

/* Adds noise times a factor for each channel to the map h. All frames get the same noise, which
 * depends on the position in the image. */
static void add_noise(run *r, xd_tensor h, xd_tensor factors)
{
    xd_exec  *x = r->x;
    size_t    mark = xd_arena_mark(x->tmp);
    int64_t   n = h.d[1] * h.d[2], row = x->decoding ? x->decoding->row : 0;
    xd_tensor z = xd_new_f32(x, n, 1), all = xd_new_f32(x, n, h.d[3]);
    drawn     a = { r->noise, row * r->rows * h.d[2], n };
    r->noise = xd_hash_mix(r->noise, 1);
    if (n)
        xd_fill(x, z, fill_noise, &a);
    z.d[1] = h.d[3], z.s[1] = 0;
    xd_copy_to(x, all, z);
    for (int64_t t = 0; t < h.d[0]; t++)
        xd_add_gated(x, xd_map_rows(xd_rows(h, t, 1)),
                     xd_reshape(factors, 2, (int64_t[]){ 1, h.d[3] }), all);
    xd_arena_rewind(x->tmp, mark);
}

/* ---- blocks -------------------------------------------------------------------------------- */

/* Runs a residual block: h = shortcut(h) + conv2(silu(norm2(conv1(silu(norm1(h)))))). `time` is the
 * timestep's embedding [4,C] of the level, or absent. */
static void run_residual(run *r, const xd_ltx_res *w, const xd_lin *time)
{
    xd_exec  *x = r->x;
    xd_tensor h = r->h, m[4] = { none, none, none, none };
    int64_t   in = w->conv[0].w.in, out = w->conv[0].w.out, *d = h.d;
    if (out > in)
        r->h = xd_map_at(x, r->base, d[0], d[1], d[2], out);
    size_t mark = xd_arena_mark(x->tmp);
    if (w->table.p) {
        xd_tensor v = modulation(r, time, w->table);
        for (int i = 0; i < 4; i++)
            m[i] = xd_rows(v, i, 1);
    }
    xd_tensor a = xd_map(x, d[0], d[1], d[2], out);
    convolve(r, a, &(conv){ h, &w->conv[0], 1, m[1], m[0] }, none);
    if (w->noise[0].p)
        add_noise(r, a, w->noise[0]);
    if (in != out) {
        xd_norm_into(x, &(xd_norm){ .out = xd_map_rows(h),
                                    .in = xd_map_rows(h),
                                    .gain = w->gain,
                                    .bias = w->bias,
                                    .eps = r->c->eps });
        h = xd_map_reshape(x, h, &w->shortcut);
    }
    convolve(r, h, &(conv){ a, &w->conv[1], 1, m[3], m[2] }, h);
    if (w->noise[1].p)
        add_noise(r, h, w->noise[1]);
    if (in != out)
        r->h = xd_map_at(x, r->base, d[0], d[1], d[2], out);
    else
        xd_arena_rewind(x->tmp, mark);
}

static void run_blocks(run *r, const xd_ltx_level *w, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        xd_pause(r->x);
        run_residual(r, &w->res[i], w->time);
    }
}

/* Returns a view of a frame [1,rows,cols,C k], whose channels are C groups of k, as [rows,C,cols,a,
 * b]: positions (a, b) of group element `at` and following. */
static xd_tensor grouped(xd_tensor in, int64_t C, int64_t k, int64_t at, int64_t a, int64_t b)
{
    xd_tensor v = xd_view(in.p, in.type, 5, (int64_t[]){ in.d[1], C, in.d[2], a, b });
    v.s[0] = in.s[1], v.s[1] = k, v.s[2] = in.s[2], v.s[3] = b, v.s[4] = 1;
    if (v.p)
        v.p = (char *)v.p + at * (int64_t)xd_dtype_size(v.type);
    return v;
}

/* Returns a view of a frame [1,rows a,cols b,C] with the same order as that of `grouped`. */
static xd_tensor spread(xd_tensor to, int64_t a, int64_t b)
{
    int64_t   C = to.d[3], W = to.d[2];
    xd_tensor v = xd_view(to.p, to.type, 5, (int64_t[]){ to.d[1] / a, C, W / b, a, b });
    v.s[0] = a * to.s[1], v.s[1] = to.s[3], v.s[2] = b * to.s[2], v.s[3] = to.s[1],
    v.s[4] = to.s[2];
    return v;
}

/* Adds to a frame of the enlarged map the channels of the old map, of which by[0] by[1] by[2]
 * become one position each; the channels are repeated until there are as many as in the new map.
 * `frame` is one of the by[0] frames that the old frame becomes. */
static void add_old(run *r, xd_tensor to, xd_tensor old, int64_t frame, const int *by)
{
    xd_exec  *x = r->x;
    size_t    mark = xd_arena_mark(x->tmp);
    int64_t   C = to.d[3], plane = by[1] * by[2], k = old.d[3] / (by[0] * plane);
    xd_tensor all = xd_map(x, 1, to.d[1], to.d[2], C);
    for (int64_t i = 0; i < C; i += k) {
        xd_tensor part = all;
        if (part.p)
            part.p = (char *)part.p + i * (int64_t)xd_dtype_size(part.type);
        part.d[3] = k;
        xd_copy_to(x, spread(part, by[1], by[2]),
                   grouped(old, k, by[0] * plane, frame * plane, by[1], by[2]));
    }
    xd_add(x, xd_map_rows(to), xd_map_rows(all));
    xd_arena_rewind(x->tmp, mark);
}

/* Multiplies frames, rows and columns by a convolution whose channels become positions; of the
 * first frame only the last one is kept. The old map is copied behind the new one, which overwrites
 * it. */
static void run_upsample(run *r, const xd_cnv *w, const int *by, int residual)
{
    xd_exec  *x = r->x;
    xd_tensor old = r->h;
    int64_t   T = old.d[0], H = old.d[1], W = old.d[2], f = by[0], plane = by[1] * by[2];
    int64_t   C = w->w.out / (f * plane), first = f - 1;
    r->h = xd_map_at(x, r->base, f * T - first, by[1] * H, by[2] * W, C);
    if (xd_count(old) > xd_count(r->h))
        xd_map_at(x, r->base, T, H, W, old.d[3]);
    size_t mark = xd_arena_mark(x->tmp);
    conv   c = { .in = xd_map(x, T, H, W, old.d[3]), .w = w };
    xd_copy_to(x, c.in, old);
    int64_t   n = frames_of(r, &c, T, w->w.out);
    xd_tensor y = xd_map(x, n, H, W, w->w.out);
    for (int64_t t = 0, k; t < T; t += k) {
        k = xd_min(n, T - t);
        conv_part(r, &c, t, xd_rows(y, 0, k), none);
        for (int64_t i = 0; i < f * k; i++) {
            if (f * t + i < first)
                continue;
            xd_tensor to = xd_rows(r->h, f * t + i - first, 1);
            xd_copy_to(x, spread(to, by[1], by[2]),
                       grouped(xd_rows(y, i / f, 1), C, f * plane, i % f * plane, by[1], by[2]));
            if (residual)
                add_old(r, to, xd_rows(c.in, t + i / f, 1), i % f, by);
        }
    }
    xd_arena_rewind(x->tmp, mark);
    r->h = xd_map_at(x, r->base, f * T - first, by[1] * H, by[2] * W, C);
    r->rows *= by[1];
}

/* Replaces the map h by `to`, which is behind the memory of the new map h. */
static void replace(run *r, xd_tensor to)
{
    r->h = xd_map_at(r->x, r->base, to.d[0], to.d[1], to.d[2], to.d[3]);
    xd_copy_to(r->x, r->h, to);
}

/* Returns a view of h rows of each frame, beginning with row y. */
static xd_tensor row_view(xd_tensor t, int64_t y, int64_t h)
{
    if (t.p)
        t.p = (char *)t.p + y * t.s[1] * (int64_t)xd_dtype_size(t.type);
    t.d[1] = h;
    return t;
}

/* Halves frames, rows and columns by the stride of a convolution. The first frame stays alone. */
static void run_stride(run *r, const xd_cnv *w)
{
    const int64_t *d = r->h.d;
    xd_exec       *x = r->x;
    xd_tensor      in = r->h, to = xd_map(x, (d[0] - 1) / 2 + 1, d[1] / 2, d[2] / 2, w->w.out);
    xd_tensor      above = xd_halo_of(x, in, 1, 0).above;
    int64_t        a = above.d[1], H = d[1];
    const int      lo[3] = { 0, !a, 1 }, hi[3] = { 0, 0, 0 };
    xd_tensor      buf = xd_map_as(x, w->w.type, 1 + AROUND, a + H, d[2], d[3]);
    for (int64_t t = 0; H && t < to.d[0]; t++) {
        for (int64_t i = 0; i <= AROUND; i++) {
            int64_t   from = xd_max(0, 2 * t - r->past + i);
            xd_tensor one = xd_rows(buf, i, 1);
            if (a)
                xd_copy_to(x, row_view(one, 0, a), xd_rows(above, from, 1));
            xd_copy_to(x, row_view(one, a, H), xd_rows(in, from, 1));
        }
        xd_conv_rows_into(x, xd_rows(to, t, 1), buf, w,
                          &(xd_conv_options){ .stride = 2, .lo = lo, .hi = hi });
    }
    replace(r, to);
}

/* Moves positions of the frames from [n,H,W,C], as many as the factor of frames, to channels of
 * `to` [1,H/by,W/by,C cells]. */
static void gather(xd_exec *x, xd_tensor to, xd_tensor from, const int *by, const int64_t *frame)
{
    int64_t C = from.d[3], cells = by[0] * by[1] * by[2];
    for (int a = 0; a < by[0]; a++)
        xd_copy_to(x, grouped(to, C, cells, a * by[1] * by[2], by[1], by[2]),
                   spread(xd_rows(from, frame[a], 1), by[1], by[2]));
}

/* Adds to `to` [n,C] the means of groups of neighbouring channels of `from` [n,C k]. */
static void add_means(xd_exec *x, xd_tensor to, xd_tensor from)
{
    size_t    mark = xd_arena_mark(x->tmp);
    int64_t   n = to.d[0], C = to.d[1], k = from.d[1] / C, all = n * C;
    xd_tensor one = xd_new_f32(x, n, C), sum = xd_new_f32(x, n, C);
    for (int64_t i = 0; i < k; i++) {
        xd_tensor at = xd_cols(from, i, C);
        at.s[1] = k;
        xd_copy_to(x, one, at);
        xd_axpby(x, xd_reshape(sum, 1, &all), 1 / (float)k, xd_reshape(one, 1, &all), i > 0);
    }
    xd_add(x, to, sum);
    xd_arena_rewind(x->tmp, mark);
}

/* Divides frames, rows and columns by moving positions to channels, after a convolution. Adds the
 * moved positions of the old map, with the means of neighbouring channels. With two frames, the
 * first frame is moved together with a copy of it. */
static void run_move(run *r, const xd_cnv *w, const int *by)
{
    xd_exec  *x = r->x;
    xd_tensor old = r->h;
    int64_t   T = (old.d[0] - 1) / by[0] + 1, H = old.d[1], W = old.d[2], cells = by[1] * by[2];
    int64_t   C = w->w.out * by[0] * cells, *d = old.d;
    int64_t   more = T * (H / by[1]) * (W / by[2]) * C - xd_count(old);
    if (more > 0) /* `to` must begin behind the map that replaces h */
        xd_map(x, 1, 1, 1, more);
    xd_tensor to = xd_map(x, T, H / by[1], W / by[2], C);
    xd_tensor y = xd_map(x, by[0], H, W, w->w.out);
    xd_tensor moved = xd_map(x, 1, H / by[1], W / by[2], d[3] * by[0] * cells);
    conv      c = { .in = old, .w = w };
    for (int64_t t = 0; t < T; t++) {
        int64_t frame[2] = { xd_max(0, by[0] * t - (by[0] - 1)), by[0] * t };
        int64_t mine[2] = { 0, by[0] - 1 };
        for (int a = 0; a < by[0]; a++)
            conv_part(r, &c, frame[a], xd_rows(y, a, 1), none);
        gather(x, xd_rows(to, t, 1), y, by, mine);
        gather(x, moved, old, by, frame);
        add_means(x, xd_map_rows(xd_rows(to, t, 1)), xd_map_rows(moved));
    }
    replace(r, to);
}

/* ---- latents and pixels ---------------------------------------------------------------------- */

/* Reads the mean and the deviation of the latents; [C] each, which the caller frees. */
static float *statistics(xd_exec *x, const xd_net *n)
{
    const xd_ltx_glob *g = n->glob;
    int64_t            C = ((const xd_ltx_cfg *)n->cfg)->latent_channels;
    float             *v = calloc((size_t)(2 * C) + 1, sizeof *v);
    if (!v) {
        xd_exec_fail(x, XD_ENOMEM, "no memory for %lld numbers", (long long)(2 * C));
        return NULL;
    }
    xd_get(x, v, g->mean);
    xd_get(x, v + C, g->std);
    return v;
}

/* Returns latents that are normalized, (z - mean) scaling / std, or from which this is undone. */
static xd_tensor scaled(xd_exec *x, const xd_net *n, xd_tensor lat, int undo)
{
    const xd_ltx_cfg *c = n->cfg;
    float            *v = statistics(x, n), *std = v ? v + c->latent_channels : NULL;
    for (int64_t i = 0; v && i < c->latent_channels; i++) {
        std[i] = undo ? std[i] / (float)c->scaling : (float)c->scaling / std[i];
        v[i] = undo ? v[i] : -v[i] * std[i];
    }
    xd_tensor z = v ? xd_scale_rows(x, xd_map_rows(lat), std, v) : xd_map_rows(lat);
    free(v);
    return xd_reshape(z, 4, lat.d);
}

xd_tensor xd_ltx_normalize(xd_exec *x, const xd_net *n, xd_tensor z)
{
    return scaled(x, n, z, 0);
}

/* Copies pixels between patches [1,h,w,(3,column,row)] and a frame [1,h p,w p,3]. */
static void copy_patches(xd_exec *x, xd_tensor patches, xd_tensor rgb, int64_t p, int to_patches)
{
    xd_tensor a = grouped(patches, 3, p * p, 0, p, p), b = spread(rgb, p, p);
    a = xd_permute(a, (int[]){ 0, 1, 2, 4, 3 });
    xd_copy_to(x, to_patches ? a : b, to_patches ? b : a);
}

/* Computes the decoder's last layers, a few frames at a time. */
static void decode_pixels(run *r, xd_tensor rgb)
{
    xd_exec *x = r->x;
    conv     c = { .in = r->h, .w = &r->w->out, .norm = 1 };
    int64_t  T = r->h.d[0], n = frames_of(r, &c, T, c.w->w.out);
    if (r->w->table.p) {
        xd_tensor m = modulation(r, r->w->time, r->w->table);
        c.shift = xd_rows(m, 0, 1), c.scale = xd_rows(m, 1, 1);
    }
    xd_tensor y = xd_map_as(x, XD_F32, n, r->h.d[1], r->h.d[2], c.w->w.out);
    for (int64_t t = 0, k; t < T; t += k) {
        k = xd_min(n, T - t);
        conv_part(r, &c, t, xd_rows(y, 0, k), none);
        for (int64_t i = 0; i < k; i++)
            copy_patches(x, xd_rows(y, i, 1), xd_rows(rgb, t + i, 1), r->c->patch, 0);
    }
}

/* Sets the timestep that the decoder reads, and the hash of its noise. */
static void set_time(run *r)
{
    const xd_decoding *a = r->x->decoding;
    float              scale = 0;
    if (r->w->scale.p)
        xd_get(r->x, &scale, r->w->scale);
    r->time = a ? a->time * (double)scale : 0;
    r->noise = xd_hash_mix(xd_hash_text("decoder noise"), a ? (uint64_t)a->seed : 0);
}

void xd_ltx_decode(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb)
{
    const xd_ltx_cfg  *c = n->cfg;
    const xd_ltx_half *w = &((const xd_ltx_glob *)n->glob)->dec;
    size_t             mark = xd_arena_mark(x->tmp);
    int                m = c->levels[1];
    run                r = { .x = x, .c = c, .w = w, .mirrors = c->mirrors, .rows = 1 };
    xd_vae_info        v;
    xd_ltx_info(c, &v);
    r.past = c->dec_causal ? 2 : 1;
    if (!xd_map_video_fits(x, rgb, lat, v.cell[1], c->latent_channels, lat.d[0]) ||
        !xd_map_frames_fit(x, rgb.d[0], xd_vae_frames(&v, lat.d[0])))
        return;
    xd_tensor z = scaled(x, n, lat, 1);
    set_time(&r);
    r.base = xd_arena_mark(x->tmp);
    r.h = xd_map_at(x, r.base, lat.d[0], lat.d[1], lat.d[2], w->in.w.out);
    convolve(&r, r.h, &(conv){ .in = z, .w = &w->in }, none);
    run_blocks(&r, &w->mid, c->dec_layers.v[m]);
    for (int l = 0; l < m; l++) {
        int at = m - 1 - l;
        if (w->level[l].side.conv[0].w.out)
            run_residual(&r, &w->level[l].side, NULL);
        if (c->dec_scales.v[at])
            run_upsample(&r, &w->level[l].resample, c->up[l], (int)c->residual.v[at]);
        run_blocks(&r, &w->level[l], c->dec_layers.v[at]);
    }
    decode_pixels(&r, rgb);
    xd_arena_rewind(x->tmp, mark);
}

/* Writes the normalized mean and the log variance of the latents. The encoder's output m [T,h,w,
 * C + 1] has one log variance for all channels. */
static void write_moments(xd_exec *x, const xd_net *n, xd_tensor m, xd_tensor moments)
{
    int64_t   C = m.d[3] - 1, rows = m.d[0] * m.d[1] * m.d[2];
    xd_tensor all = xd_new_f32(x, rows, 2 * C), from = xd_map_rows(m);
    float    *v = statistics(x, n), *w = v ? calloc((size_t)(4 * C) + 1, sizeof *w) : NULL;
    for (int64_t i = 0; w && i < C; i++) {
        w[i] = 1 / v[C + i], w[C + i] = 1;
        w[2 * C + i] = -v[i] / v[C + i], w[3 * C + i] = -2 * logf(v[C + i]);
    }
    xd_tensor var = xd_cols(from, C, 1);
    var.d[1] = C, var.s[1] = 0;
    xd_copy_to(x, xd_cols(all, 0, C), xd_cols(from, 0, C));
    xd_copy_to(x, xd_cols(all, C, C), var);
    if (w)
        xd_copy_to(x, xd_map_rows(moments), xd_scale_rows(x, all, w, w + 2 * C));
    else
        xd_exec_fail(x, XD_ENOMEM, "no memory for %lld numbers", (long long)(4 * C));
    free(v);
    free(w);
}

void xd_ltx_encode(xd_exec *x, const xd_net *n, xd_tensor rgb, xd_tensor moments)
{
    const xd_ltx_cfg  *c = n->cfg;
    const xd_ltx_half *w = &((const xd_ltx_glob *)n->glob)->enc;
    size_t             mark = xd_arena_mark(x->tmp);
    int64_t            T = rgb.d[0], p = c->patch, H = rgb.d[1] / p, W = rgb.d[2] / p;
    int                levels = c->levels[0];
    run                r = { .x = x, .c = c, .w = w, .past = 2, .rows = 1 };
    if (!xd_map_video_fits(x, rgb, moments, c->cell[1], 2 * c->latent_channels,
                           (T - 1) / c->cell[0] + 1))
        return;
    xd_tensor m = xd_new_as(x, XD_F32, 4,
                            (int64_t[]){ moments.d[0], moments.d[1], moments.d[2], w->out.w.out });
    r.base = xd_arena_mark(x->tmp);
    r.h = xd_map_at(x, r.base, T, H, W, w->in.w.out);
    conv c0 = { .in = xd_map(x, T, H, W, w->in.w.in), .w = &w->in };
    for (int64_t t = 0; t < T; t++)
        copy_patches(x, xd_rows(c0.in, t, 1), xd_rows(rgb, t, 1), p, 1);
    convolve(&r, r.h, &c0, none);
    r.h = xd_map_at(x, r.base, T, H, W, w->in.w.out);
    for (int l = 0; l < levels; l++) {
        run_blocks(&r, &w->level[l], c->layers.v[l]);
        if (c->down[l].strided)
            run_stride(&r, &w->level[l].resample);
        else if (c->scales.v[l])
            run_move(&r, &w->level[l].resample, c->down[l].by);
        if (w->level[l].side.conv[0].w.out)
            run_residual(&r, &w->level[l].side, NULL);
    }
    run_blocks(&r, &w->mid, c->layers.v[c->layers.n - 1]);
    convolve(&r, m, &(conv){ .in = r.h, .w = &w->out, .norm = 1 }, none);
    write_moments(x, n, m, moments);
    xd_arena_rewind(x->tmp, mark);
}
