/* preview.c - makes previews: small images from the clean latents that a denoising step predicts */
#include "pipeline/preview.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/pixels.h"
#include "pipeline/preview_decoder.h"

enum { MOST = 128 }; /* max latent channels for learned colours */

int xd_preview_asked(const xd_job *j)
{
    return j->r->previews.count > 0 || j->r->previews.every > 0;
}

/* Returns 1 if a preview is made after this step. Of n evenly spaced previews, number k is made
 * after step round(k steps / (n + 1)). If two previews would be made after the same step, only one
 * is made. The last step has no preview, because the image itself follows. The steps are those of
 * all segments of a video. */
int xd_preview_due(const xd_job *j, int step)
{
    int64_t n = j->r->previews.count, at = step + 1 + j->segment * j->samp.steps;
    int64_t steps = j->segments ? j->segments * j->samp.steps : j->samp.steps;
    if (j->r->previews.every > 0 && at % j->r->previews.every == 0)
        return 1;
    for (int64_t k = 1; k <= n && at < steps; k++)
        if ((2 * k * steps + n + 1) / (2 * (n + 1)) == at)
            return 1;
    return 0;
}

/* ---- the inner cells of latents ------------------------------------------------------------- */

/* The first frame of latents. `lat` packs blocks of P x P latent cells into channels; unpacked, the
 * frame has C channels of h x w cells. */
typedef struct frame {
    const float *lat;
    int64_t      P, C, h, w;
} frame;

static frame first_frame(const xd_job *j, const float *lat)
{
    int64_t P = j->ctx->model.vae_info.pack, n = j->lat[1] * j->lat[2] * j->lat[3];
    return (frame){ lat + j->spare * n, P, j->lat[1] / (P * P), j->lat[2] * P, j->lat[3] * P };
}

static float value_at(const frame *f, int64_t c, int64_t y, int64_t x)
{
    int64_t P = f->P, channel = (c * P + y % P) * P + x % P;
    return f->lat[(channel * (f->h / P) + y / P) * (f->w / P) + x / P];
}

/* ---- learning ------------------------------------------------------------------------------- */

/* The sums from which the colours of latent cells are learned: the normal equations of the
 * least-squares fit pixel = values * to. The n values of a cell are its channels and the constant
 * 1. */
struct xd_colours {
    int64_t n, cells;
    double *squares; /* [n,n]: sums of products of two values */
    double *pixels;  /* [n,3]: sums of values times pixels */
};

void xd_colours_close(xd_colours **c)
{
    if (*c) {
        free((*c)->squares);
        free((*c)->pixels);
    }
    free(*c);
    *c = NULL;
}

static xd_colours *open_colours(int64_t n)
{
    xd_colours *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->n = n;
    c->squares = calloc((size_t)(n * n), sizeof *c->squares);
    c->pixels = calloc((size_t)(3 * n), sizeof *c->pixels);
    if (!c->squares || !c->pixels)
        xd_colours_close(&c);
    return c;
}

/* Computes the mean colour of the image's pixels that belong to one latent cell. */
static void mean_pixel(const xd_job *j, const frame *f, const float *rgb, int64_t y, int64_t x,
                       double mean[3])
{
    int64_t a = j->size[0] / f->h, b = j->size[1] / f->w;
    mean[0] = mean[1] = mean[2] = 0;
    for (int64_t i = y * a; i < (y + 1) * a; i++)
        for (int64_t k = x * b; k < (x + 1) * b; k++)
            for (int c = 0; c < 3; c++)
                mean[c] += (double)rgb[(i * j->size[1] + k) * j->channels + c] / (double)(a * b);
}

static void add_cell(xd_colours *s, const double *v, const double mean[3])
{
    for (int64_t i = 0; i < s->n; i++) {
        for (int64_t k = 0; k < s->n; k++)
            s->squares[i * s->n + k] += v[i] * v[k];
        for (int c = 0; c < 3; c++)
            s->pixels[i * 3 + c] += v[i] * mean[c];
    }
    s->cells++;
}

void xd_preview_learn(const xd_job *j, const float *lat, const float *rgb)
{
    xd_context *ctx = j->ctx;
    frame       f = first_frame(j, lat);
    double      v[MOST + 1], mean[3];
    if (ctx->model.vae_info.rgb || ctx->once || f.C > MOST)
        return;
    if (!ctx->caches->colours)
        ctx->caches->colours = open_colours(f.C + 1);
    xd_colours *colours = ctx->caches->colours;
    for (int64_t y = 0; colours && y < f.h; y++)
        for (int64_t x = 0; x < f.w; x++) {
            int finite = 1;
            for (int64_t c = 0; c < f.C; c++) {
                v[c] = value_at(&f, c, y, x);
                finite &= isfinite(v[c]) != 0;
            }
            v[f.C] = 1;
            mean_pixel(j, &f, rgb, y, x, mean);
            if (finite && isfinite(mean[0] + mean[1] + mean[2]))
                add_cell(colours, v, mean);
        }
}

