/* lora_source.c - reads a component's tensors together with the LoRA terms that change them.
 *
 * A tensor with terms is read as it is stored in its file. The code that rearranges the tensor's
 * rows for kernels adds the terms in f32 (xd_source_sums). Low-rank products are computed by GEMMs
 * on the host (backend/product.h).
 *
 * DoRA divides the sum of tensor and difference by the norms of the sum's rows (or columns). The
 * norms are those of the complete tensor plus the difference in this LoRA file; the differences in
 * other LoRA files are not included. The norms are computed before the first term is added; this
 * computation reads the complete tensor once more. So the norms are the same on every rank, even if
 * a rank has only a part of the tensor. */
#include "model/lora.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/product.h"
#include "base/minmax.h"
#include "base/par.h"
#include "exec/reader.h"
#include "model/component.h"

#include <math.h>

/* Number of rows that are computed at a time: ROWS for LoRA products, FEW for LoHa products,
 * MEASURED for the norms of DoRA. */
enum { ROWS = 64, FEW = 8, MEASURED = 16 };

typedef struct hit { /* a tensor that has LoRA terms: its name and the terms */
    char                name[512];
    const xd_lora_term *terms;
    int                 n;
} hit;

struct xd_lora_src {
    const xd_source *from; /* weight source of the component, without LoRA terms */
    hit             *hits; /* tensors with terms, sorted by name */
    int              n;
};

typedef struct factor {  /* an opened factor of a LoRA term */
    xd_product *product; /* low-rank product, or NULL */
    void       *up;      /* malloc'ed matrix that `product` reads */
    float      *whole;   /* LoKr: all elements of the factor, [rows, cols] */
} factor;

typedef struct ready {
    const xd_lora_term *t;
    factor              f[2];
    xd_tensor           whole; /* full difference in the mapped file, or absent */
    float              *by;    /* DoRA: scale of each row or column of the changed weight */
} ready;

typedef struct sum { /* the LoRA terms that are added to one tensor's rows */
    ready    *terms;
    int       n;
    xd_span  *span; /* ranges (spans) of the tensor's columns that are read */
    int       nspan;
    int64_t   cols; /* total number of columns in these spans */
    char     *tmp;  /* scratch memory: `each` bytes per thread */
    size_t    each;
    /* weight source of the tensor without LoRA terms, for DoRA's norms */
    xd_source plain;
    xd_reader base;
} sum;

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

/* ---- factors ------------------------------------------------------------------------------ */

typedef struct columns { /* arguments for copying columns of a matrix */
    xd_tensor      from; /* the matrix, in a mapped file and possibly unaligned */
    const xd_span *span;
    int            n, turned; /* n: number of spans; turned 1: the copy is transposed */
    char          *to;
    xd_dtype       type;
} columns;

static const char *element_at(const xd_tensor *t, int64_t row, int64_t col)
{
    return (const char *)t->p + (size_t)(row * t->d[1] + col) * xd_dtype_size(t->type);
}

/* Transposes columns [at, at + n) of a span of columns. The columns become the rows of the result
 * that begin with `row`. */
static void turn_columns(const columns *c, int64_t at, int64_t n, int64_t row)
{
    enum { FEW_COLUMNS = 32 };
    const int64_t rows = c->from.d[0];
    float         x[FEW_COLUMNS];
    uint16_t      h[FEW_COLUMNS];
    n = xd_min(n, c->from.d[1] - at); /* columns that the matrix does not have stay zeros */
    for (int64_t i = 0, m; i < n; i += m) {
        m = xd_min(n - i, FEW_COLUMNS);
        for (int64_t r = 0; r < rows; r++) {
            void *one = c->type == XD_F32 ? (void *)x : (void *)h;
            xd_convert(one, c->type, element_at(&c->from, r, at + i), c->from.type, m);
            for (int64_t k = 0; k < m; k++) {
                int64_t to = (row + i + k) * rows + r;
                if (c->type == XD_F32)
                    ((float *)(void *)c->to)[to] = x[k];
                else
                    ((uint16_t *)(void *)c->to)[to] = h[k];
            }
        }
    }
}

