/* lora_source.c - the source of a component with LoRA terms
 *
 * A read returns the checkpoint's tensor plus the terms, in f32. A tensor without terms
 * passes unchanged. */
#include "model/lora.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/par.h"
#include "model/component.h"

typedef struct hit {            /* a tensor with terms, under one of its names                 */
    char   name[512];
    const xd_lora_term *terms;
    int    n;
    float *sum;                 /* the sum while the tensor is being read; otherwise NULL      */
} hit;

struct xd_lora_src {
    xd_source inner;
    hit      *hits;             /* sorted by name                                              */
    int       n;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const hit *)a)->name, ((const hit *)b)->name);
}

static int of_name(const void *name, const void *b)
{
    return strcmp(name, ((const hit *)b)->name);
}

static hit *find_hit(const xd_lora_src *s, const char *name)
{
    return bsearch(name, s->hits, (size_t)s->n, sizeof *s->hits, of_name);
}

/* ---- one term ----------------------------------------------------------------------------- */

typedef struct adder {
    const xd_lora_term *t;
    const float        *up, *down;      /* [rows, rank] and [rank, cols]; or [rows, cols] alone */
    float              *to;     /* [rows, cols]                                                */
} adder;

/* to += a[0] x[0] + .. + a[3] x[3]; the rows of x are n apart. */
static void add_four(float *restrict to, const float a[4], const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += a[0] * x[i] + a[1] * x[n + i] + a[2] * x[2 * n + i] + a[3] * x[3 * n + i];
}

static void add_one(float *restrict to, float a, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += a * x[i];
}

static void add_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const adder        *w = ctx;
    const xd_lora_term *t = w->t;
    float               gain = (float)t->gain, a[4];
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        int64_t from = t->swap ? (r + t->rows / 2) % t->rows : r, k = 0;
        float  *to = w->to + r * t->cols;
        if (!w->down) {
            add_one(to, gain, w->up + from * t->cols, t->cols);
            continue;
        }
        const float *u = w->up + from * t->rank;
        for (; k + 4 <= t->rank; k += 4) {
            for (int i = 0; i < 4; i++)
                a[i] = gain * u[k + i];
            add_four(to, a, w->down + k * t->cols, t->cols);
        }
        for (; k < t->rank; k++)
            add_one(to, gain * u[k], w->down + k * t->cols, t->cols);
    }
}

/* Elements [first, first + n) of a tensor as f32; malloc'ed. */
static xd_status read_elements(xd_st *file, int64_t i, int64_t first, int64_t n, float **out,
                               xd_err *e)
{
    xd_tensor t;
    xd_status s = xd_st_get(file, i, &t, e);
    if (s != XD_OK)
        return s;
    if ((*out = malloc((size_t)n * sizeof **out + 1)))
        xd_convert(*out, XD_F32, (const char *)t.p + (size_t)first * xd_dtype_size(t.type), t.type,
                   n);
    else
        s = xd_fail(e, XD_ENOMEM, "no memory for LoRA tensor %s", xd_st_name(file, i));
    xd_st_done(file, i);
    return s;
}

/* Rows [row0, row0 + rows) of a factor as f32; malloc'ed. */
static xd_status read_factor(xd_st *file, const xd_lora_factor *f, int64_t row0, int64_t rows,
                             float **out, xd_err *e)
{
    float    *a = NULL, *b = NULL;
    int64_t   wide = f->b < 0 ? f->cols : f->rank;
    xd_status s = read_elements(file, f->a, row0 * wide, rows * wide, &a, e);
    if (s != XD_OK || f->b < 0) {
        *out = a;
        return s;
    }
    s = read_elements(file, f->b, 0, f->rank * f->cols, &b, e);
    if (s == XD_OK && !(*out = calloc((size_t)(rows * f->cols) + 1, sizeof **out)))
        s = xd_fail(e, XD_ENOMEM, "no memory for LoRA tensor %s", xd_st_name(file, f->a));
    if (s == XD_OK) {
        xd_lora_term t = { .rows = rows, .cols = f->cols, .rank = f->rank, .gain = 1 };
        adder        w = { &t, a, b, *out };
        xd_par_for(rows, add_rows, &w);
    }
    free(a);
    free(b);
    return s;
}

