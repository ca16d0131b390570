/* maps.c - allocates, copies and checks the feature maps of autoencoders (maps.h) */
#include "vae/maps.h"

/* Log variance of latents without a distribution: the lowest value that samplers use. */
static const float   SAME = -30;
/* Max bytes of frames that are normalized together. */
static const int64_t few_frames = (int64_t)5 << 27;

xd_tensor xd_map_as(xd_exec *x, xd_dtype type, int64_t T, int64_t H, int64_t W, int64_t C)
{
    return xd_new_as(x, type, 4, (int64_t[]){ T, H, W, C });
}

xd_tensor xd_map(xd_exec *x, int64_t T, int64_t H, int64_t W, int64_t C)
{
    return xd_map_as(x, x->act, T, H, W, C);
}

xd_tensor xd_map_at(xd_exec *x, size_t base, int64_t T, int64_t H, int64_t W, int64_t C)
{
    xd_arena_rewind(x->tmp, base);
    return xd_map(x, T, H, W, C);
}

xd_tensor xd_map_rows(xd_tensor map)
{
    return xd_reshape(map, 2, (int64_t[]){ map.d[0] * map.d[1] * map.d[2], map.d[3] });
}

int64_t xd_map_frames(const xd_exec *x, xd_tensor in)
{
    int64_t frame = in.d[2] * in.d[2] * in.d[3] * (int64_t)xd_dtype_size(x->act);
    int64_t n = few_frames / frame - XD_PAST;
    n = n > 1 ? n : 1;
    return n < in.d[0] ? n : in.d[0];
}

void xd_map_keep(xd_exec *x, xd_tensor to, xd_tensor from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        xd_copy_to(x, xd_rows(to, XD_PAST - n + i, 1), xd_rows(from, from.d[0] - n + i, 1));
}

xd_tensor xd_map_reshape(xd_exec *x, xd_tensor old, const xd_lin *w)
{
    size_t    mark = xd_arena_mark(x->tmp);
    int64_t   T = old.d[0], C = w->w.out, d[4] = { T, old.d[1], old.d[2], C };
    xd_tensor s = xd_map(x, 1, d[1], d[2], C), to = xd_view(old.p, old.type, 4, d);
    for (int64_t i = 0; i < T; i++) {
        int64_t t = C > old.d[3] ? T - 1 - i : i;
        xd_linear_into(x, xd_map_rows(s), xd_map_rows(xd_rows(old, t, 1)), w);
        xd_copy_to(x, xd_rows(to, t, 1), s);
    }
    xd_arena_rewind(x->tmp, mark);
    return to;
}

void xd_map_halve(xd_exec *x, xd_tensor to, xd_tensor in, const xd_cnv *w)
{
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor s = xd_map(x, 1, to.d[1], to.d[2], to.d[3]);
    xd_conv2d_into(x, s, in, w, &(xd_conv_options){ .stride = 2, .hi = (int[]){ 0, 1, 1 } });
    xd_copy_to(x, to, s);
    xd_arena_rewind(x->tmp, mark);
}

void xd_map_clamp(xd_exec *x, xd_tensor z, float most)
{
    const xd_tensor none = { 0 };
    xd_tensor       all = xd_reshape(z, 1, (int64_t[]){ xd_count(z) });
    xd_axpby(x, all, 0, none, 1 / most);
    xd_activate(x, xd_map_rows(z), XD_TANH);
    xd_axpby(x, all, 0, none, most);
}

int xd_map_image_fits(xd_exec *x, xd_tensor rgb, xd_tensor lat, int64_t f, int64_t C)
{
    return xd_check(x,
                    rgb.nd == 4 && lat.nd == 4 && lat.d[0] == rgb.d[0] && lat.d[2] > 0 &&
                        rgb.d[1] == lat.d[1] * f && rgb.d[2] == lat.d[2] * f && lat.d[3] == C,
                    "vae: an image of %lld x %lld pixels does not match latents of %lld x %lld "
                    "cells of %lld channels",
                    (long long)rgb.d[2], (long long)rgb.d[1], (long long)lat.d[2],
                    (long long)lat.d[1], (long long)lat.d[3]);
}