/* Copies the selected columns of a matrix, transposed. Writes only columns [begin, end) of the
 * result. */
static void turn_range(void *ctx, int64_t begin, int64_t end, int thread)
{
    const columns *c = ctx;
    int64_t        at = 0;
    (void)thread;
    for (int k = 0; k < c->n; at += c->span[k++].n) {
        int64_t from = xd_max(begin, at), to = xd_min(end, at + c->span[k].n);
        if (from < to)
            turn_columns(c, c->span[k].start + from - at, to - from, from);
    }
}

/* Copies the selected columns of a matrix. Writes only rows [begin, end) of the result. */
static void copy_range(void *ctx, int64_t begin, int64_t end, int thread)
{
    const columns *c = ctx;
    int64_t        cols = 0, size = (int64_t)xd_dtype_size(c->type);
    (void)thread;
    for (int k = 0; k < c->n; k++)
        cols += c->span[k].n;
    for (int64_t r = begin; r < end; r++)
        for (int64_t k = 0, at = 0; k < c->n; at += c->span[k++].n)
            xd_convert(c->to + (r * cols + at) * size, c->type,
                       element_at(&c->from, r, c->span[k].start), c->from.type, c->span[k].n);
}

/* Reads a part of tensor i of a file, which is a matrix of `wide` columns. The part consists of
 * rows [row0, row0 + rows) and of the columns in some spans; if wanted, the result is transposed,
 * and columns that the matrix does not have are zeros. The result is malloc'ed. */
static xd_status read_columns(xd_st *file, int64_t i, int64_t row0, int64_t rows, int64_t wide,
                              columns c, void **out, xd_err *e)
{
    xd_tensor t;
    int64_t   cols = 0;
    xd_status s = xd_st_get(file, i, &t, e);
    if (s != XD_OK)
        return s;
    for (int k = 0; k < c.n; k++)
        cols += c.span[k].n;
    c.from =
        xd_view2((char *)t.p + (size_t)(row0 * wide) * xd_dtype_size(t.type), t.type, rows, wide);
    if ((c.to = *out = calloc((size_t)(rows * cols) + 1, xd_dtype_size(c.type))))
        xd_par_for(c.turned ? cols : rows, c.turned ? turn_range : copy_range, &c);
    else
        s = xd_fail(e, XD_ENOMEM, "no memory for LoRA tensor %s", xd_st_name(file, i));
    xd_st_done(file, i);
    return s;
}

static size_t aligned_size(size_t bytes)
{
    return (bytes + XD_ALIGN - 1) / XD_ALIGN * XD_ALIGN;
}

static void close_factor(factor *f)
{
    xd_product_close(&f->product);
    free(f->up);
    free(f->whole);
    *f = (factor){ 0 };
}

/* The part of a LoRA factor that a rank needs: `rows` rows from row0 on, and the columns in n
 * spans. */
typedef struct share {
    int64_t        row0, rows;
    const xd_span *span;
    int            n;
} share;

/* Opens the product of a factor's low-rank tensors a [.., rank] and b [rank, cols]. */
static xd_status open_product(xd_st *file, const xd_lora_factor *w, const share *part, float gain,
                              factor *f, xd_err *e)
{
    xd_dtype  type = xd_product_type(xd_st_shape(file, w->a).type, xd_st_shape(file, w->b).type);
    xd_span   all = { 0, w->rank };
    int64_t   cols = 0;
    void     *across = NULL;
    columns   up = { .span = &all, .n = 1, .type = type };
    columns   down = { .span = part->span, .n = part->n, .turned = 1, .type = type };
    xd_status s = read_columns(file, w->a, part->row0, part->rows, w->rank, up, &f->up, e);
    for (int k = 0; k < part->n; k++)
        cols += part->span[k].n;
    if (s == XD_OK)
        s = read_columns(file, w->b, 0, w->rank, w->cols, down, &across, e);
    if (s == XD_OK)
        s = xd_product_open(&f->product, xd_view2(f->up, type, part->rows, w->rank),
                            xd_view2(across, type, cols, w->rank), gain, e);
    free(across);
    return s;
}