/* The factors of w->t are w->up and w->down: of LoHa the rows of the term, of LoKr all rows. */
static void add_both_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const adder        *w = ctx;
    const xd_lora_term *t = w->t;
    float               gain = (float)t->gain;
    int64_t             wide = t->w[0].cols, part = t->w[1].cols;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        int64_t from = t->swap ? (r + t->rows / 2) % t->rows : r, at = t->row0 + from;
        float  *to = w->to + r * t->cols;
        if (t->kind == XD_LORA_HADAMARD) {
            for (int64_t c = 0; c < t->cols; c++)
                to[c] += gain * w->up[from * t->cols + c] * w->down[from * t->cols + c];
            continue;
        }
        const float *u = w->up + at / t->w[1].rows * wide;
        for (int64_t c = 0; c < wide; c++)
            add_one(to + c * part, gain * u[c], w->down + at % t->w[1].rows * part, part);
    }
}

/* The rows of a factor that a term reads. */
static int64_t factor_rows(const xd_lora_term *t, int k)
{
    return t->kind == XD_LORA_HADAMARD ? t->rows : t->w[k].rows;
}

static xd_status add_both(const xd_lora_term *t, float *to, xd_err *e)
{
    float    *f[2] = { NULL, NULL };
    int64_t   row0 = t->kind == XD_LORA_HADAMARD ? t->row0 : 0;
    xd_status s = XD_OK;
    for (int k = 0; k < 2 && s == XD_OK; k++)
        s = read_factor(t->file, &t->w[k], row0, factor_rows(t, k), &f[k], e);
    if (s == XD_OK) {
        adder w = { t, f[0], f[1], to };
        xd_par_for(t->rows, add_both_rows, &w);
    }
    free(f[0]);
    free(f[1]);
    return s;
}

static xd_status add_term(const xd_lora_term *t, float *to, xd_err *e)
{
    if (t->kind != XD_LORA_PRODUCT)
        return add_both(t, to, e);
    float    *up = NULL, *down = NULL;
    int64_t   wide = t->down < 0 ? t->cols : t->rank;
    xd_status s = read_elements(t->file, t->up, t->row0 * wide, t->rows * wide, &up, e);
    if (s == XD_OK && t->down >= 0)
        s = read_elements(t->file, t->down, 0, t->rank * t->cols, &down, e);
    if (s == XD_OK) {
        adder w = { t, up, down, to };
        xd_par_for(t->rows, add_rows, &w);
    }
    free(up);
    free(down);
    return s;
}

/* ---- the source --------------------------------------------------------------------------- */

static int src_has(void *self, const char *name, xd_tensor *shape)
{
    const xd_lora_src *s = self;
    int                has = s->inner.has(s->inner.self, name, shape);
    if (has && find_hit(s, name))
        shape->type = XD_F32;
    return has;
}

/* The elements of a tensor as f32; those of 8-bit types are multiplied by their scale. */
static xd_status scaled_elements(const xd_source *src, const char *name, xd_tensor t, float *to,
                                 xd_err *e)
{
    float     scale = 1;
    int       eight = src->scale && xd_dtype_size(t.type) == 1;
    xd_status s = eight ? src->scale(src->self, name, &scale, e) : XD_OK;
    xd_convert(to, XD_F32, t.p, t.type, xd_count(t));
    for (int64_t i = 0; i < xd_count(t) && scale != 1.0f; i++)
        to[i] *= scale;
    return s;
}

static xd_status src_get(void *self, const char *name, xd_tensor *t, xd_err *e)
{
    xd_lora_src *s = self;
    hit         *h = find_hit(s, name);
    xd_status    st = s->inner.get(s->inner.self, name, t, e);
    if (st != XD_OK || !h)
        return st;
    if (!h->sum && !(h->sum = malloc((size_t)xd_count(*t) * sizeof *h->sum + 1)))
        st = xd_fail(e, XD_ENOMEM, "no memory to add LoRA terms to tensor %s", name);
    if (st == XD_OK)
        st = scaled_elements(&s->inner, name, *t, h->sum, e);
    if (s->inner.done)
        s->inner.done(s->inner.self, name);
    for (int i = 0; st == XD_OK && i < h->n; i++)
        st = add_term(&h->terms[i], h->sum, e);
    *t = xd_view(h->sum, XD_F32, t->nd, t->d);
    return st;
}

