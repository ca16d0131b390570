/* ltx_layers.c - computes the layers that encoder and decoder of AutoencoderKLLTXVideo and
 * AutoencoderKLLTX2Video share (ltx_layers.h).
 *
 * The padded input of a convolution is made a few frames at a time. In the arena, the current
 * feature map `h` comes first. Besides h, only one other map, the copy of a map that is enlarged,
 * and these frames exist at the same time. */
#include "vae/ltx_layers.h"

#include <stdlib.h>

#include "base/minmax.h"
#include "base/rng.h"
#include "vae/edges.h"
#include "vae/maps.h"

enum { WAVES = 256 /* sinusoids of a timestep */ };

static const float eps = 1e-8f;

static const xd_tensor none;

/* ---- convolutions -------------------------------------------------------------------------- */

/* Returns the number of frames before those of the input: kept ones, or copies of the first one. */
static int64_t frames_before(const xd_ltx_run *r, const xd_ltx_conv *c)
{
    return c->kept && c->kept->valid ? XD_LTX_AROUND : r->past;
}

int64_t xd_ltx_conv_results(const xd_ltx_run *r, const xd_ltx_conv *c)
{
    int64_t after = c->last || !c->kept ? XD_LTX_AROUND - r->past : 0;
    return xd_max(0, frames_before(r, c) + c->in.d[0] + after - XD_LTX_AROUND);
}