/* Solves the equations a [n,n] x = b [n,3] by elimination, in place; a is positive definite. */
static void solve(int64_t n, double *a, double *b)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t r = i + 1; r < n; r++) {
            double w = a[r * n + i] / a[i * n + i];
            for (int64_t k = i; k < n; k++)
                a[r * n + k] -= w * a[i * n + k];
            for (int c = 0; c < 3; c++)
                b[r * 3 + c] -= w * b[i * 3 + c];
        }
    for (int64_t i = n - 1; i >= 0; i--)
        for (int c = 0; c < 3; c++) {
            for (int64_t k = i + 1; k < n; k++)
                b[i * 3 + c] -= a[i * n + k] * b[k * 3 + c];
            b[i * 3 + c] /= a[i * n + i];
        }
}

/* Writes the map [n,3] from channels to colours that fits the images so far; returns 0 if nothing
 * has been learned. Channels that the images do not distinguish get small factors. */
static int fit_colours(const xd_colours *s, float (*to)[3])
{
    double *a = s && s->cells ? malloc((size_t)(s->n * s->n) * sizeof *a) : NULL;
    double  b[3 * (MOST + 1)];
    if (!a)
        return 0;
    memcpy(a, s->squares, (size_t)(s->n * s->n) * sizeof *a);
    memcpy(b, s->pixels, (size_t)(3 * s->n) * sizeof *b);
    for (int64_t i = 0; i < s->n; i++)
        a[i * s->n + i] += 1e-3 * (double)s->cells;
    solve(s->n, a, b);
    for (int64_t i = 0; i < 3 * s->n; i++)
        to[i / 3][i % 3] = (float)b[i];
    free(a);
    return 1;
}

/* ---- colours -------------------------------------------------------------------------------- */

static void map_cells(const frame *f, const float (*to)[3], float *rgb)
{
    for (int64_t y = 0; y < f->h; y++)
        for (int64_t x = 0; x < f->w; x++, rgb += 3) {
            memcpy(rgb, to[f->C], 3 * sizeof *rgb);
            for (int64_t c = 0; c < f->C; c++) {
                float v = value_at(f, c, y, x);
                for (int k = 0; k < 3; k++)
                    rgb[k] += v * to[c][k];
            }
        }
}

/* Sets grey pixels: the sum of a cell's channels, normalized to mean 0 and standard deviation
 * 1/2. */
static void grey_cells(const frame *f, float *rgb)
{
    int64_t n = f->h * f->w;
    double  sum = 0, square = 0;
    for (int64_t i = 0; i < n; i++) {
        float v = 0;
        for (int64_t c = 0; c < f->C; c++)
            v += value_at(f, c, i / f->w, i % f->w);
        rgb[3 * i] = v;
        sum += (double)v, square += (double)v * (double)v;
    }
    double mean = sum / (double)n, spread = sqrt(fmax(square / (double)n - mean * mean, 0));
    for (int64_t i = 0; i < n; i++)
        rgb[3 * i] = rgb[3 * i + 1] = rgb[3 * i + 2] =
            spread > 0 ? (float)(((double)rgb[3 * i] - mean) / (2 * spread)) : 0;
}

static void colour_cells(const xd_job *j, const frame *f, float *rgb)
{
    float       learned[MOST + 1][3];
    const float (*known)[3] = j->ctx->model.vae_info.rgb;
    if (known)
        map_cells(f, known, rgb);
    else if (fit_colours(j->ctx->caches->colours, learned))
        map_cells(f, (const float (*)[3])learned, rgb);
    else
        grey_cells(f, rgb);
}

/* Makes an image of the first frame of clean latents, and sets the image's size. The image is
 * decoded, or has one pixel per latent cell. Returns a malloc'ed buffer, or NULL if there is no
 * memory. */
static float *decode_frame(const xd_job *j, const float *clean, xd_grid *size)
{
    frame  f = first_frame(j, clean);
    float *image = xd_preview_decode(j, f.lat, size);
    if (image)
        return image;
    *size = (xd_grid){ f.h, f.w };
    if ((image = malloc((size_t)(f.h * f.w * 3) * sizeof *image)))
        colour_cells(j, &f, image);
    return image;
}

/* Returns the size of a preview: the requested image size, or a smaller size of the same ratio with
 * XD_PREVIEW_SIDE pixels on the longer side. */
static xd_grid preview_size(const xd_job *j)
{
    int64_t H = j->asked[0], W = j->asked[1], side = H > W ? H : W;
    double  part = side > XD_PREVIEW_SIDE ? (double)XD_PREVIEW_SIDE / (double)side : 1;
    xd_grid to = { llround((double)H * part), llround((double)W * part) };
    return (xd_grid){ to.rows > 1 ? to.rows : 1, to.cols > 1 ? to.cols : 1 };
}

void xd_preview_report(const xd_job *j, const float *clean, const xd_progress *p)
{
    xd_grid  to = preview_size(j), from;
    int64_t  n = to.rows * to.cols * 3;
    float   *image = decode_frame(j, clean, &from);
    float   *rgb = malloc((size_t)n * sizeof *rgb);
    uint8_t *pixels = NULL;
    if (image && rgb) {
        xd_pixels_fit(image, from, rgb, to, 3, 0);
        pixels = xd_pixels_quantize(rgb, n, NULL);
    }
    if (pixels) {
        xd_image im = { .size = sizeof im,
                        .frames = 1,
                        .height = to.rows,
                        .width = to.cols,
                        .stride = to.cols * 3,
                        .channels = 3,
                        .data = pixels };
        j->r->callbacks.on_preview(j->r->callbacks.cookie, &im, p);
    }
    free(pixels);
    free(rgb);
    free(image);
}
