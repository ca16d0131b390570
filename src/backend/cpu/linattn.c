/* linattn.c - computes linear attention (xd_linattn); compiled once per instruction set
 *
 * A thread computes a head. The sums of few rows are added before they are added to the sums of all
 * rows, which reduces rounding errors. */
#include "backend/cpu/cpu.h"

#include <string.h>

#include "backend/cpu/element.h"
#include "base/par.h"

enum { MOST = XD_LINATTN_MAX, ROWS = 64 }; /* ROWS: number of rows that are summed at a time */

/* Loads the D elements of head h of row r to x. */
static void load_head(float *x, const xd_tensor *t, int64_t r, int64_t h)
{
    const int64_t at = r * t->s[0] + h * t->s[1], D = t->d[2];
    if (t->type == XD_BF16)
        from_bf16s(x, (const uint16_t *)t->p + at, D);
    else
        memcpy(x, (const float *)t->p + at, (size_t)D * sizeof *x);
}

static void relu(float *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        x[i] = x[i] > 0 || x[i] != x[i] ? x[i] : 0;
}

/* Computes y [D], the head x [D] rotated by the angles of row r. Without angles, y is x. */
static void rotate(float *y, const float *x, const xd_linattn *a, int64_t r)
{
    const int64_t D = a->sums.d[1];
    if (!a->cos.p) {
        memcpy(y, x, (size_t)D * sizeof *y);
        return;
    }
    const float *cos = (const float *)a->cos.p + r * a->cos.s[0];
    const float *sin = (const float *)a->sin.p + r * a->sin.s[0];
    for (int64_t i = 0; i < D / 2; i++) {
        y[2 * i] = x[2 * i] * cos[i] - x[2 * i + 1] * sin[i];
        y[2 * i + 1] = x[2 * i] * sin[i] + x[2 * i + 1] * cos[i];
    }
}

/* Adds the products of n rows, from row r on, to the D rows of D + 1 floats at `to`. */
static void add_products(float *to, const xd_linattn *a, int64_t h, int64_t r, int64_t n)
{
    const int64_t D = a->k.d[2];
    float         k[MOST], turned[MOST], v[MOST];
    for (int64_t end = r + n; r < end; r++) {
        load_head(k, &a->k, r, h);
        load_head(v, &a->v, r, h);
        relu(k, D);
        rotate(turned, k, a, r);
        for (int64_t i = 0; i < D; i++) {
            float *row = to + i * (D + 1), f = turned[i];
#pragma omp simd
            for (int64_t j = 0; j < D; j++)
                row[j] += f * v[j];
            row[D] += k[i];
        }
    }
}

static void sum_heads(void *ctx, int64_t begin, int64_t end, int thread)
{
    const xd_linattn *a = ctx;
    const int64_t     n = a->k.d[0], size = a->k.d[2] * (a->k.d[2] + 1);
    float             part[MOST * (MOST + 1)];
    (void)thread;
    for (int64_t h = begin; h < end; h++) {
        float *sum = (float *)a->sums.p + h * size;
        memset(sum, 0, (size_t)size * sizeof *sum);
        for (int64_t r = 0; r < n; r += ROWS) {
            memset(part, 0, (size_t)size * sizeof *part);
            add_products(part, a, h, r, n - r < ROWS ? n - r : ROWS);
#pragma omp simd
            for (int64_t i = 0; i < size; i++)
                sum[i] += part[i];
        }
    }
}

static void store_head(const xd_tensor *t, int64_t r, int64_t h, const float *y)
{
    const int64_t at = r * t->s[0] + h * t->s[1], D = t->d[2];
    if (t->type == XD_BF16)
        to_bf16s((uint16_t *)t->p + at, y, D);
    else
        memcpy((float *)t->p + at, y, (size_t)D * sizeof *y);
}

static void divide_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const xd_linattn *a = ctx;
    const int64_t     D = a->q.d[2], H = a->q.d[1];
    float             q[MOST], turned[MOST], y[MOST];
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        const int64_t r = k / H, h = k % H;
        const float  *sum = (const float *)a->sums.p + h * D * (D + 1);
        load_head(q, &a->q, r, h);
        float by = 0;
        relu(q, D);
        rotate(turned, q, a, r);
        memset(y, 0, (size_t)D * sizeof *y);
        for (int64_t i = 0; i < D; i++) {
            const float *row = sum + i * (D + 1), f = turned[i];
#pragma omp simd
            for (int64_t j = 0; j < D; j++)
                y[j] += f * row[j];
            by += q[i] * row[D];
        }
        by += 1e-15f;
#pragma omp simd
        for (int64_t j = 0; j < D; j++)
            y[j] /= by;
        store_head(&a->out, r, h, y);
    }
}

void GLUE(xd_linattn_, ISA)(const xd_linattn *a)
{
    xd_linattn b = *a;
    if (a->k.p)
        xd_par_for(a->k.d[1], sum_heads, &b);
    if (a->q.p)
        xd_par_for(a->q.d[0] * a->q.d[1], divide_rows, &b);
}
