/* qknorm.c - computes the norm and the rotary embedding of attention heads in one pass; compiled
 * once per instruction set
 *
 * Each head stays in the L1 cache while it is processed. Gain, bias and rotation angles are
 * combined to coefficients once for all heads of a row, so that reading and writing the heads
 * dominates the time. */
#include "backend/cpu/cpu.h"

#include <math.h>

#include "backend/cpu/element.h"
#include "backend/cpu/vec.h"
#include "base/par.h"

enum {
    MAX = XD_QKNORM_MAX,
    GRAIN = 8192, /* minimum elements for which several threads are used */
};

static void load_floats(float *x, const void *from, xd_dtype t, int64_t D)
{
    if (t == XD_F32)
        memcpy(x, from, (size_t)D * sizeof *x);
    else
        from_bf16s(x, from, D);
}

/* The coefficients that all heads of a row share. Let x' = (x - mean) / deviation be the normalized
 * head, and let the rotation be y[j] = x[j] c[j] + x[p] s[j], where p is the partner of element j.
 * The result x'[j] gain[j] c[j] + x'[p] gain[p] s[j] + (rotated bias) then has three coefficients
 * per element: own, other and bias. */
typedef struct row_of { float own[MAX], other[MAX], bias[MAX]; } row_of;

static void row_plain(row_of *r, const xd_qknorm *a, int64_t D)
{
    const float *gain = a->gain.p, *bias = a->bias.p;
    for (int64_t j = 0; j < D; j++) {
        r->own[j] = gain ? gain[j] : 1;
        r->bias[j] = bias ? bias[j] : 0;
    }
}

/* Computes the coefficients of a row in which the two elements of a rotated pair are neighbours,
 * for as many elements as fill complete vectors. The sine s is negated for the first element of a
 * pair. Returns the number of computed elements. */
static int64_t row_pairs(row_of *r, const float *gain, const float *bias, const float *c,
                         const float *s, int64_t D)
{
    int64_t j = 0;
#if defined(V_LOAD)
    float sign[LANES];
    for (int i = 0; i < LANES; i++)
        sign[i] = i % 2 ? 1.0f : -1.0f;
    for (; j + LANES <= D; j += LANES) {
        vec g = gain ? V_LOAD(gain + j) : V_SET(1.0f), b = bias ? V_LOAD(bias + j) : V_SET(0.0f);
        vec cc = V_TWICE(c + j / 2), ss = V_MUL(V_TWICE(s + j / 2), V_LOAD(sign));
        V_STORE(r->own + j, V_MUL(g, cc));
        V_STORE(r->other + j, V_MUL(V_SWAP(g), ss));
        V_STORE(r->bias + j, V_FMA(b, cc, V_MUL(V_SWAP(b), ss)));
    }
#else
    (void)r, (void)gain, (void)bias, (void)c, (void)s, (void)D;
#endif
    return j;
}

static void row_rotated(row_of *r, const xd_qknorm *a, const float *c, const float *s, int64_t D)
{
    const float *gain = a->gain.p, *bias = a->bias.p;
    int64_t      step = a->halves ? 1 : 2, apart = a->halves ? D / 2 : 1;
    for (int64_t i = a->halves ? 0 : row_pairs(r, gain, bias, c, s, D) / 2; i < D / 2; i++) {
        int64_t j = i * step, k = j + apart;
        float   gj = gain ? gain[j] : 1, gk = gain ? gain[k] : 1;
        float   bj = bias ? bias[j] : 0, bk = bias ? bias[k] : 0;
        r->own[j] = gj * c[i];
        r->own[k] = gk * c[i];
        r->other[j] = -gk * s[i];
        r->other[k] = gj * s[i];
        r->bias[j] = bj * c[i] - bk * s[i];
        r->bias[k] = bk * c[i] + bj * s[i];
    }
}

