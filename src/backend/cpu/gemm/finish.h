/* finish.h - computes the epilogue of a GEMM on a tile of accumulators that is still in cache:
 * scales, bias, activation, gate, residual and conversion to the output type.
 *
 * The epilogue has the formulas of kernels.c, here computed on vectors of AVX-512 or AVX2. */
#ifndef XD_BACKEND_CPU_GEMM_FINISH_H
#define XD_BACKEND_CPU_GEMM_FINISH_H

#ifdef __AVX512F__
enum { PAIRS = 0 }; /* selects the versions of functions in wide_tmpl.h that are accurate to f32 */
#include "backend/cpu/attn/wide_tmpl.h"
#else
#include "backend/cpu/attn/narrow.h"
#endif
#include "backend/cpu/gemm/block.h"

#define FINISH_INLINE static inline __attribute__((always_inline))

/* Returns 2^x for x <= 127 with a relative error of 1e-7; returns 0 for x < -126. */
FINISH_INLINE vf power_of_2(vf x)
{
    const vf magic = v_set(12582912.0f), t = v_add(x, magic);
    const vf f = v_sub(x, v_sub(t, magic));
    vf       p = v_set(0.00132647273f);
    p = v_fma(p, f, v_set(0.00967151299f));
    p = v_fma(p, f, v_set(0.0555073358f));
    p = v_fma(p, f, v_set(0.240222424f));
    p = v_fma(p, f, v_set(0.693147004f));
    p = v_fma(p, f, v_set(1.0f));
    return v_power(p, t, v_not_below(x, -126.0f));
}

/* Returns x / (1 + 2^y), which is x times a logistic function. */
FINISH_INLINE vf scaled_logistic(vf x, vf y)
{
    const vf one = v_set(1.0f), most = v_set(126.0f);
    return v_mul(x, v_inverse(v_add(one, power_of_2(v_min(y, most)))));
}

/* Returns 1 / (1 + e^(-x)). NaN inputs give NaN, because v_min gets the limit as its first
 * operand. */
FINISH_INLINE vf logistic(vf x)
{
    const vf y = v_mul(x, v_set(-1.44269504f));
    return v_inverse(v_add(v_set(1.0f), power_of_2(v_min(v_set(126.0f), y))));
}

FINISH_INLINE vf gelu_tanh(vf x)
{
    return scaled_logistic(x,
                           v_mul(x, v_fma(v_mul(x, x), v_set(-0.102943240f), v_set(-2.30220819f))));
}

/* Computes GELU by the error function: x (1 - p) for x > 0, else x p, with p = erfc(|x| / sqrt 2) /
 * 2. */
FINISH_INLINE vf gelu_erf(vf x)
{
    static const float P[] = {
        2.811919286e-1f, -4.808026843e-1f, 2.714708586e-1f, -2.259142480e-2f,
        2.011966630e-1f, 2.434268150e-1f,  2.823378584e-1f, 2.820881945e-1f
    };
    const vf z = v_mul(v_abs(x), v_set(0.707106781f));
    const vf t = v_inverse(v_fma(z, v_set(0.5f), v_set(1.0f)));
    const vf y = v_mul(v_mul(z, z), v_set(-1.44269504f));
    vf       p = v_set(-5.831824270e-2f);
    for (int i = 0; i < 8; i++)
        p = v_fma(p, t, v_set(P[i]));
    p = v_mul(v_mul(v_mul(p, t), v_set(0.5f)), power_of_2(y));
    return v_sub(v_max(v_zero(), x), v_mul(v_abs(x), p));
}

/* Computes tanh as x (1 - e) / (|x| (1 + e)) with e = 2^(-2 |x| / ln 2). The computed tanh is +-1
 * for |x| > 20. */
FINISH_INLINE vf hyperbolic_tangent(vf x)
{
    const vf one = v_set(1.0f), y = v_max(v_set(-20.0f), v_min(v_set(20.0f), x));
    const vf e = power_of_2(v_mul(v_abs(y), v_set(-2.88539008f)));
    const vf down = v_mul(v_add(one, e), v_max(v_set(1e-30f), v_abs(y)));
    return v_mul(y, v_mul(v_sub(one, e), v_inverse(down)));
}

