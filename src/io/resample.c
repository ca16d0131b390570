/* resample.c - resizes an image with the same filters as Pillow.
 *
 * An image is resized in two passes, one per axis. An output pixel is the weighted sum of a window
 * of input pixels; the window is wider when the image shrinks. Weights are integers, and every pass
 * rounds to 8 bits, so that the result is bitwise equal to Pillow's. The order of the passes is
 * that of Pillow 13. Earlier versions of Pillow always begin with rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/image.h"

enum { BITS = 22 };

typedef struct window { /* the input pixels of one output pixel, along one axis */
    int64_t  at, n;     /* at: index of the first input pixel; n: number of input pixels */
    int32_t *w;         /* weights of the input pixels, multiplied by 2^BITS */
} window;

/* Filter functions: each returns its filter's weight at distance x, where |x| is less than the
 * filter's reach. */
static double lanczos(double x)
{
    const double pi = 3.14159265358979323846;
    return x == 0 ? 1 : sin(pi * x) / (pi * x) * sin(pi * x / 3) / (pi * x / 3);
}

static double bicubic(double x)
{
    const double a = -0.5, v = fabs(x);
    return v < 1 ? ((a + 2) * v - (a + 3)) * v * v + 1 : (((v - 5) * v + 8) * v - 4) * a;
}

static double bilinear(double x)
{
    return 1 - fabs(x);
}

static const struct {
    double reach;
    double (*at)(double x);
} filters[] = {
    [XD_LANCZOS] = { 3, lanczos },
    [XD_BICUBIC] = { 2, bicubic },
    [XD_BILINEAR] = { 1, bilinear },
};

static double weight_at(xd_filter f, double x)
{
    return fabs(x) < filters[f].reach ? filters[f].at(x) : 0;
}

/* An axis is resized from `in` to `out` pixels. Computes the window of each output pixel, which is
 * a range of input pixels with weights. All windows and weights of an axis are in one allocation.
 * Returns NULL if out of memory. */
static window *make_windows(xd_filter f, int64_t in, int64_t out)
{
    double  scale = (double)in / (double)out, wide = scale > 1 ? scale : 1,
            reach = filters[f].reach * wide;
    int64_t taps = (int64_t)ceil(reach) * 2 + 1;
    window *all = malloc((size_t)out * (sizeof *all + (size_t)taps * sizeof(int32_t)));
    double *k = malloc((size_t)taps * sizeof *k);
    for (int64_t i = 0; all && k && i < out; i++) {
        window *w = &all[i];
        double  centre = ((double)i + 0.5) * scale, sum = 0;
        int64_t a = (int64_t)(centre - reach + 0.5), b = (int64_t)(centre + reach + 0.5);
        w->at = a < 0 ? 0 : a;
        w->n = (b > in ? in : b) - w->at;
        w->w = (int32_t *)(void *)(all + out) + i * taps;
        for (int64_t x = 0; x < w->n; x++)
            sum += k[x] = weight_at(f, ((double)(x + w->at) - centre + 0.5) / wide);
        for (int64_t x = 0; x < w->n; x++) {
            double v = sum != 0 ? k[x] / sum * (1 << BITS) : 0;
            w->w[x] = (int32_t)(v < 0 ? v - 0.5 : v + 0.5);
        }
    }
    if (!k) {
        free(all);
        all = NULL;
    }
    free(k);
    return all;
}

/* Returns one channel of one output pixel. Neighbouring input pixels are `step` bytes apart. */
static uint8_t weighted_sum(const window *w, const uint8_t *in, int64_t step)
{
    int64_t sum = 1 << (BITS - 1);
    for (int64_t x = 0; x < w->n; x++)
        sum += (int64_t)in[(w->at + x) * step] * w->w[x];
    sum >>= BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

static uint8_t *resample_rows(xd_filter f, const uint8_t *rgb, int64_t w, int64_t h, int64_t to,
                              int64_t C)
{
    window  *win = make_windows(f, w, to);
    uint8_t *out = win ? malloc((size_t)(to * h * C)) : NULL;
    for (int64_t y = 0; out && y < h; y++)
        for (int64_t i = 0; i < to * C; i++)
            out[y * to * C + i] = weighted_sum(&win[i / C], rgb + y * w * C + i % C, C);
    free(win);
    return out;
}

static uint8_t *resample_columns(xd_filter f, const uint8_t *rgb, int64_t w, int64_t h, int64_t to,
                                 int64_t C)
{
    window  *win = make_windows(f, h, to);
    uint8_t *out = win ? malloc((size_t)(w * to * C)) : NULL;
    for (int64_t y = 0; out && y < to; y++)
        for (int64_t i = 0; i < w * C; i++)
            out[y * w * C + i] = weighted_sum(&win[y], rgb + i, w * C);
    free(win);
    return out;
}

xd_status xd_image_resize(uint8_t **rgb, int64_t w, int64_t h, int64_t to_w, int64_t to_h,
                          xd_err *e)
{
    return xd_image_resize_by(rgb, XD_LANCZOS, w, h, to_w, to_h, e);
}

/* Resizes an image of w x h pixels of C bytes. */
static xd_status resample(uint8_t **rgb, xd_filter f, int64_t w, int64_t h, int64_t to_w,
                          int64_t to_h, int64_t C, xd_err *e)
{
    int down_first = h - to_h > 2 * (w > to_w ? w - to_w : 0);
    for (int pass = 0; pass < 2; pass++) {
        int is_down = (pass == 0) == down_first;
        if (is_down ? h == to_h : w == to_w)
            continue;
        uint8_t *next = is_down ? resample_columns(f, *rgb, w, h, to_h, C)
                                : resample_rows(f, *rgb, w, h, to_w, C);
        if (!next)
            return xd_fail(e, XD_ENOMEM, "no memory for an image of %lld x %lld", (long long)to_w,
                           (long long)to_h);
        free(*rgb);
        *rgb = next;
        *(is_down ? &h : &w) = is_down ? to_h : to_w;
    }
    return XD_OK;
}

xd_status xd_image_resize_by(uint8_t **rgb, xd_filter f, int64_t w, int64_t h, int64_t to_w,
                             int64_t to_h, xd_err *e)
{
    return resample(rgb, f, w, h, to_w, to_h, 3, e);
}

/* ---- alpha --------------------------------------------------------------------------------- */

/* Multiplies colours by alpha or, if `back` is set, divides them by alpha, with the roundings of
 * Pillow's modes RGBa and RGBA. */
static void multiply_alpha(uint8_t *rgba, int64_t n, int back)
{
    for (int64_t i = 0; i < 4 * n; i++) {
        uint32_t alpha = rgba[i | 3], v = rgba[i] * alpha + 128;
        if (i % 4 == 3 || (back && (!alpha || alpha == 255)))
            continue;
        v = back ? 255u * rgba[i] / alpha : ((v >> 8) + v) >> 8;
        rgba[i] = (uint8_t)(v < 255 ? v : 255);
    }
}

xd_status xd_image_resize_alpha(uint8_t **rgba, int64_t w, int64_t h, int64_t to_w, int64_t to_h,
                                xd_err *e)
{
    if (w == to_w && h == to_h)
        return XD_OK;
    multiply_alpha(*rgba, w * h, 0);
    xd_status s = resample(rgba, XD_LANCZOS, w, h, to_w, to_h, 4, e);
    if (s == XD_OK)
        multiply_alpha(*rgba, to_w * to_h, 1);
    return s;
}
