/* annotate.c - computes control images from photos as OpenCV's functions do (annotate.h) */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/annotate.h"
#include "base/minmax.h"

static const char names[] = "canny, canny:LOW:HIGH, tile, tile:N, gray, blur, blur:SIGMA or none";

typedef struct kind {
    const char       *name;
    xd_annotator_kind kind;
    int               most; /* max number of numbers */
    double            usual[2], min, max;
} kind;

static const kind kinds[] = {
    { "none", XD_ANNOTATE_NONE, 0, { 0 }, 0, 0 },
    { "canny", XD_ANNOTATE_CANNY, 2, { 100, 200 }, 0, 10000 },
    { "tile", XD_ANNOTATE_TILE, 1, { 8 }, 1, 64 },
    { "gray", XD_ANNOTATE_GRAY, 0, { 0 }, 0, 0 },
    { "blur", XD_ANNOTATE_BLUR, 1, { 9 }, 0.1, 200 },
};

/* ---- reading ------------------------------------------------------------------------------- */

static const kind *find_kind(const char *text, int64_t n)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if ((int64_t)strlen(kinds[i].name) == n && memcmp(kinds[i].name, text, (size_t)n) == 0)
            return &kinds[i];
    return NULL;
}

/* Reads a number of at most 31 characters. Returns 0 if the text is no number of the range. */
static int read_number(const char *text, int64_t n, const kind *k, double *v)
{
    char own[32], *end;
    if (n < 1 || n >= (int64_t)sizeof own)
        return 0;
    memcpy(own, text, (size_t)n);
    own[n] = '\0';
    *v = strtod(own, &end);
    return *end == '\0' && *v >= k->min && *v <= k->max;
}

static int is_power_of_2(double v)
{
    int64_t n = (int64_t)v;
    return v == (double)n && n > 0 && (n & (n - 1)) == 0;
}

xd_status xd_annotator_read(xd_annotator *a, const char *option, const char *text, int64_t n,
                            xd_err *e)
{
    const char *colon = memchr(text, ':', (size_t)n), *at = colon, *end = text + n;
    const kind *k = find_kind(text, colon ? colon - text : n);
    int         given = 0;
    if (!k)
        return xd_fail(e, XD_EINVAL, "%s \"%.*s\" is unknown; it can be %s", option, (int)n, text,
                       names);
    *a = (xd_annotator){ k->kind, { k->usual[0], k->usual[1] } };
    for (; at && at < end; given++) {
        const char *next = memchr(at + 1, ':', (size_t)(end - at - 1));
        double      v;
        if (given == k->most || !read_number(at + 1, (next ? next : end) - at - 1, k, &v))
            return xd_fail(e, XD_EINVAL,
                           "%s \"%.*s\" has numbers that %s cannot have; it can be %s, with "
                           "numbers from %g to %g for %s",
                           option, (int)n, text, k->name, names, k->min, k->max, k->name);
        a->v[given] = v;
        at = next;
    }
    if (k->kind == XD_ANNOTATE_CANNY && given == 1)
        return xd_fail(e, XD_EINVAL, "%s \"%.*s\" has one threshold; canny needs two: %s", option,
                       (int)n, text, "canny:LOW:HIGH");
    if (k->kind == XD_ANNOTATE_TILE && !is_power_of_2(a->v[0]))
        return xd_fail(e, XD_EINVAL, "%s \"%.*s\": N of tile:N must be a power of 2", option,
                       (int)n, text);
    return XD_OK;
}

/* ---- planes -------------------------------------------------------------------------------- */

static xd_status no_memory(int64_t w, int64_t h, xd_err *e)
{
    return xd_fail(e, XD_ENOMEM, "no memory for a control image of %lld x %lld pixels",
                   (long long)w, (long long)h);
}

/* Returns the index inside 0 .. n - 1 of which i is the mirror image; the outermost pixel is not
 * repeated (OpenCV's BORDER_REFLECT_101). */
static int64_t mirror(int64_t i, int64_t n)
{
    while (n > 1 && (i < 0 || i >= n))
        i = i < 0 ? -i : 2 * (n - 1) - i;
    return n > 1 ? i : 0;
}

