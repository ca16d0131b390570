/* pixels.c - converts pixels between bytes and floats, and resizes float pixels */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "pipeline/pixels.h"
#include "base/par.h"

xd_status xd_pixels_floats(float **out, const uint8_t *rgb, xd_grid size, int channels, xd_err *e)
{
    int64_t n = size.rows * size.cols * channels;
    if (!(*out = malloc((size_t)n * sizeof **out)))
        return xd_fail(e, XD_ENOMEM, "no memory for an image");
    for (int64_t i = 0; i < n; i++)
        (*out)[i] = 2 * ((float)rgb[i] / 255) - 1;
    return XD_OK;
}

uint8_t *xd_pixels_quantize(const float *rgb, int64_t n, int64_t *odd)
{
    uint8_t *out = malloc((size_t)n + 1);
    int64_t  bad = 0;
    for (int64_t i = 0; out && i < n; i++) {
        float v = rgb[i] * 0.5f + 0.5f;
        bad += !(fabsf(v) <= FLT_MAX);
        v = v > 0 ? v < 1 ? v : 1 : 0; /* NaN becomes 0, a black pixel */
        out[i] = (uint8_t)lrintf(v * 255);
    }
    if (odd)
        *odd += bad;
    return out;
}

/* ---- resizing ----------------------------------------------------------------------------- */

/* The arguments of a bilinear resize with half-pixel centres (align_corners=False). */
typedef struct fit {
    const float *in;
    float       *out;
    int64_t      ih, iw, ow; /* height and width of the input image; width of the output image */
    int64_t      row;        /* pixels from one row of the output image to the next */
    int64_t      y0, x0;     /* offset of the cropped output in the resized image */
    double       sy, sx;     /* input pixels per pixel of the resized image */
    int          C;          /* channels */
} fit;

typedef struct tap {
    int64_t a, b;
    float   wb;
} tap;

static tap tap_of(int64_t i, double step, int64_t n)
{
    double at = ((double)i + 0.5) * step - 0.5;
    at = at < 0 ? 0 : at;
    int64_t a = (int64_t)at;
    a = a < n - 1 ? a : n - 1;
    return (tap){ a, a + 1 < n ? a + 1 : a, (float)(at - (double)a) };
}

static void fit_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const fit *f = ctx;
    (void)thread;
    for (int64_t y = begin; y < end; y++) {
        tap          ty = tap_of(y + f->y0, f->sy, f->ih);
        const float *ra = f->in + ty.a * f->iw * f->C, *rb = f->in + ty.b * f->iw * f->C;
        for (int64_t x = 0; x < f->ow; x++) {
            tap tx = tap_of(x + f->x0, f->sx, f->iw);
            for (int c = 0; c < f->C; c++) {
                float top = ra[tx.a * f->C + c] * (1 - tx.wb) + ra[tx.b * f->C + c] * tx.wb;
                float low = rb[tx.a * f->C + c] * (1 - tx.wb) + rb[tx.b * f->C + c] * tx.wb;
                f->out[(y * f->row + x) * f->C + c] = top * (1 - ty.wb) + low * ty.wb;
            }
        }
    }
}

void xd_pixels_fit(const float *rgb, xd_grid from, float *out, xd_grid to, int channels, int up)
{
    int64_t ih = from.rows, iw = from.cols, oh = to.rows, ow = to.cols;
    double  ratio = fmax((double)oh / (double)ih, (double)ow / (double)iw);
    double  sides[2] = { (double)ih * ratio, (double)iw * ratio };
    int64_t rh = (int64_t)(up ? ceil(sides[0]) : sides[0]);
    int64_t rw = (int64_t)(up ? ceil(sides[1]) : sides[1]);
    rh = rh < oh ? oh : rh; /* rounding down may make the resized image smaller than the output */
    rw = rw < ow ? ow : rw;
    fit f = { rgb,
              out,
              ih,
              iw,
              ow,
              ow,
              (rh - oh) / 2,
              (rw - ow) / 2,
              (double)ih / (double)rh,
              (double)iw / (double)rw,
              channels };
    xd_par_for(oh, fit_rows, &f);
}

void xd_pixels_within(const float *rgb, xd_grid from, float *out, xd_grid to, float ground)
{
    double  ratio = fmin((double)to.rows / (double)from.rows, (double)to.cols / (double)from.cols);
    int64_t rh = (int64_t)((double)from.rows * ratio), rw = (int64_t)((double)from.cols * ratio);
    rh = rh > 1 ? rh : 1;
    rw = rw > 1 ? rw : 1;
    int64_t y = (to.rows - rh) / 2, x = (to.cols - rw) / 2;
    for (int64_t i = 0; i < to.rows * to.cols * 3; i++)
        out[i] = ground;
    fit f = { .in = rgb,
              .out = out + (y * to.cols + x) * 3,
              .ih = from.rows,
              .iw = from.cols,
              .ow = rw,
              .row = to.cols,
              .sy = (double)from.rows / (double)rh,
              .sx = (double)from.cols / (double)rw,
              .C = 3 };
    xd_par_for(rh, fit_rows, &f);
}