/* Computes all elements of a factor's low-rank product, and closes the product, which is no longer
 * needed. */
static xd_status expand_factor(factor *f, int64_t rows, int64_t cols, xd_err *e)
{
    size_t bytes = xd_product_scratch(f->product, rows);
    void  *tmp = aligned_alloc(XD_ALIGN, aligned_size(bytes + 1));
    if (!(f->whole = calloc((size_t)(rows * cols) + 1, sizeof *f->whole)) || !tmp) {
        free(tmp);
        return xd_fail(e, XD_ENOMEM, "no memory for a factor of a LoRA of %lld x %lld",
                       (long long)rows, (long long)cols);
    }
    xd_product_add(f->product, 0, rows, f->whole, tmp);
    xd_product_close(&f->product);
    free(tmp);
    return XD_OK;
}

static xd_status open_factor(xd_st *file, const xd_lora_factor *w, const share *part, float gain,
                             factor *f, xd_err *e)
{
    columns c = { .span = part->span, .n = part->n, .type = XD_F32 };
    void   *all = NULL;
    if (w->b >= 0)
        return open_product(file, w, part, gain, f, e);
    xd_status s = read_columns(file, w->a, part->row0, part->rows, w->cols, c, &all, e);
    f->whole = all;
    return s;
}

/* ---- terms -------------------------------------------------------------------------------- */

/* Returns factor k of a LoHa or LoKr term or, for an ordinary LoRA term, its only factor. */
static xd_lora_factor factor_of(const xd_lora_term *t, int k)
{
    if (t->kind != XD_LORA_PRODUCT)
        return t->w[k];
    return (xd_lora_factor){
        .a = t->up, .b = t->down, .rows = t->row0 + t->rows, .cols = t->cols, .rank = t->rank
    };
}

static int factors(const xd_lora_term *t)
{
    return t->kind == XD_LORA_PRODUCT ? 1 : 2;
}

/* Returns the number of rows of a LoRA factor that a rank needs. A LoKr term needs all rows of both
 * its factors. */
static int64_t factor_rows(const xd_lora_term *t, const xd_lora_factor *w)
{
    return t->kind == XD_LORA_KRONECKER ? w->rows : t->rows;
}

static int is_whole(const xd_lora_term *t)
{
    return t->kind == XD_LORA_PRODUCT && t->down < 0;
}

static xd_status open_term(ready *r, const sum *s, xd_err *e)
{
    const xd_lora_term *t = r->t;
    xd_status           st = XD_OK;
    if (is_whole(t))
        return xd_st_get(t->file, t->up, &r->whole, e);
    for (int k = 0; k < factors(t) && st == XD_OK; k++) {
        int                  kron = t->kind == XD_LORA_KRONECKER;
        const xd_lora_factor w = factor_of(t, k);
        const xd_span        all = { 0, w.cols };
        const share          part = { kron ? 0 : t->row0, factor_rows(t, &w), kron ? &all : s->span,
                                      kron ? 1 : s->nspan };
        float                gain = t->kind == XD_LORA_PRODUCT ? (float)t->gain : 1;
        st = open_factor(t->file, &w, &part, gain, &r->f[k], e);
        if (st == XD_OK && kron && r->f[k].product)
            st = expand_factor(&r->f[k], w.rows, w.cols, e);
    }
    return st;
}

static void add_scaled(float *restrict to, float a, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += a * x[i];
}

/* Returns how many bytes of scratch memory a LoHa term needs for FEW rows of both its low-rank
 * products. */
static size_t pair_bytes(int64_t cols)
{
    return (size_t)(2 * FEW * cols) * sizeof(float);
}

/* Adds rows [from, from + n) of a LoHa term, which is the elementwise product of two low-rank
 * products; n is at most FEW. */