int xd_map_video_fits(xd_exec *x, xd_tensor rgb, xd_tensor lat, int64_t f, int64_t C,
                      int64_t frames)
{
    return xd_map_pixels_fit(x, rgb, 3, lat, f, C, frames);
}

int xd_map_pixels_fit(xd_exec *x, xd_tensor rgb, int K, xd_tensor lat, int64_t f, int64_t C,
                      int64_t frames)
{
    return xd_check(x,
                    rgb.nd == 4 && lat.nd == 4 && rgb.d[0] > 0 && lat.d[0] > 0 && lat.d[2] > 0 &&
                        rgb.d[1] == lat.d[1] * f && rgb.d[2] == lat.d[2] * f && rgb.d[3] == K &&
                        lat.d[3] == C && lat.d[0] == frames,
                    "vae: %lld frames of %lld x %lld pixels do not match %lld frames of %lld x "
                    "%lld cells of %lld channels",
                    (long long)rgb.d[0], (long long)rgb.d[2], (long long)rgb.d[1],
                    (long long)lat.d[0], (long long)lat.d[2], (long long)lat.d[1],
                    (long long)lat.d[3]);
}

void xd_map_no_variance(xd_exec *x, xd_tensor moments, int64_t C)
{
    xd_tensor one = xd_new_as(x, XD_F32, 4, (int64_t[]){ 1, 1, 1, 1 }), to = moments;
    xd_put(x, one, &SAME);
    for (int i = 0; i < 4; i++)
        one.d[i] = i < 3 ? to.d[i] : C, one.s[i] = 0;
    if (to.p)
        to.p = (char *)to.p + C * to.s[3] * (int64_t)xd_dtype_size(to.type);
    to.d[3] = C;
    xd_copy_to(x, to, one);
}

int xd_map_frames_fit(xd_exec *x, int64_t is, int64_t want)
{
    return xd_check(x, is == want, "vae: the output has %lld frames and needs %lld", (long long)is,
                    (long long)want);
}

xd_tensor xd_map_grouped(xd_tensor in, int64_t C, int64_t k, int64_t at, int64_t a, int64_t b)
{
    xd_tensor v = xd_view(in.p, in.type, 5, (int64_t[]){ in.d[1], C, in.d[2], a, b });
    v.s[0] = in.s[1], v.s[1] = k, v.s[2] = in.s[2], v.s[3] = b, v.s[4] = 1;
    if (v.p)
        v.p = (char *)v.p + at * (int64_t)xd_dtype_size(v.type);
    return v;
}

xd_tensor xd_map_spread(xd_tensor to, int64_t a, int64_t b)
{
    int64_t   C = to.d[3], W = to.d[2];
    xd_tensor v = xd_view(to.p, to.type, 5, (int64_t[]){ to.d[1] / a, C, W / b, a, b });
    v.s[0] = a * to.s[1], v.s[1] = to.s[3], v.s[2] = b * to.s[2], v.s[3] = to.s[1],
    v.s[4] = to.s[2];
    return v;
}

void xd_map_unpack(xd_exec *x, xd_tensor to, xd_tensor y, int64_t f, int64_t ft, int64_t at)
{
    int64_t H = y.d[1], W = y.d[2], C = to.d[3], cells = f * f;
    for (int64_t a = 0; a < to.d[0]; a++) {
        xd_tensor from = xd_view(y.p, y.type, 5, (int64_t[]){ H, W, C, f, f });
        from.s[0] = y.s[1], from.s[1] = y.s[2], from.s[2] = ft * cells;
        if (from.p)
            from.p = (char *)from.p + (at + a) * cells * (int64_t)xd_dtype_size(y.type);
        xd_tensor out = xd_reshape(xd_rows(to, a, 1), 5, (int64_t[]){ H, f, W, f, C });
        xd_copy_to(x, xd_permute(out, (int[]){ 0, 2, 4, 1, 3 }), from);
    }
}
