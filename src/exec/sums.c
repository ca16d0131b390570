/* sums.c - adds the terms of a source (LoRA) to tensors while they are read.
 *
 * If a matrix is packed in bands, the terms of its rows are added to the copy of each band
 * (matrix.c), so that the complete sum is never in memory. Any other tensor to which terms are
 * added is replaced by the sum of the stored tensor and all terms. */
#include "exec/matrix.h"

#include <stdlib.h>

#include "base/minmax.h"
#include "base/par.h"

enum { BAND = 64 }; /* number of rows that a thread sums at a time */

static int sums_name(const xd_decl *d, const char *name)
{
    return d->src && d->src->sums && d->src->sums->has(d->src->sums_self, name);
}

int xd_sum_is(const xd_decl *d, const char *names, const char *suffix)
{
    char full[512];
    if (!d->src || !d->src->sums)
        return 0;
    xd_load_name(d, names, suffix, full);
    return sums_name(d, full);
}

size_t xd_sum_bytes(const xd_decl *d, const char *names, const char *suffix, int64_t n, int whole)
{
    char full[512];
    if (!xd_sum_is(d, names, suffix))
        return 0;
    xd_load_name(d, names, suffix, full);
    return d->src->sums->takes(d->src->sums_self, full) + (whole ? (size_t)n * sizeof(float) : 0);
}

int xd_sum_open(xd_decl *d, xd_fetched *f, const xd_span *span, int n)
{
    if (d->visit != XD_VISIT_LOAD || !sums_name(d, f->name))
        return 1;
    return d->src->sums->open(d->src->sums_self, f->name, span, n, &f->sum, d->err) == XD_OK;
}

void xd_sum_add(const xd_decl *d, const xd_fetched *f, int64_t row, int64_t n, float *to,
                int thread)
{
    if (f->sum)
        d->src->sums->add(f->sum, row, n, to, thread);
}

void xd_sum_close(const xd_decl *d, xd_fetched *f)
{
    if (f->sum)
        d->src->sums->close(f->sum);
    f->sum = NULL;
}

typedef struct summing {
    const xd_decl    *d;
    const xd_fetched *f;
    float            *to;
    float             scale; /* scale of 8-bit elements */
    int64_t           rows, cols;
} summing;

static void sum_band(void *ctx, int64_t begin, int64_t end, int thread)
{
    const summing *s = ctx;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i * BAND, n = xd_min(s->rows - row, BAND);
        float  *to = s->to + row * s->cols;
        if (s->f->codes.read)
            for (int64_t k = 0; k < n; k++)
                xd_load_decoded(to + k * s->cols, XD_F32, &s->f->codes, row + k, 0, s->cols);
        else
            xd_load_elements(to, XD_F32, s->f->t, row * s->cols, n * s->cols, s->scale);
        xd_sum_add(s->d, s->f, row, n, to, thread);
    }
}

int xd_sum_whole(xd_decl *d, xd_fetched *f)
{
    summing s = { .d = d, .f = f, .rows = f->t.d[0] };
    if (d->visit != XD_VISIT_LOAD || !sums_name(d, f->name) || !xd_count(f->t))
        return 1;
    s.cols = xd_count(f->t) / s.rows;
    s.scale = xd_load_scale(d, f->name, f->t.type);
    if (!(s.to = f->hold = malloc((size_t)xd_count(f->t) * sizeof(float)))) {
        xd_fail(d->err, XD_ENOMEM, "no memory to add terms to weight %s", f->name);
        return 0;
    }
    if (!xd_sum_open(d, f, &(xd_span){ 0, s.cols }, 1))
        return 0;
    xd_par_dynamic((s.rows + BAND - 1) / BAND, sum_band, &s);
    xd_sum_close(d, f);
    f->t = xd_view(s.to, XD_F32, f->t.nd, f->t.d);
    f->codes.read = NULL;
    return 1;
}