static void add_hadamard(const sum *s, const ready *r, int64_t from, int64_t n, float *to,
                         char *tmp)
{
    const int64_t count = n * s->cols;
    float        *x = (float *)(void *)tmp, *y = x + FEW * s->cols;
    const float   gain = (float)r->t->gain;
    void         *rest = tmp + aligned_size(pair_bytes(s->cols));
    memset(x, 0, (size_t)count * sizeof *x);
    memset(y, 0, (size_t)count * sizeof *y);
    xd_product_add(r->f[0].product, from, n, x, rest);
    xd_product_add(r->f[1].product, from, n, y, rest);
    for (int64_t i = 0; i < count; i++)
        to[i] += gain * x[i] * y[i];
}

/* Adds a row of a LoKr term. The row is the Kronecker product of one row of the first factor and
 * one row of the second factor. */
static void add_kronecker(const sum *s, const ready *r, int64_t row, float *to)
{
    const xd_lora_factor *w = r->t->w;
    const int64_t         at = r->t->row0 + row, part = w[1].cols;
    const float          *u = r->f[0].whole + at / w[1].rows * w[0].cols;
    const float          *v = r->f[1].whole + at % w[1].rows * part;
    for (int k = 0; k < s->nspan; k++)
        for (int64_t c = s->span[k].start, end = c + s->span[k].n, n; c < end; c += n, to += n) {
            n = xd_min(part - c % part, end - c);
            add_scaled(to, (float)r->t->gain * u[c / part], v + c % part, n);
        }
}

/* Adds a row of a term that is a full difference. */
static void add_difference(const sum *s, const ready *r, int64_t row, float *to)
{
    enum { CHUNK = 512 };
    const xd_lora_term *t = r->t;
    const size_t        size = xd_dtype_size(r->whole.type);
    const char *from = (const char *)r->whole.p + (size_t)((t->row0 + row) * t->cols) * size;
    float       x[CHUNK];
    for (int k = 0; k < s->nspan; k++)
        for (int64_t c = s->span[k].start, end = c + s->span[k].n, n; c < end; c += n, to += n) {
            n = xd_min(CHUNK, end - c);
            xd_convert(x, XD_F32, from + (size_t)c * size, r->whole.type, n);
            if (t->replaces)
                memcpy(to, x, (size_t)n * sizeof *x);
            else
                add_scaled(to, (float)t->gain, x, n);
        }
}

/* Adds rows [from, from + n) of a term of any kind; n is at most ROWS. */
static void add_run(const sum *s, const ready *r, int64_t from, int64_t n, float *to, char *tmp)
{
    const xd_lora_kind kind = r->t->kind;
    if (kind == XD_LORA_PRODUCT && r->f[0].product)
        xd_product_add(r->f[0].product, from, n, to, tmp);
    for (int64_t i = 0; i < n && is_whole(r->t); i++)
        add_difference(s, r, from + i, to + i * s->cols);
    for (int64_t i = 0; i < n && kind == XD_LORA_HADAMARD; i += FEW)
        add_hadamard(s, r, from + i, xd_min(n - i, FEW), to + i * s->cols, tmp);
    for (int64_t i = 0; i < n && kind == XD_LORA_KRONECKER; i++)
        add_kronecker(s, r, from + i, to + i * s->cols);
}

/* Adds a term to rows [row, row + n) of the tensor. If the halves of the tensor's rows are swapped,
 * the rows that are added come from the other half of the term. */
static void add_term(const sum *s, const ready *r, int64_t row, int64_t n, float *to, char *tmp)
{
    const int64_t half = r->t->swap ? r->t->rows / 2 : 0;
    for (int64_t i = 0, m; i < n; i += m) {
        int64_t at = row + i, end = half && at < half ? half : r->t->rows;
        m = xd_min(xd_min(n - i, end - at), ROWS);
        add_run(s, r, half ? (at + half) % r->t->rows : at, m, to + i * s->cols, tmp);
    }
    for (int64_t i = 0; i < n && r->by; i++)
        for (int64_t k = 0; k < s->cols; k++)
            to[i * s->cols + k] *= r->t->columns ? r->by[k] : r->by[row + i];
}

