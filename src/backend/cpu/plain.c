/* plain.c - computes GEMMs and convolutions without a library, for the instruction set "c"
 *
 * A GEMM is computed as a convolution with one tap (a 1 x 1 kernel). Weights are packed as panels
 * of 16 output channels. For each group, tap and panel there are [in][16] floats, and the last
 * panel is padded with zeros. Products are added tap by tap and, within a tap, input by input, in
 * the same order for any number of threads. */
#include "backend/cpu/cpu.h"

#include <string.h>

#include "backend/op_args.h"
#include "base/par.h"

enum {
    PANEL = 16,
    ROWS = XD_PLAIN_ROWS,
    COLS = XD_PLAIN_COLS, /* rows and columns of the output in a work item */
    /* number of inputs whose products are summed before this sum is added to the total, which
     * reduces rounding errors */
    DEEP = 256,
};

static int64_t groups_of(const xd_weight *w)
{
    return w->groups > 1 ? w->groups : 1;
}

static int64_t panels_of(const xd_weight *w)
{
    return (w->out / groups_of(w) + PANEL - 1) / PANEL;
}

size_t xd_plain_pack_size(xd_weight *w)
{
    w->layout = 1;
    w->bytes = (size_t)(groups_of(w) * xd_weight_taps(w) * panels_of(w) * w->in * PANEL) *
               xd_dtype_size(w->type);
    return w->bytes;
}

xd_status xd_plain_pack(const xd_weight *w, xd_tensor src)
{
    int64_t G = groups_of(w), T = xd_weight_taps(w), P = panels_of(w), O = w->out / G;
    int64_t size = (int64_t)xd_dtype_size(src.type);
    if (w->type != XD_F32)
        return XD_EUNSUPPORTED;
    memset(w->p, 0, (size_t)(G * T * P * w->in * PANEL) * sizeof(float));
    for (int64_t o = 0; o < w->out; o++)
        for (int64_t i = 0; i < w->in; i++)
            for (int64_t t = 0; t < T; t++) {
                int64_t     g = o / O, p = o % O / PANEL, j = o % O % PANEL;
                float      *to = (float *)w->p + (((g * T + t) * P + p) * w->in + i) * PANEL + j;
                const char *from = (const char *)src.p + ((o * w->in + i) * T + t) * size;
                xd_convert(to, XD_F32, from, src.type, 1);
            }
    return XD_OK;
}

static const float *panel(const xd_weight *w, int64_t group, int64_t tap, int64_t p)
{
    return (const float *)w->p +
           ((group * xd_weight_taps(w) + tap) * panels_of(w) + p) * w->in * PANEL;
}

static void deep_tile(const xd_kernels *k, float *acc, const float *a, int64_t lda, const float *b,
                      int64_t n, int64_t K)
{
    for (int64_t i = 0; i < K; i += DEEP)
        k->tile(acc, COLS, a + i, lda, b + i * PANEL, n, K - i < DEEP ? K - i : DEEP);
}

/* ---- GEMM --------------------------------------------------------------------------------- */

typedef struct tiles_ctx {
    const xd_kernels *k;
    const xd_gemm    *a;
    xd_plain_tile_fn *fn;
    const void       *of;
    int64_t           across; /* number of work items in a row of the output */
} tiles_ctx;

static void tile_items(void *ctx, int64_t begin, int64_t end, int thread)
{
    const tiles_ctx *c = ctx;
    const xd_gemm   *a = c->a;
    float            acc[ROWS * COLS];
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        int64_t r0 = t / c->across * ROWS, c0 = t % c->across * COLS;
        int64_t n = a->out.d[0] - r0, m = a->out.d[1] - c0;
        n = n < ROWS ? n : ROWS;
        m = m < COLS ? m : COLS;
        c->fn(c->of, acc, r0, n, c0, m);
        c->k->epilogue(a, acc, COLS, r0, n, c0, m);
    }
}

void xd_plain_tiles(const xd_kernels *k, const xd_gemm *a, xd_plain_tile_fn *fn, const void *of)
{
    tiles_ctx c = { k, a, fn, of, (a->out.d[1] + COLS - 1) / COLS };
    xd_par_for((a->out.d[0] + ROWS - 1) / ROWS * c.across, tile_items, &c);
}

typedef struct gemm_ctx {
    const xd_kernels *k;
    const xd_gemm    *a;
} gemm_ctx;

static void gemm_tile(const void *ctx, float *acc, int64_t r0, int64_t n, int64_t c0, int64_t m)
{
    const gemm_ctx *c = ctx;
    const xd_gemm  *a = c->a;
    memset(acc, 0, (size_t)(ROWS * COLS) * sizeof *acc);
    for (int64_t j = 0; j < m; j += PANEL)
        deep_tile(c->k, acc + j, (const float *)a->in.p + r0 * a->in.s[0], a->in.s[0],
                  panel(a->w, 0, 0, (c0 + j) / PANEL), n, a->w->in);
}