static uint8_t to_byte(double v)
{
    return (uint8_t)(v <= 0 ? 0 : v >= 255 ? 255 : lrint(v));
}

/* ---- gray ---------------------------------------------------------------------------------- */

static xd_status gray(uint8_t *rgb, int64_t w, int64_t h)
{
    enum { R = 9798, G = 19235, B = 3735, BITS = 15 }; /* Rec. 601, in units of 2^-15 */
    for (int64_t i = 0; i < w * h; i++) {
        uint8_t *p = rgb + 3 * i;
        int      v = (p[0] * R + p[1] * G + p[2] * B + (1 << (BITS - 1))) >> BITS;
        p[0] = p[1] = p[2] = (uint8_t)v;
    }
    return XD_OK;
}

/* ---- canny --------------------------------------------------------------------------------- */

/* Gradients of an image: [h,w] dx and dy, and [h+2,w+2] magnitudes and states, with a border of
 * zeros. */
typedef struct edges {
    int64_t  w, h;
    int     *dx, *dy, *size;
    uint8_t *state;
    int64_t *stack, n; /* pixels of edges, from which other pixels may be reached */
} edges;

enum { WEAK = 1, EDGE = 2 };

/* Sets the gradient of the channel with the largest magnitude, the first one of several. Pixels
 * outside the image are copies of the outermost pixels. */
static void find_gradient(edges *g, const uint8_t *rgb, int64_t y, int64_t x)
{
    int64_t up = xd_max(y - 1, 0), down = xd_min(y + 1, g->h - 1), left = xd_max(x - 1, 0);
    int64_t right = xd_min(x + 1, g->w - 1), at = y * g->w + x, most = -1;
    for (int c = 0; c < 3; c++) {
        const uint8_t *a = rgb + 3 * up * g->w + c, *b = rgb + 3 * y * g->w + c;
        const uint8_t *d = rgb + 3 * down * g->w + c;
        int dx = a[3 * right] - a[3 * left] + 2 * (b[3 * right] - b[3 * left]) + d[3 * right] -
                 d[3 * left];
        int dy =
            d[3 * left] - a[3 * left] + 2 * (d[3 * x] - a[3 * x]) + d[3 * right] - a[3 * right];
        int size = abs(dx) + abs(dy);
        if (size <= most)
            continue;
        most = size;
        g->dx[at] = dx, g->dy[at] = dy;
        g->size[(y + 1) * (g->w + 2) + x + 1] = size;
    }
}

/* Returns 1 if the magnitude at a pixel is a maximum across the edge. Directions are rounded to
 * multiples of 45 degrees with the integers of OpenCV. */
static int is_maximum(const edges *g, int64_t y, int64_t x)
{
    enum { TAN_22 = 13573, SHIFT = 15 }; /* tan(22.5 degrees) in units of 2^-15 */
    const int64_t row = g->w + 2;
    const int    *m = &g->size[(y + 1) * row + x + 1];
    int           dx = g->dx[y * g->w + x], dy = g->dy[y * g->w + x];
    int64_t       flat = (int64_t)abs(dx) * TAN_22, up = (int64_t)abs(dy) << SHIFT;
    if (up < flat)
        return *m > m[-1] && *m >= m[1];
    if (up > flat + ((int64_t)abs(dx) << (SHIFT + 1)))
        return *m > m[-row] && *m >= m[row];
    int64_t s = (dx ^ dy) < 0 ? -1 : 1;
    return *m > m[-row - s] && *m > m[row + s];
}

/* Makes weak pixels edges if a chain of weak pixels connects them with a strong pixel. */
static void connect(edges *g)
{
    const int64_t row = g->w + 2;
    while (g->n) {
        int64_t at = g->stack[--g->n];
        for (int64_t k = 0; k < 9; k++) {
            int64_t other = at + (k / 3 - 1) * row + k % 3 - 1;
            if (g->state[other] == WEAK)
                g->state[other] = EDGE, g->stack[g->n++] = other;
        }
    }
}