/* Writes frame t to `to` [1,H,W,C], counted from the frames before the input. */
static void read_frame(xd_ltx_run *r, const xd_ltx_conv *c, xd_tensor to, int64_t t)
{
    xd_exec *x = r->x;
    int64_t  before = frames_before(r, c), n = c->in.d[0];
    if (c->kept && c->kept->valid && (t < before || !n)) {
        xd_copy_to(x, to, xd_rows(c->kept->t, xd_min(t, XD_LTX_AROUND - 1), 1));
        return;
    }
    xd_tensor from = xd_rows(c->in, xd_max(0, xd_min(t - before, n - 1)), 1);
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

void xd_ltx_conv_part(xd_ltx_run *r, const xd_ltx_conv *c, int64_t t, xd_tensor out, xd_tensor plus)
{
    xd_exec  *x = r->x;
    size_t    mark = xd_arena_mark(x->tmp);
    int64_t   n = out.d[0] + XD_LTX_AROUND;
    int       ends = c->kept && t + out.d[0] == xd_ltx_conv_results(r, c);
    xd_tensor buf = xd_map_as(x, c->w->w.type, n, c->in.d[1], c->in.d[2], c->in.d[3]);
    for (int64_t i = 0; i < n; i++)
        read_frame(r, c, xd_rows(buf, i, 1), t + i);
    if (ends) {
        xd_map_keep(x, c->kept->t, buf, XD_LTX_AROUND);
        c->kept->valid = 1;
    }
    if (out.d[0] && r->mirrors)
        xd_mirror_conv(x, out, buf, c->w, plus);
    else if (out.d[0])
        xd_conv3d_into(x, out, buf, c->w, plus);
    xd_arena_rewind(x->tmp, mark);
}

int64_t xd_ltx_conv_frames(xd_ltx_run *r, const xd_ltx_conv *c, int64_t frames, int64_t channels)
{
    xd_tensor most = c->in;
    most.d[0] = frames, most.d[3] = xd_max(channels, c->in.d[3]);
    return xd_max(1, xd_map_frames(r->x, most));
}

void xd_ltx_convolve(xd_ltx_run *r, xd_tensor out, const xd_ltx_conv *c, xd_tensor plus)
{
    int64_t T = xd_ltx_conv_results(r, c), n = xd_ltx_conv_frames(r, c, T, out.d[3]);
    if (!T && c->in.d[0])
        xd_ltx_conv_part(r, c, 0, xd_rows(out, 0, 0), none);
    for (int64_t t = 0, k; t < T; t += k) {
        k = xd_min(n, T - t);
        xd_ltx_conv_part(r, c, t, xd_rows(out, t, k), plus.p ? xd_rows(plus, t, k) : none);
    }
}

/* ---- the timestep and noise ----------------------------------------------------------------- */

xd_tensor xd_ltx_modulation(xd_ltx_run *r, const xd_lin w[2], xd_tensor table)
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

/* Adds noise of a hash, times a factor for each channel, to the map h. All frames get the same
 * noise, which depends on the position in the image. */
static void add_noise(xd_exec *x, xd_tensor h, xd_tensor factors, uint64_t hash, int64_t rows)
{
    size_t    mark = xd_arena_mark(x->tmp);
    int64_t   n = h.d[1] * h.d[2], row = x->decoding ? x->decoding->row : 0;
    xd_tensor z = xd_new_f32(x, n, 1), all = xd_new_f32(x, n, h.d[3]);
    drawn     a = { hash, row * rows * h.d[2], n };
    if (n)
        xd_fill(x, z, fill_noise, &a);
    z.d[1] = h.d[3], z.s[1] = 0;
    xd_copy_to(x, all, z);
    for (int64_t t = 0; t < h.d[0]; t++)
        xd_add_gated(x, xd_map_rows(xd_rows(h, t, 1)),
                     xd_reshape(factors, 2, (int64_t[]){ 1, h.d[3] }), all);
    xd_arena_rewind(x->tmp, mark);
}

/* ---- residual blocks ------------------------------------------------------------------------ */

void xd_ltx_copy_frames(xd_exec *x, xd_tensor to, xd_tensor from)
{
    for (int64_t t = 0; t < from.d[0]; t++)
        xd_copy_to(x, xd_rows(to, t, 1), xd_rows(from, t, 1));
}

/* Computes the shortcut of the map h, and puts the late frames before its frames. The memory of h
 * must have room for them. */
static xd_tensor shortcut(xd_ltx_run *r, const xd_ltx_res *w, const xd_ltx_state *s)
{
    xd_exec  *x = r->x;
    xd_tensor h = r->h;
    int64_t   m = h.d[0], late = s->nlate;
    if (w->shortcut.w.out && m) {
        xd_norm_into(x, &(xd_norm){ .out = xd_map_rows(h),
                                    .in = xd_map_rows(h),
                                    .gain = w->gain,
                                    .bias = w->bias,
                                    .eps = r->c->eps });
        h = xd_map_reshape(x, h, &w->shortcut);
    }
    int64_t   C = w->conv[0].w.out, d[4] = { late + m, h.d[1], h.d[2], C };
    xd_tensor all = xd_view(h.p, h.type, 4, d);
    for (int64_t t = m - 1; late && t >= 0; t--)
        xd_copy_to(x, xd_rows(all, late + t, 1), xd_rows(all, t, 1));
    if (late)
        xd_ltx_copy_frames(x, all, xd_rows(s->late, 0, late));
    return all;
}

void xd_ltx_residual(xd_ltx_run *r, const xd_ltx_res *w, const xd_lin *time, xd_ltx_state *s)
{
    xd_exec      *x = r->x;
    xd_tensor     m[4] = { none, none, none, none };
    xd_ltx_kept  *kept = s->piecewise ? s->kept : NULL;
    const int64_t in = w->conv[0].w.in, out = w->conv[0].w.out, T = r->h.d[0];
    const int64_t H = r->h.d[1], W = r->h.d[2];
    xd_ltx_conv   one = { .in = r->h, .w = &w->conv[0], .norm = 1, .kept = kept, .last = s->last };
    /* The memory of h must have room for the results. */
    r->h = xd_map_at(x, r->base, s->nlate + T, H, W, xd_max(in, out));
    r->h = xd_view(r->h.p, r->h.type, 4, (int64_t[]){ T, H, W, in });
    if (w->table.p) {
        xd_tensor v = xd_ltx_modulation(r, time, w->table);
        for (int i = 0; i < 4; i++)
            m[i] = xd_rows(v, i, 1);
    }
    one.shift = m[0], one.scale = m[1];
    xd_tensor a = xd_map(x, xd_ltx_conv_results(r, &one), H, W, out);
    xd_ltx_convolve(r, a, &one, none);
    if (w->noise[0].p)
        add_noise(x, a, w->noise[0], s->noise, s->rows);
    xd_tensor   h = shortcut(r, w, s);
    xd_ltx_conv two = { a, &w->conv[1], 1, m[3], m[2], kept ? &kept[1] : NULL, s->last };
    int64_t     n = xd_ltx_conv_results(r, &two);
    xd_ltx_convolve(r, xd_rows(h, 0, n), &two, xd_rows(h, 0, n));
    s->nlate = h.d[0] - n;
    if (s->nlate)
        xd_ltx_copy_frames(x, s->late, xd_rows(h, n, s->nlate));
    h = xd_rows(h, 0, n);
    if (w->noise[1].p)
        add_noise(x, h, w->noise[1], xd_hash_mix(s->noise, 1), s->rows);
    r->h = xd_map_at(x, r->base, n, H, W, out);
}

/* ---- positions and channels ----------------------------------------------------------------- */

float *xd_ltx_statistics(xd_exec *x, const xd_net *n)
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

void xd_ltx_copy_patches(xd_exec *x, xd_tensor patches, xd_tensor rgb, int64_t p, int to_patches)
{
    xd_tensor a = xd_map_grouped(patches, 3, p * p, 0, p, p), b = xd_map_spread(rgb, p, p);
    a = xd_permute(a, (int[]){ 0, 1, 2, 4, 3 });
    xd_copy_to(x, to_patches ? a : b, to_patches ? b : a);
}