/* Computes y = (x - mean) rstd own + bias, where `own` and `bias` are coefficients of the row. */
static void scale_row(float *restrict y, const float *restrict x, const row_of *r, float mean,
                      float rstd, int64_t D)
{
#pragma omp simd
    for (int64_t j = 0; j < D; j++)
        y[j] = (x[j] - mean) * rstd * r->own[j] + r->bias[j];
}

/* Normalizes a head like scale_row, and rotates pairs of neighbouring elements. */
static void rotate_pairs(float *restrict y, const float *restrict x, const row_of *r, float mean,
                         float rstd, int64_t D)
{
    int64_t j = 0;
#if defined(V_LOAD)
    vec m = V_SET(mean), d = V_SET(rstd);
    for (; j + LANES <= D; j += LANES) {
        vec t = V_MUL(V_SUB(V_LOAD(x + j), m), d);
        vec u = V_FMA(V_SWAP(t), V_LOAD(r->other + j), V_LOAD(r->bias + j));
        V_STORE(y + j, V_FMA(t, V_LOAD(r->own + j), u));
    }
#endif
    for (; j < D; j += 2) {
        float t = (x[j] - mean) * rstd, u = (x[j + 1] - mean) * rstd;
        y[j] = t * r->own[j] + u * r->other[j] + r->bias[j];
        y[j + 1] = u * r->own[j + 1] + t * r->other[j + 1] + r->bias[j + 1];
    }
}

static void rotate_halves(float *restrict y, const float *restrict x, const row_of *r, float mean,
                          float rstd, int64_t h)
{
#pragma omp simd
    for (int64_t i = 0; i < h; i++) {
        float t = (x[i] - mean) * rstd, u = (x[i + h] - mean) * rstd;
        y[i] = t * r->own[i] + u * r->other[i] + r->bias[i];
        y[i + h] = u * r->own[i + h] + t * r->other[i + h] + r->bias[i + h];
    }
}

static void norm_head(const xd_qknorm *a, char *out, const char *in, const row_of *r)
{
    float   x[MAX], y[MAX], mean = 0, rstd = 1;
    int64_t D = a->in.d[2];
    load_floats(x, in, a->in.type, D);
    if (a->norm) {
        mean = a->rms ? 0 : sum_of(x, D) / (float)D;
        rstd = 1.0f / sqrtf(square_sum_of(x, D, mean) / (float)D + a->eps);
    }
    float *to = a->out.type == XD_F32 ? (float *)(void *)out : y;
    if (!a->cos.p)
        scale_row(to, x, r, mean, rstd, D);
    else if (a->halves)
        rotate_halves(to, x, r, mean, rstd, D / 2);
    else
        rotate_pairs(to, x, r, mean, rstd, D);
    if (to == y)
        to_bf16s(out, y, D);
}

static const float *angles_at(const xd_tensor *t, int64_t i)
{
    return (const float *)t->p + (t->d[0] == 1 ? 0 : i * t->s[0]);
}

static char *head_at(const xd_tensor *t, int64_t i, int64_t h)
{
    return (char *)t->p + (i * t->s[0] + h * t->s[1]) * (int64_t)xd_dtype_size(t->type);
}

static void norm_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const xd_qknorm *a = ctx;
    int64_t          D = a->in.d[2];
    row_of           r;
    (void)thread;
    if (!a->cos.p)
        row_plain(&r, a, D);
    for (int64_t i = begin; i < end; i++) {
        if (a->cos.p)
            row_rotated(&r, a, angles_at(&a->cos, i), angles_at(&a->sin, i), D);
        for (int64_t h = 0; h < a->in.d[1]; h++)
            norm_head(a, head_at(&a->out, i, h), head_at(&a->in, i, h), &r);
    }
}

void GLUE(xd_qknorm_, ISA)(const xd_qknorm *a)
{
    xd_qknorm b = *a;
    if (xd_count(a->in) <= GRAIN)
        norm_rows(&b, 0, a->in.d[0], 0);
    else
        xd_par_for(a->in.d[0], norm_rows, &b);
}