/* ---- sums --------------------------------------------------------------------------------- */

/* Returns how many bytes of scratch memory per thread the terms of a tensor need. */
static size_t scratch_of(const sum *s)
{
    size_t most = 0;
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < 2; k++) {
            int    hada = s->terms[i].t->kind == XD_LORA_HADAMARD;
            size_t bytes = hada ? aligned_size(pair_bytes(s->cols)) : 0;
            if (s->terms[i].f[k].product)
                bytes += xd_product_scratch(s->terms[i].f[k].product, hada ? FEW : ROWS);
            most = bytes > most ? bytes : most;
        }
    return aligned_size(most);
}

static void close_term(ready *r)
{
    if (r->whole.p)
        xd_st_done(r->t->file, r->t->up);
    for (int k = 0; k < 2; k++)
        close_factor(&r->f[k]);
    free(r->by);
}

static void sum_close(void *self)
{
    sum *s = self;
    for (int i = 0; s->terms && i < s->n; i++)
        close_term(&s->terms[i]);
    xd_reader_close(&s->base);
    free(s->terms);
    free(s->span);
    free(s->tmp);
    free(s);
}

/* ---- norms of DoRA ------------------------------------------------------------------------ */

typedef struct measure {
    const sum       *s; /* sum of the complete tensor and only the DoRA term */
    const xd_reader *base;
    float           *rows; /* per thread, memory for MEASURED rows */
    /* Squared norms of each row or, for each band of rows, of each column. */
    double          *square;
} measure;

static void measure_band(void *ctx, int64_t begin, int64_t end, int thread)
{
    const measure *m = ctx;
    const int64_t  cols = m->s->cols;
    float         *to = m->rows + (int64_t)thread * MEASURED * cols;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i * MEASURED, n = xd_min(m->base->rows - row, MEASURED);
        double *square = m->square + (m->s->terms->t->columns ? i * cols : row);
        xd_reader_rows(m->base, row, n, to, thread);
        add_term(m->s, m->s->terms, row, n, to, m->s->tmp + (size_t)thread * m->s->each);
        for (int64_t r = 0; r < n; r++)
            for (int64_t c = 0; c < cols; c++)
                square[m->s->terms->t->columns ? c : r] +=
                    (double)to[r * cols + c] * (double)to[r * cols + c];
    }
}

static int64_t bands_of(int64_t rows)
{
    return (rows + MEASURED - 1) / MEASURED;
}

/* Computes the squared norms of all rows, or of all columns, of the tensor plus one DoRA term. The
 * result is malloc'ed. */
static xd_status measure_term(const sum *s, const xd_lora_term *t, double **square, xd_err *e)
{
    const xd_span all = { 0, t->cols };
    const int64_t bands = bands_of(t->rows);
    ready         one = { .t = t };
    sum           f = { .terms = &one, .n = 1, .nspan = 1, .cols = t->cols };
    measure       m = { .s = &f, .base = &s->base };
    f.span = (xd_span *)(uintptr_t)&all;
    xd_status    st = open_term(&one, &f, e);
    const size_t threads = (size_t)xd_par_threads();
    if (st == XD_OK) {
        f.each = scratch_of(&f) + XD_ALIGN;
        f.tmp = aligned_alloc(XD_ALIGN, f.each * threads);
        m.rows = malloc(threads * MEASURED * (size_t)t->cols * sizeof *m.rows);
        *square = calloc((size_t)(t->columns ? bands * t->cols : t->rows) + 1, sizeof **square);
        m.square = *square;
        if (!f.tmp || !m.rows || !m.square)
            st = xd_fail(e, XD_ENOMEM, "no memory to measure the rows of a DoRA");
    }
    if (st == XD_OK)
        xd_par_dynamic(bands, measure_band, &m);
    for (int64_t i = t->cols; st == XD_OK && t->columns && i < bands * t->cols; i++)
        m.square[i % t->cols] += m.square[i];
    close_term(&one);
    free(f.tmp);
    free(m.rows);
    return st;
}