static void find_edges(edges *g, const uint8_t *rgb, const double threshold[2])
{
    double  a = threshold[0], b = threshold[1];
    int     low = (int)floor(a < b ? a : b), high = (int)floor(a < b ? b : a);
    int64_t row = g->w + 2;
    for (int64_t y = 0; y < g->h; y++)
        for (int64_t x = 0; x < g->w; x++)
            find_gradient(g, rgb, y, x);
    for (int64_t y = 0; y < g->h; y++)
        for (int64_t x = 0; x < g->w; x++) {
            int64_t at = (y + 1) * row + x + 1;
            if (g->size[at] <= low || !is_maximum(g, y, x))
                continue;
            g->state[at] = g->size[at] > high ? EDGE : WEAK;
            if (g->state[at] == EDGE)
                g->stack[g->n++] = at;
        }
    connect(g);
}

static xd_status canny(const double threshold[2], uint8_t *rgb, int64_t w, int64_t h, xd_err *e)
{
    size_t n = (size_t)(w * h), wide = (size_t)((w + 2) * (h + 2));
    edges  g = { .w = w, .h = h };
    g.dx = calloc(n, sizeof *g.dx);
    g.dy = calloc(n, sizeof *g.dy);
    g.size = calloc(wide, sizeof *g.size);
    g.state = calloc(wide, 1);
    g.stack = calloc(n, sizeof *g.stack);
    int ok = g.dx && g.dy && g.size && g.state && g.stack;
    if (ok)
        find_edges(&g, rgb, threshold);
    for (int64_t i = 0; ok && i < w * h; i++)
        memset(rgb + 3 * i, g.state[(i / w + 1) * (w + 2) + i % w + 1] == EDGE ? 255 : 0, 3);
    free(g.dx), free(g.dy), free(g.size), free(g.state), free(g.stack);
    return ok ? XD_OK : no_memory(w, h, e);
}

/* ---- blur ---------------------------------------------------------------------------------- */

/* Convolves n elements, which are `step` elements apart, with a symmetric kernel. */
static void convolve(const double *kernel, int64_t reach, const float *in, float *out, int64_t n,
                     int64_t step)
{
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t k = -reach; k <= reach; k++)
            sum += kernel[k + reach] * in[mirror(i + k, n) * step];
        out[i * step] = (float)sum;
    }
}

static double *make_kernel(double sigma, int64_t *reach)
{
    int64_t n = lrint(sigma * 3 * 2 + 1) | 1; /* OpenCV's size for images of 8 bits */
    double *v = malloc((size_t)n * sizeof *v), sum = 0;
    *reach = n / 2;
    for (int64_t i = 0; v && i < n; i++)
        sum += v[i] = exp(-(double)((i - *reach) * (i - *reach)) / (2 * sigma * sigma));
    for (int64_t i = 0; v && i < n; i++)
        v[i] /= sum;
    return v;
}

static xd_status blur(double sigma, uint8_t *rgb, int64_t w, int64_t h, xd_err *e)
{
    int64_t reach, n = w * h;
    double *kernel = make_kernel(sigma, &reach);
    float  *a = malloc((size_t)n * sizeof *a), *b = malloc((size_t)n * sizeof *b);
    int     ok = kernel && a && b;
    for (int c = 0; ok && c < 3; c++) {
        for (int64_t i = 0; i < n; i++)
            a[i] = rgb[3 * i + c];
        for (int64_t y = 0; y < h; y++)
            convolve(kernel, reach, a + y * w, b + y * w, w, 1);
        for (int64_t x = 0; x < w; x++)
            convolve(kernel, reach, b + x, a + x, h, w);
        for (int64_t i = 0; i < n; i++)
            rgb[3 * i + c] = to_byte(a[i]);
    }
    free(kernel), free(a), free(b);
    return ok ? XD_OK : no_memory(w, h, e);
}

/* ---- tile ---------------------------------------------------------------------------------- */

/* Averages the pixels of the box that an output pixel covers. */
static void average_box(const uint8_t *rgb, int64_t w, const double box[4], uint8_t *to)
{
    double sum[3] = { 0 }, area = (box[1] - box[0]) * (box[3] - box[2]);
    for (int64_t y = (int64_t)box[0]; (double)y < box[1]; y++)
        for (int64_t x = (int64_t)box[2]; (double)x < box[3]; x++) {
            double tall = fmin((double)(y + 1), box[1]) - fmax((double)y, box[0]);
            double wide = fmin((double)(x + 1), box[3]) - fmax((double)x, box[2]);
            for (int c = 0; c < 3; c++)
                sum[c] += tall * wide * rgb[3 * (y * w + x) + c];
        }
    for (int c = 0; c < 3; c++)
        to[c] = to_byte(sum[c] / area);
}