void xd_plain_gemm(const xd_kernels *k, const xd_gemm *a)
{
    gemm_ctx c = { k, a };
    xd_plain_tiles(k, a, gemm_tile, &c);
}

/* ---- convolution -------------------------------------------------------------------------- */

typedef struct conv_ctx {
    const xd_kernels *k;
    const xd_conv    *a;
    /* number of work items of ROWS pixels in an image row; number of work items of COLS output
     * channels in a group */
    int64_t           runs, across;
} conv_ctx;

typedef struct conv_item { int64_t t, h, w0, n, group, c0, m; } conv_item;

/* Adds the products of one kernel tap for those pixels of the work item whose input pixel is inside
 * the image. */
static void conv_tap(const conv_ctx *c, const conv_item *i, const int at[3], float *acc)
{
    const xd_conv   *a = c->a;
    const xd_weight *w = a->w;
    int64_t          kh = w->kernel[1], kw = w->kernel[2], sw = a->stride[2];
    int64_t          t = i->t * a->stride[0] - a->lo[0] + at[0];
    int64_t          h = i->h * a->stride[1] - a->lo[1] + at[1];
    int64_t          x = i->w0 * sw - a->lo[2] + at[2], first = 0, last = i->n;
    if (t < 0 || t >= a->in.d[0] || h < 0 || h >= a->in.d[1])
        return;
    while (first < last && x + first * sw < 0)
        first++;
    while (last > first && x + (last - 1) * sw >= a->in.d[2])
        last--;
    if (first == last)
        return;
    const float *in = (const float *)a->in.p + t * a->in.s[0] + h * a->in.s[1] +
                      (x + first * sw) * a->in.s[2] + i->group * w->in;
    for (int64_t j = 0; j < i->m; j += PANEL)
        deep_tile(c->k, acc + first * COLS + j, in, sw * a->in.s[2],
                  panel(w, i->group, (at[0] * kh + at[1]) * kw + at[2], (i->c0 + j) / PANEL),
                  last - first, w->in);
}

/* Stores the sums of a work item. The epilogue is computed as for a GEMM whose rows are the pixels
 * of one image row. */
static void conv_store(const conv_ctx *c, const conv_item *i, const float *acc)
{
    const xd_conv *a = c->a;
    int64_t        O = a->w->out / groups_of(a->w);
    xd_gemm        g = { .out = a->out, .bias = a->bias, .residual = a->residual };
    xd_tensor     *both[2] = { &g.out, &g.residual };
    for (int k = 0; k < 2; k++)
        if (both[k]->p) {
            xd_tensor *y = both[k];
            y->p =
                (char *)y->p + (i->t * y->s[0] + i->h * y->s[1]) * (int64_t)xd_dtype_size(y->type);
            y->d[0] = y->d[2];
            y->d[1] = y->d[3];
            y->s[0] = y->s[2];
            y->s[1] = y->s[3];
            y->nd = 2;
        }
    c->k->epilogue(&g, acc, COLS, i->w0, i->n, i->group * O + i->c0, i->m);
}

static void conv_items(void *ctx, int64_t begin, int64_t end, int thread)
{
    const conv_ctx  *c = ctx;
    const xd_conv   *a = c->a;
    const xd_weight *w = a->w;
    int64_t          O = w->out / groups_of(w), G = groups_of(w);
    float            acc[ROWS * COLS];
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        int64_t   col = k % (c->across * G), rest = k / (c->across * G);
        conv_item i = { .group = col / c->across, .c0 = col % c->across * COLS };
        int       at[3];
        i.w0 = rest % c->runs * ROWS;
        i.h = rest / c->runs % a->out.d[1];
        i.t = rest / c->runs / a->out.d[1];
        i.n = a->out.d[2] - i.w0 < ROWS ? a->out.d[2] - i.w0 : ROWS;
        i.m = O - i.c0 < COLS ? O - i.c0 : COLS;
        memset(acc, 0, sizeof acc);
        for (at[0] = 0; at[0] < w->kernel[0]; at[0]++)
            for (at[1] = 0; at[1] < w->kernel[1]; at[1]++)
                for (at[2] = 0; at[2] < w->kernel[2]; at[2]++)
                    conv_tap(c, &i, at, acc);
        conv_store(c, &i, acc);
    }
}

void xd_plain_conv(const xd_kernels *k, const xd_conv *a)
{
    int64_t  G = groups_of(a->w), O = a->w->out / G;
    conv_ctx c = { k, a, (a->out.d[2] + ROWS - 1) / ROWS, (O + COLS - 1) / COLS };
    xd_par_for(a->out.d[0] * a->out.d[1] * c.runs * G * c.across, conv_items, &c);
}