/* Computes the scales by which DoRA multiplies the rows or the columns of the sum. */
static xd_status open_lengths(const sum *s, ready *r, xd_err *e)
{
    const xd_lora_term *t = r->t;
    const int64_t       n = xd_count(xd_st_shape(t->file, t->magnitude));
    const int64_t       half = t->swap ? t->rows / 2 : 0;
    double             *square = NULL;
    float              *want = malloc((size_t)n * sizeof *want + 1);
    xd_tensor           v;
    xd_status           st = measure_term(s, t, &square, e);
    r->by = malloc((size_t)(t->columns ? s->cols : t->rows) * sizeof *r->by + 1);
    if (st == XD_OK && (!want || !r->by))
        st = xd_fail(e, XD_ENOMEM, "no memory for the rows of a DoRA");
    if (st == XD_OK)
        st = xd_st_get(t->file, t->magnitude, &v, e);
    if (st == XD_OK) {
        xd_convert(want, XD_F32, v.p, v.type, n);
        xd_st_done(t->file, t->magnitude);
        for (int64_t i = 0; i < t->rows && !t->columns; i++)
            r->by[i] = (float)((double)want[t->row0 + (half ? (i + half) % t->rows : i)] /
                               sqrt(square[i]));
        for (int64_t k = 0, at = 0; k < s->nspan && t->columns; at += s->span[k++].n)
            for (int64_t c = 0; c < s->span[k].n; c++)
                r->by[at + c] = (float)((double)want[s->span[k].start + c] /
                                        sqrt(square[s->span[k].start + c]));
    }
    free(want);
    free(square);
    return st;
}

/* If a DoRA term needs norms, opens the tensor without terms. */
static xd_status open_base(sum *s, const xd_source *from, const char *name, xd_err *e)
{
    s->plain = *from;
    s->plain.sums = NULL;
    for (int i = 0; i < s->n; i++)
        if (s->terms[i].t->magnitude >= 0)
            return xd_reader_open(&s->base, &s->plain, name, e);
    return XD_OK;
}

/* ---- opening and adding ------------------------------------------------------------------- */

static xd_status sum_open(void *self, const char *name, const xd_span *span, int n, void **out,
                          xd_err *e)
{
    const hit *h = find_hit(self, name);
    sum       *s = calloc(1, sizeof *s);
    xd_status  st = XD_OK;
    if (s) {
        *s = (sum){ .n = h->n, .nspan = n };
        s->terms = calloc((size_t)h->n, sizeof *s->terms);
        s->span = malloc((size_t)n * sizeof *s->span + 1);
    }
    if (!s || !s->terms || !s->span) {
        st = xd_fail(e, XD_ENOMEM, "no memory to add LoRA terms to tensor %s", name);
    } else {
        memcpy(s->span, span, (size_t)n * sizeof *span);
        for (int k = 0; k < n; k++)
            s->cols += span[k].n;
    }
    for (int i = 0; s && s->terms && i < h->n; i++)
        s->terms[i].t = &h->terms[i];
    if (st == XD_OK)
        st = open_base(s, ((const xd_lora_src *)self)->from, name, e);
    for (int i = 0; st == XD_OK && i < h->n; i++) {
        st = open_term(&s->terms[i], s, e);
        if (st == XD_OK && s->terms[i].t->magnitude >= 0)
            st = open_lengths(s, &s->terms[i], e);
    }
    if (st == XD_OK && (s->each = scratch_of(s)) &&
        !(s->tmp = aligned_alloc(XD_ALIGN, s->each * (size_t)xd_par_threads())))
        st = xd_fail(e, XD_ENOMEM, "no memory to add LoRA terms to tensor %s", name);
    *out = s;
    if (st != XD_OK && s) {
        sum_close(s);
        *out = NULL;
    }
    return st;
}

