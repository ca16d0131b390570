/* ltx_encode.c - encodes videos to latents with AutoencoderKLLTXVideo and AutoencoderKLLTX2Video.
 *
 * The encoder is causal. It computes all frames of a layer before the next layer. */
#include <math.h>
#include <stdlib.h>

#include "base/minmax.h"
#include "vae/ltx_layers.h"
#include "vae/maps.h"
#include "vae/scale_rows.h"

static const xd_tensor none;

static void run_blocks(xd_ltx_run *r, const xd_ltx_level *w, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        xd_pause(r->x);
        xd_ltx_residual(r, &w->res[i], w->time, &(xd_ltx_state){ 0 });
    }
}

/* Replaces the map h by `to`, which is behind the memory of the new map h. */
static void replace(xd_ltx_run *r, xd_tensor to)
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
static void run_stride(xd_ltx_run *r, const xd_cnv *w)
{
    const int64_t *d = r->h.d;
    xd_exec       *x = r->x;
    xd_tensor      in = r->h, to = xd_map(x, (d[0] - 1) / 2 + 1, d[1] / 2, d[2] / 2, w->w.out);
    xd_tensor      above = xd_halo_of(x, in, 1, 0).above;
    int64_t        a = above.d[1], H = d[1];
    const int      lo[3] = { 0, !a, 1 }, hi[3] = { 0, 0, 0 };
    xd_tensor      buf = xd_map_as(x, w->w.type, 1 + XD_LTX_AROUND, a + H, d[2], d[3]);
    for (int64_t t = 0; H && t < to.d[0]; t++) {
        for (int64_t i = 0; i <= XD_LTX_AROUND; i++) {
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
        xd_copy_to(x, xd_map_grouped(to, C, cells, a * by[1] * by[2], by[1], by[2]),
                   xd_map_spread(xd_rows(from, frame[a], 1), by[1], by[2]));
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
static void run_move(xd_ltx_run *r, const xd_cnv *w, const int *by)
{
    xd_exec  *x = r->x;
    xd_tensor old = r->h;
    int64_t   T = (old.d[0] - 1) / by[0] + 1, H = old.d[1], W = old.d[2], cells = by[1] * by[2];
    int64_t   C = w->w.out * by[0] * cells, *d = old.d;
    int64_t   more = T * (H / by[1]) * (W / by[2]) * C - xd_count(old);
    if (more > 0) /* `to` must begin behind the map that replaces h */
        xd_map(x, 1, 1, 1, more);
    xd_tensor   to = xd_map(x, T, H / by[1], W / by[2], C);
    xd_tensor   y = xd_map(x, by[0], H, W, w->w.out);
    xd_tensor   moved = xd_map(x, 1, H / by[1], W / by[2], d[3] * by[0] * cells);
    xd_ltx_conv c = { .in = old, .w = w };
    for (int64_t t = 0; t < T; t++) {
        int64_t frame[2] = { xd_max(0, by[0] * t - (by[0] - 1)), by[0] * t };
        int64_t mine[2] = { 0, by[0] - 1 };
        for (int a = 0; a < by[0]; a++)
            xd_ltx_conv_part(r, &c, frame[a], xd_rows(y, a, 1), none);
        gather(x, xd_rows(to, t, 1), y, by, mine);
        gather(x, moved, old, by, frame);
        add_means(x, xd_map_rows(xd_rows(to, t, 1)), xd_map_rows(moved));
    }
    replace(r, to);
}

/* Writes the normalized mean and the log variance of the latents. The encoder's output m [T,h,w,
 * C + 1] has one log variance for all channels. */
static void write_moments(xd_exec *x, const xd_net *n, xd_tensor m, xd_tensor moments)
{
    int64_t   C = m.d[3] - 1, rows = m.d[0] * m.d[1] * m.d[2];
    xd_tensor all = xd_new_f32(x, rows, 2 * C), from = xd_map_rows(m);
    float    *v = xd_ltx_statistics(x, n), *w = v ? calloc((size_t)(4 * C) + 1, sizeof *w) : NULL;
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
    xd_ltx_run         r = { .x = x, .c = c, .w = w, .past = 2 };
    if (!xd_map_video_fits(x, rgb, moments, c->cell[1], 2 * c->latent_channels,
                           (T - 1) / c->cell[0] + 1))
        return;
    xd_tensor m = xd_new_as(x, XD_F32, 4,
                            (int64_t[]){ moments.d[0], moments.d[1], moments.d[2], w->out.w.out });
    r.base = xd_arena_mark(x->tmp);
    r.h = xd_map_at(x, r.base, T, H, W, w->in.w.out);
    xd_ltx_conv c0 = { .in = xd_map(x, T, H, W, w->in.w.in), .w = &w->in };
    for (int64_t t = 0; t < T; t++)
        xd_ltx_copy_patches(x, xd_rows(c0.in, t, 1), xd_rows(rgb, t, 1), p, 1);
    xd_ltx_convolve(&r, r.h, &c0, none);
    r.h = xd_map_at(x, r.base, T, H, W, w->in.w.out);
    for (int l = 0; l < levels; l++) {
        run_blocks(&r, &w->level[l], c->layers.v[l]);
        if (c->down[l].strided)
            run_stride(&r, &w->level[l].resample);
        else if (c->scales.v[l])
            run_move(&r, &w->level[l].resample, c->down[l].by);
        if (w->level[l].side.conv[0].w.out)
            xd_ltx_residual(&r, &w->level[l].side, NULL, &(xd_ltx_state){ 0 });
    }
    run_blocks(&r, &w->mid, c->layers.v[c->layers.n - 1]);
    xd_ltx_convolve(&r, m, &(xd_ltx_conv){ .in = r.h, .w = &w->out, .norm = 1 }, none);
    write_moments(x, n, m, moments);
    xd_arena_rewind(x->tmp, mark);
}