FINISH_INLINE vf apply_act(vf x, xd_act act)
{
    switch (act) {
    case XD_GELU_TANH: return gelu_tanh(x);
    case XD_GELU_ERF: return gelu_erf(x);
    case XD_SILU: return scaled_logistic(x, v_mul(x, v_set(-1.44269504f)));
    case XD_GELU_QUICK: return scaled_logistic(x, v_mul(x, v_set(-2.45546696f)));
    case XD_RELU: return v_max(v_zero(), x); /* a NaN stays a NaN */
    case XD_TANH: return hyperbolic_tangent(x);
    case XD_SIGMOID: return logistic(x);
    default: return x;
    }
}

/* Returns the size in bytes of an F32 or BF16 element. */
static inline int64_t size_of(xd_dtype t)
{
    return t == XD_F32 ? 4 : 2;
}

static inline char *place_of(const xd_tensor *t, int64_t r, int64_t c)
{
    return (char *)t->p + (r * t->s[0] + c) * size_of(t->type);
}

#ifdef __AVX512F__
typedef __mmask16 vl; /* mask of the lanes in use */

static inline __m512 floats_at(const char *p, xd_dtype type, __mmask16 m)
{
    if (type == XD_F32)
        return _mm512_maskz_loadu_ps(m, p);
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, p)), 16));
}

/* Stores the lanes of x in mask m as `type`. Complete 16-bit vectors are stored without a mask,
 * because masked 16-bit stores take about twenty cycles each on Zen 4. */
static inline void put_at(char *p, xd_dtype type, __mmask16 m, __m512 x)
{
    if (type == XD_F32)
        _mm512_mask_storeu_ps(p, m, x);
    else if (m == 0xffff)
        _mm256_storeu_si256((__m256i *)(void *)p, bf16(x));
    else
        _mm256_mask_storeu_epi16(p, m, bf16(x));
}
#else
typedef int64_t vl; /* number of lanes in use */

static inline vl lane_mask(int64_t n)
{
    return n;
}

static inline vf floats_at(const char *p, xd_dtype type, vl n)
{
    return float_row(p, type, 0, n);
}

static inline void put_at(char *p, xd_dtype type, vl n, vf x)
{
    put_out(p, type, x, n);
}
#endif

/* Operands of the epilogue of a GEMM for LANES output columns. */
typedef struct finish_cols {
    vl m; /* mask or number of the lanes that are columns of the output */
    vf by, bias, gate;
    vi fix;
} finish_cols;

FINISH_INLINE finish_cols columns_from(const xd_gemm_job *p, int64_t c)
{
    const vl    m = lane_mask(p->N - c);
    const char *bias = p->a->bias.p, *gate = p->a->gate.p;
    return (finish_cols){ m, p->col ? v_load(p->col + c) : v_zero(),
                          bias ? floats_at(bias + c * 4, XD_F32, m) : v_zero(),
                          gate ? floats_at(gate + c * 4, XD_F32, m) : v_zero(),
                          v_integers(p->fix ? p->fix + c : NULL) };
}

/* Flags and types that tell which operations the epilogue of a GEMM performs. The flags are copied
 * from the job once, because otherwise the compiler would load the flags again after every store to
 * the output. */
typedef struct finish_way {
    int      by, bias, gate; /* flags that are 1 if the GEMM uses scales (by), a bias, a gate */
    xd_dtype from;           /* type of the residual */
    xd_act   act;
} finish_way;

FINISH_INLINE finish_way way_of(const xd_gemm_job *p, xd_dtype from, xd_act act)
{
    return (finish_way){ p->col != NULL, p->a->bias.p != NULL, p->a->gate.p != NULL, from, act };
}

/* Returns the sums of products times the scales, plus the bias. From integer sums, `fix` is first
 * subtracted, and the differences are converted to float. */
