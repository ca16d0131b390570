/* image_difference.c - computes the level differences, PSNR and SSIM of two images */
#include "report/image_difference.h"

#include <math.h>
#include <stdlib.h>

#include "base/minmax.h"
#include "base/par.h"

/* MAPS: number of maps (arrays of values per pixel) that SSIM averages: the levels a and b of the
 * two images, and the products a a, b b and a b. */
enum { WINDOW = 11, MAPS = 5 };

/* ---- SSIM ---------------------------------------------------------------------------------- */

typedef struct windows { /* SSIM windows over one channel of a frame */
    /* the channel's level in the first pixel of each image; pixels are 3 bytes apart */
    const uint8_t *a, *b;
    int64_t        w, h;
    int64_t        cols, rows;    /* number of SSIM windows per row and per column of the image */
    int            side;          /* width and height of an SSIM window in pixels */
    double         share[WINDOW]; /* weight of a row or column within an SSIM window */
    double        *wide;          /* [MAPS][h][cols]: maps, filtered along rows */
    double        *sum;           /* [rows]: sum of the SSIM values of a row of windows */
} windows;

static void set_shares(windows *s)
{
    double all = 0;
    for (int i = 0; i < s->side; i++) {
        double d = i - (s->side - 1) / 2;
        s->share[i] = exp(-d * d / (2 * 1.5 * 1.5));
        all += s->share[i];
    }
    for (int i = 0; i < s->side; i++)
        s->share[i] /= all;
}

static double *wide_row(const windows *s, int map, int64_t y)
{
    return s->wide + (map * s->h + y) * s->cols;
}

static void weigh_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const windows *s = ctx;
    (void)thread;
    for (int64_t y = begin; y < end; y++)
        for (int64_t x = 0; x < s->cols; x++) {
            const uint8_t *a = s->a + (y * s->w + x) * 3, *b = s->b + (y * s->w + x) * 3;
            double         m[MAPS] = { 0 };
            for (int i = 0; i < s->side; i++) {
                double va = a[3 * i], vb = b[3 * i], share = s->share[i];
                m[0] += share * va;
                m[1] += share * vb;
                m[2] += share * va * va;
                m[3] += share * vb * vb;
                m[4] += share * va * vb;
            }
            for (int k = 0; k < MAPS; k++)
                wide_row(s, k, y)[x] = m[k];
        }
}

/* Returns the SSIM of a window: equation 13 of Wang et al. 2004. */
static double similarity(const double m[MAPS])
{
    const double c1 = 0.01 * 255 * 0.01 * 255, c2 = 0.03 * 255 * 0.03 * 255;
    double       ab = m[0] * m[1], aa = m[0] * m[0], bb = m[1] * m[1];
    return (2 * ab + c1) * (2 * (m[4] - ab) + c2) / ((aa + bb + c1) * (m[2] - aa + m[3] - bb + c2));
}

static void sum_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const windows *s = ctx;
    (void)thread;
    for (int64_t y = begin; y < end; y++) {
        s->sum[y] = 0;
        for (int64_t x = 0; x < s->cols; x++) {
            double m[MAPS] = { 0 };
            for (int k = 0; k < MAPS; k++)
                for (int i = 0; i < s->side; i++)
                    m[k] += s->share[i] * wide_row(s, k, y + i)[x];
            s->sum[y] += similarity(m);
        }
    }
}

static xd_status add_ssim(double *ssim, const uint8_t *a, const uint8_t *b, int64_t w, int64_t h,
                          xd_err *e)
{
    int64_t least = xd_min(w, h);
    windows s = { .w = w, .h = h };
    double  sum = 0;
    s.side = (int)(least >= WINDOW ? WINDOW : (least - 1) / 2 * 2 + 1);
    s.cols = w - s.side + 1;
    s.rows = h - s.side + 1;
    s.wide = malloc((size_t)(MAPS * h * s.cols) * sizeof *s.wide);
    s.sum = malloc((size_t)s.rows * sizeof *s.sum);
    set_shares(&s);
    for (int c = 0; c < 3 && s.wide && s.sum; c++) {
        s.a = a + c;
        s.b = b + c;
        xd_par_for(h, weigh_rows, &s);
        xd_par_for(s.rows, sum_rows, &s);
        for (int64_t y = 0; y < s.rows; y++)
            sum += s.sum[y];
    }
    *ssim += sum / (3 * (double)s.rows * (double)s.cols);
    xd_status st = s.wide && s.sum ? XD_OK
                                   : xd_fail(e, XD_ENOMEM,
                                             "no memory to compare images of "
                                             "%lldx%lld",
                                             (long long)w, (long long)h);
    free(s.wide);
    free(s.sum);
    return st;
}

/* ---- levels -------------------------------------------------------------------------------- */

xd_status xd_difference_add(xd_difference *d, const uint8_t *a, const uint8_t *b, int64_t w,
                            int64_t h, xd_err *e)
{
    int64_t n = w * h * 3, squared = 0, absolute = 0;
    for (int64_t i = 0; i < n; i++) {
        int by = abs(a[i] - b[i]);
        squared += by * by;
        absolute += by;
        d->most = by > d->most ? by : d->most;
    }
    if (!d->frames || (double)squared > d->worst_squared) {
        d->worst = d->frames;
        d->worst_squared = (double)squared;
    }
    d->frames++;
    d->levels += n;
    d->squared += (double)squared;
    d->absolute += (double)absolute;
    return add_ssim(&d->ssim, a, b, w, h, e);
}

double xd_difference_psnr(const xd_difference *d)
{
    return 10 * log10(255.0 * 255.0 * (double)d->levels / d->squared);
}

void xd_difference_map(const uint8_t *a, const uint8_t *b, int64_t w, int64_t h, uint8_t *to)
{
    for (int64_t i = 0; i < w * h; i++) {
        int most = 0;
        for (int c = 0; c < 3; c++) {
            int by = abs(a[3 * i + c] - b[3 * i + c]);
            most = by > most ? by : most;
        }
        for (int c = 0; c < 3; c++)
            to[3 * i + c] = (uint8_t)lrint(255 * log2(1 + most) / 8);
    }
}