static void src_done(void *self, const char *name)
{
    xd_lora_src *s = self;
    hit         *h = find_hit(s, name);
    if (h) {
        free(h->sum);
        h->sum = NULL;
    } else if (s->inner.done) {
        s->inner.done(s->inner.self, name);
    }
}

static xd_status src_scale(void *self, const char *name, float *scale, xd_err *e)
{
    const xd_lora_src *s = self;
    *scale = 1;
    return find_hit(s, name) || !s->inner.scale ? XD_OK
                                                : s->inner.scale(s->inner.self, name, scale, e);
}

static void src_past(void *self, const char *name, const void *p, size_t bytes)
{
    const xd_lora_src *s = self;
    if (s->inner.past && !find_hit(s, name))
        s->inner.past(s->inner.self, name, p, bytes);
}

/* Elements that adding a term holds beside the sum. */
static int64_t term_takes(const xd_lora_term *t)
{
    int64_t n = 0, most = 0;
    if (t->kind == XD_LORA_PRODUCT)
        return t->down < 0 ? t->rows * t->cols : (t->rows + t->cols) * t->rank;
    for (int k = 0; k < 2; k++) {
        int64_t rows = factor_rows(t, k), pair = (rows + t->w[k].cols) * t->w[k].rank;
        n += rows * t->w[k].cols;
        most = pair > most ? pair : most;
    }
    return n + most;
}

/* Bytes of the sum and of the matrices of one term. */
static size_t src_takes(void *self, const char *name)
{
    const xd_lora_src *s = self;
    const hit         *h = find_hit(s, name);
    xd_tensor          t;
    int64_t            most = 0;
    if (!h || !s->inner.has(s->inner.self, name, &t))
        return 0;
    for (int i = 0; i < h->n; i++) {
        int64_t n = term_takes(&h->terms[i]);
        most = n > most ? n : most;
    }
    return (size_t)(xd_count(t) + most) * sizeof(float);
}

static void src_will(void *self, const char *name, int64_t first, int64_t n)
{
    const xd_lora_src *s = self;
    if (s->inner.will)
        s->inner.will(s->inner.self, name, first, n);
}

xd_status xd_lora_src_open(xd_lora_src **out, xd_component *p, const xd_lora_term *terms, int n,
                           xd_err *e)
{
    if (!n)
        return XD_OK;
    xd_lora_src *s = *out = calloc(1, sizeof *s);
    if (!s || !(s->hits = calloc((size_t)n, sizeof *s->hits)))
        return xd_fail(e, XD_ENOMEM, "no memory for %d LoRA terms", n);
    s->inner = p->src;
    for (int i = 0; i < n; i++) {
        int same = i > 0 && terms[i].item == terms[i - 1].item;
        hit *h = &s->hits[s->n - same];
        if (!same) {
            h->terms = &terms[i];
            if (!xd_source_name(&s->inner, p->list[terms[i].item].name, h->name, sizeof h->name))
                return xd_fail(e, XD_EFORMAT, "%s has no tensor %s", p->dir,
                               p->list[terms[i].item].name);
            s->n++;
        }
        h->n++;
    }
    qsort(s->hits, (size_t)s->n, sizeof *s->hits, by_name);
    p->src = (xd_source){ src_has, src_get, src_done, s->inner.in_place, s, src_scale, src_past,
                          src_takes, src_will };
    return XD_OK;
}

void xd_lora_src_close(xd_lora_src **s)
{
    if (!s || !*s)
        return;
    for (int i = 0; i < (*s)->n; i++)
        free((*s)->hits[i].sum);
    free((*s)->hits);
    free(*s);
    *s = NULL;
}