FINISH_INLINE vf scale_sums(const finish_way *w, const float *sum, const float *row,
                            const finish_cols *k)
{
    if (row)
        return v_fma(v_whole(sum, k->fix), v_mul(v_set(*row), k->by), k->bias);
    if (w->by)
        return v_fma(v_load(sum), k->by, k->bias);
    return w->bias ? v_add(v_load(sum), k->bias) : v_load(sum);
}

/* Multiplies x, results of the GEMM, by the gate. If `res` is not NULL, also adds the residual at
 * the address `res`. */
FINISH_INLINE vf add_residual(const finish_way *w, vf x, const finish_cols *k, const char *res)
{
    if (!res)
        return w->gate ? v_mul(x, k->gate) : x;
    const vf r = floats_at(res, w->from, k->m);
    return w->gate ? v_fma(x, k->gate, r) : v_add(x, r);
}

/* Runs the complete epilogue for LANES sums of a row. `row` is the scale of the row, or NULL; `res`
 * is the residual, or NULL. */
FINISH_INLINE vf finish_vector(const finish_way *w, const float *sum, const float *row,
                               const finish_cols *k, const char *res)
{
    return add_residual(w, apply_act(scale_sums(w, sum, row, k), w->act), k, res);
}

/* Runs the epilogue for rows [r0, r0 + n) and columns [c0, c0 + width) of the output; columns after
 * the last column are skipped. The array `sums` contains rows of XD_PANEL accumulators. */
FINISH_INLINE void finish_as(const xd_gemm_job *p, const float *sums, int64_t c0, int64_t width,
                             int64_t r0, int64_t n, xd_act act)
{
    const xd_gemm   *a = p->a;
    const float     *row = p->row ? p->row + r0 : NULL;
    const finish_way w = way_of(p, a->residual.type, act);
    const int64_t    step = a->out.s[0] * size_of(a->out.type);
    const int64_t    rstep = a->residual.s[0] * size_of(a->residual.type);
    for (int64_t j = 0, c = c0; j < width && c < p->N; j += LANES, c += LANES) {
        const finish_cols k = columns_from(p, c);
        char             *out = place_of(&a->out, r0, c);
        const char       *res = a->residual.p ? place_of(&a->residual, r0, c) : NULL;
        for (int64_t i = 0; i < n; i++, out += step)
            put_at(out, a->out.type, k.m,
                   finish_vector(&w, sums + i * XD_PANEL + j, row ? row + i : NULL, &k,
                                 res ? res + i * rstep : NULL));
    }
}

static inline void finish_rows(const xd_gemm_job *p, const float *sums, int64_t c0, int64_t width,
                               int64_t r0, int64_t n)
{
    switch (p->a->act) {
#define FINISH_CASE(act)                                                                           \
    case act: finish_as(p, sums, c0, width, r0, n, act); break;
        FINISH_CASE(XD_GELU_TANH)
        FINISH_CASE(XD_GELU_ERF)
        FINISH_CASE(XD_SILU)
        FINISH_CASE(XD_RELU)
        FINISH_CASE(XD_GELU_QUICK)
        FINISH_CASE(XD_TANH)
        FINISH_CASE(XD_SIGMOID)
    default: finish_as(p, sums, c0, width, r0, n, XD_NONE);
    }
}

/* Prefetches the cache lines of rows [r0, r0 + n) and columns [c0, c0 + width) of the output (fewer
 * columns at the end of a row). If the residual is another tensor, prefetch_output also prefetches
 * the same rows and columns of the residual. */
FINISH_INLINE void prefetch_output(const xd_gemm_job *p, int64_t c0, int64_t width, int64_t r0,
                                   int64_t n)
{
    const xd_gemm   *a = p->a;
    const xd_tensor *t[2] = { &a->residual, &a->out };
    width = p->N - c0 < width ? p->N - c0 : width;
    for (int k = a->residual.p && a->residual.p != a->out.p ? 0 : 1; k < 2; k++) {
        int64_t bytes = width * size_of(t[k]->type);
        for (int64_t i = 0; i < n; i++) {
            const char *q = place_of(t[k], r0 + i, c0);
            for (int64_t b = 0; b < bytes; b += 64)
                _mm_prefetch(q + b, _MM_HINT_T0);
        }
    }
}

#endif