/* Reduces an image to sw x sh pixels by the averages of boxes. */
static void reduce(const uint8_t *rgb, int64_t w, int64_t h, uint8_t *to, int64_t sw, int64_t sh)
{
    for (int64_t y = 0; y < sh; y++)
        for (int64_t x = 0; x < sw; x++) {
            double tall = (double)h / (double)sh, wide = (double)w / (double)sw;
            double box[4] = { (double)y * tall, fmin((double)(y + 1) * tall, (double)h),
                              (double)x * wide, fmin((double)(x + 1) * wide, (double)w) };
            average_box(rgb, w, box, to + 3 * (y * sw + x));
        }
}

/* Returns the weighted sum of pixels along an axis with which pyrUp computes an element between
 * zeros: 1, 6, 1 at even positions, and 4, 4 at odd ones. The last position repeats a pixel. */
static int up_sum(const int *v, int64_t n, int64_t step, int64_t i)
{
    int64_t k = i / 2, next = xd_min(k + 1, n - 1), last = k ? k - 1 : xd_min(1, n - 1);
    return i % 2 ? 4 * (v[k * step] + v[next * step])
                 : v[last * step] + 6 * v[k * step] + v[next * step];
}

/* Doubles the sides of an image (Burt and Adelson 1983). `sums` has 2 w h integers. */
static void pyramid_up(const uint8_t *in, int64_t w, int64_t h, uint8_t *out, int *line, int *sums)
{
    for (int c = 0; c < 3; c++) {
        for (int64_t y = 0; y < h; y++) {
            for (int64_t x = 0; x < w; x++)
                line[x] = in[3 * (y * w + x) + c];
            for (int64_t x = 0; x < 2 * w; x++)
                sums[y * 2 * w + x] = up_sum(line, w, 1, x);
        }
        for (int64_t y = 0; y < 2 * h; y++)
            for (int64_t x = 0; x < 2 * w; x++)
                out[3 * (y * 2 * w + x) + c] = (uint8_t)((up_sum(sums + x, h, 2 * w, y) + 32) >> 6);
    }
}

static xd_status tile(int64_t by, uint8_t **rgb, int64_t *w, int64_t *h, xd_err *e)
{
    int64_t  sw = xd_max(1, *w / by), sh = xd_max(1, *h / by);
    size_t   most = (size_t)(sw * sh * by * by);
    uint8_t *a = malloc(3 * most), *b = malloc(3 * most), *swap;
    int     *line = malloc((size_t)(sw * by) * sizeof *line), *sums = malloc(most * sizeof *sums);
    int      ok = a && b && line && sums;
    if (ok)
        reduce(*rgb, *w, *h, a, sw, sh);
    for (; ok && by > 1; by /= 2, sw *= 2, sh *= 2) {
        pyramid_up(a, sw, sh, b, line, sums);
        swap = a, a = b, b = swap;
    }
    free(b), free(line), free(sums);
    if (!ok) {
        free(a);
        return no_memory(*w, *h, e);
    }
    free(*rgb);
    *rgb = a, *w = sw, *h = sh;
    return XD_OK;
}

xd_status xd_annotate(const xd_annotator *a, uint8_t **rgb, int64_t *w, int64_t *h, xd_err *e)
{
    switch (a->kind) {
    case XD_ANNOTATE_CANNY: return canny(a->v, *rgb, *w, *h, e);
    case XD_ANNOTATE_TILE: return tile((int64_t)a->v[0], rgb, w, h, e);
    case XD_ANNOTATE_GRAY: return gray(*rgb, *w, *h);
    case XD_ANNOTATE_BLUR: return blur(a->v[0], *rgb, *w, *h, e);
    case XD_ANNOTATE_NONE: break;
    }
    return XD_OK;
}