static void sum_add(const void *self, int64_t row, int64_t n, float *to, int thread)
{
    const sum *s = self;
    for (int i = 0; i < s->n; i++)
        add_term(s, &s->terms[i], row, n, to, s->tmp ? s->tmp + (size_t)thread * s->each : NULL);
}

static int sums_has(void *self, const char *name)
{
    return find_hit(self, name) != NULL;
}

/* Returns how many elements must be in memory for factor k of a term: those of the factor itself,
 * and those of the tensors from which it is computed. */
static int64_t factor_takes(const xd_lora_term *t, int k)
{
    const xd_lora_factor w = factor_of(t, k);
    int64_t              rows = factor_rows(t, &w);
    if (w.b < 0)
        return is_whole(t) ? 0 : rows * w.cols;
    return (rows + w.cols) * w.rank + (int64_t)(xd_product_bytes(w.rank, w.cols) / sizeof(float)) +
           (t->kind == XD_LORA_KRONECKER ? rows * w.cols : 0);
}

/* Returns how many elements must be in memory for DoRA's norms, both while the norms are computed
 * and afterwards. */
static int64_t measure_takes(const xd_lora_term *t)
{
    int64_t n = 4 * t->rows + 2 * t->cols + MEASURED * t->cols * xd_par_threads();
    for (int k = 0; k < factors(t); k++)
        n += factor_takes(t, k);
    return n + (t->columns ? 2 * bands_of(t->rows) * t->cols : 0);
}

/* Returns an upper limit of the bytes that a tensor's LoRA terms need. The terms never need more
 * scratch memory than GEMMs of ROWS rows. */
static size_t sums_takes(void *self, const char *name)
{
    enum { SCRATCH = 1 << 20 };
    const xd_lora_src *s = self;
    const hit         *h = find_hit(s, name);
    int64_t            n = 0;
    for (int i = 0; h && i < h->n; i++) {
        for (int k = 0; k < factors(&h->terms[i]); k++)
            n += factor_takes(&h->terms[i], k);
        if (h->terms[i].magnitude >= 0)
            n += measure_takes(&h->terms[i]);
        if (h->terms[i].kind == XD_LORA_HADAMARD)
            n += 2 * FEW * h->terms[i].cols * xd_par_threads();
    }
    return (size_t)n * sizeof(float) + (h ? SCRATCH * (size_t)xd_par_threads() : 0);
}

static const xd_source_sums sums = { sums_has, sums_takes, sum_open, sum_add, sum_close };

/* ---- the source --------------------------------------------------------------------------- */

xd_status xd_lora_src_open(xd_lora_src **out, xd_component *p, const xd_lora_term *terms, int n,
                           xd_err *e)
{
    if (!n)
        return XD_OK;
    xd_lora_src *s = *out = calloc(1, sizeof *s);
    if (!s || !(s->hits = calloc((size_t)n, sizeof *s->hits)))
        return xd_fail(e, XD_ENOMEM, "no memory for %d LoRA terms", n);
    for (int i = 0; i < n; i++) {
        int  same = i > 0 && terms[i].item == terms[i - 1].item;
        hit *h = &s->hits[s->n - same];
        if (!same) {
            h->terms = &terms[i];
            s->from = &p->w->src;
            if (!xd_source_name(&p->w->src, p->list[terms[i].item].name, h->name, sizeof h->name))
                return xd_fail(e, XD_EFORMAT, "%s has no tensor %s", p->dir,
                               p->list[terms[i].item].name);
            s->n++;
        }
        h->n++;
    }
    qsort(s->hits, (size_t)s->n, sizeof *s->hits, by_name);
    p->w->src.sums = &sums;
    p->w->src.sums_self = s;
    return XD_OK;
}

void xd_lora_src_close(xd_lora_src **s)
{
    if (!s || !*s)
        return;
    free((*s)->hits);
    free(*s);
    *s = NULL;
}
