/* finish.h - what follows a product, on a tile of sums that is still near: bias, activation,
 * gate, residual, and the type of the output. Vectors of AVX-512; the formulas of kernels.c. */
#ifndef XD_BACKEND_CPU_GEMM_FINISH_H
#define XD_BACKEND_CPU_GEMM_FINISH_H

#include <immintrin.h>

enum { PAIRS = 0 };             /* exact functions                                            */

#include "backend/cpu/attn/wide.h"
#include "backend/cpu/gemm/block.h"

#define FINISH_INLINE static inline __attribute__((always_inline))

/* 2^x for x <= 127, within 1e-7 of the value; 0 below -126. */
FINISH_INLINE __m512 power_of_2(__m512 x)
{
    const __m512    magic = _mm512_set1_ps(12582912.0f), t = _mm512_add_ps(x, magic);
    const __m512    f = _mm512_sub_ps(x, _mm512_sub_ps(t, magic));
    const __mmask16 live = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
    __m512          p = _mm512_set1_ps(0.00132647273f);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.00967151299f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.0555073358f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.240222424f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.693147004f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
    return _mm512_castsi512_ps(_mm512_maskz_add_epi32(
        live, _mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(t), 23)));
}

/* 1 / x for 1 <= x: an estimate of 14 bits and one step of Newton's. */
FINISH_INLINE __m512 inverse(__m512 x)
{
    const __m512 r = _mm512_rcp14_ps(x);
    return _mm512_fmadd_ps(r, _mm512_fnmadd_ps(x, r, _mm512_set1_ps(1.0f)), r);
}

/* x / (1 + 2^y) */
FINISH_INLINE __m512 damped(__m512 x, __m512 y)
{
    const __m512 one = _mm512_set1_ps(1.0f), most = _mm512_set1_ps(126.0f);
    return _mm512_mul_ps(x, inverse(_mm512_add_ps(one, power_of_2(_mm512_min_ps(y, most)))));
}

FINISH_INLINE __m512 gelu_tanh(__m512 x)
{
    const __m512 c = _mm512_fmadd_ps(_mm512_mul_ps(x, x), _mm512_set1_ps(-0.102943240f),
                                     _mm512_set1_ps(-2.30220819f));
    return damped(x, _mm512_mul_ps(x, c));
}

FINISH_INLINE __m512 gelu_erf(__m512 x)
{
    static const float P[] = { 2.811919286e-1f,  -4.808026843e-1f, 2.714708586e-1f,
                               -2.259142480e-2f, 2.011966630e-1f,  2.434268150e-1f,
                               2.823378584e-1f,  2.820881945e-1f };
    const __m512 one = _mm512_set1_ps(1.0f);
    const __m512 z = _mm512_mul_ps(_mm512_abs_ps(x), _mm512_set1_ps(0.707106781f));
    const __m512 t = inverse(_mm512_fmadd_ps(z, _mm512_set1_ps(0.5f), one));
    const __m512 y = _mm512_mul_ps(_mm512_mul_ps(z, z), _mm512_set1_ps(-1.44269504f));
    __m512       p = _mm512_set1_ps(-5.831824270e-2f);
    for (int i = 0; i < 8; i++)
        p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(P[i]));
    p = _mm512_mul_ps(_mm512_mul_ps(_mm512_mul_ps(p, t), _mm512_set1_ps(0.5f)), power_of_2(y));
    const __mmask16 above = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GT_OQ);
    return _mm512_mul_ps(x, _mm512_mask_sub_ps(p, above, one, p));
}

FINISH_INLINE __m512 activated(__m512 x, xd_act act)
{
    switch (act) {
    case XD_GELU_TANH:  return gelu_tanh(x);
    case XD_GELU_ERF:   return gelu_erf(x);
    case XD_SILU:       return damped(x, _mm512_mul_ps(x, _mm512_set1_ps(-1.44269504f)));
    case XD_GELU_QUICK: return damped(x, _mm512_mul_ps(x, _mm512_set1_ps(-2.45546696f)));
    case XD_RELU:       return _mm512_max_ps(_mm512_setzero_ps(), x);    /* NaN stays          */
    default:            return x;
    }
}

static inline __m256i narrowed(__m512 x)
{
#ifdef __AVX512BF16__
    return (__m256i)_mm512_cvtneps_pbh(x);
#else
    return _mm512_cvtepi32_epi16(brain_bits(x));
#endif
}

/* Bytes of an element, F32 or BF16. */
static inline int64_t size_of(xd_dtype t)
{
    return t == XD_F32 ? 4 : 2;
}

static inline char *place_of(const xd_tensor *t, int64_t r, int64_t c)
{
    return (char *)t->p + (r * t->s[0] + c) * size_of(t->type);
}

static inline __m512 floats_at(const char *p, xd_dtype type, __mmask16 m)
{
    if (type == XD_F32)
        return _mm512_maskz_loadu_ps(m, p);
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, p)), 16));
}

/* Masked stores of halves take a Zen 4 some twenty cycles each. */
static inline void put_at(char *p, xd_dtype type, __mmask16 m, __m512 x)
{
    if (type == XD_F32)
        _mm512_mask_storeu_ps(p, m, x);
    else if (m == 0xffff)
        _mm256_storeu_si256((__m256i *)(void *)p, narrowed(x));
    else
        _mm256_mask_storeu_epi16(p, m, narrowed(x));
}

/* What 16 columns have in common. */
typedef struct finish_cols {
    __mmask16 m;                /* those that are there                                       */
    __m512    by, bias, gate;
    __m512i   fix;
} finish_cols;

FINISH_INLINE finish_cols columns_at(const xd_product *p, int64_t c)
{
    const __mmask16 m = lanes(p->N - c);
    const float    *bias = p->a->bias.p, *gate = p->a->gate.p;
    return (finish_cols){ m,
                          p->col ? _mm512_loadu_ps(p->col + c) : _mm512_setzero_ps(),
                          bias ? _mm512_maskz_loadu_ps(m, bias + c) : _mm512_setzero_ps(),
                          gate ? _mm512_maskz_loadu_ps(m, gate + c) : _mm512_setzero_ps(),
                          p->fix ? _mm512_loadu_si512(p->fix + c) : _mm512_setzero_si512() };
}

/* The sums of columns as the product's numbers: integers are put right, scales multiplied. */
FINISH_INLINE __m512 scaled(const xd_product *p, const float *sum, const float *row,
                            const finish_cols *k)
{
    if (row)
        return _mm512_mul_ps(
            _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_loadu_si512(sum), k->fix)),
            _mm512_mul_ps(_mm512_set1_ps(*row), k->by));
    return p->col ? _mm512_mul_ps(_mm512_loadu_ps(sum), k->by) : _mm512_loadu_ps(sum);
}

/* 16 sums of a row, whose scale is *row, with all that follows; `res`: the residual there, or NULL. */
FINISH_INLINE __m512 finished(const xd_product *p, const float *sum, const float *row,
                              const finish_cols *k, const char *res, xd_act act)
{
    const xd_gemm *a = p->a;
    __m512         x = scaled(p, sum, row, k);
    if (a->bias.p)
        x = _mm512_add_ps(x, k->bias);
    x = activated(x, act);
    if (a->gate.p)
        x = _mm512_mul_ps(x, k->gate);
    return res ? _mm512_add_ps(x, floats_at(res, a->residual.type, k->m)) : x;
}

/* Rows [r0, r0 + n) of panel `at`, whose sums have XD_PANEL a row. */
FINISH_INLINE void finish_as(const xd_product *p, const float *sums, int64_t at, int64_t r0,
                             int64_t n, xd_act act)
{
    const xd_gemm *a = p->a;
    const float   *row = p->row ? p->row + r0 : NULL;
    const int64_t  step = a->out.s[0] * size_of(a->out.type);
    const int64_t  rstep = a->residual.s[0] * size_of(a->residual.type);
    for (int64_t j = 0, c = at * XD_PANEL; j < XD_PANEL && c < p->N; j += 16, c += 16) {
        const finish_cols k = columns_at(p, c);
        char             *out = place_of(&a->out, r0, c);
        const char       *res = a->residual.p ? place_of(&a->residual, r0, c) : NULL;
        for (int64_t i = 0; i < n; i++, out += step)
            put_at(out, a->out.type, k.m,
                   finished(p, sums + i * XD_PANEL + j, row ? row + i : NULL, &k,
                            res ? res + i * rstep : NULL, act));
    }
}

static inline void finish(const xd_product *p, const float *sums, int64_t at, int64_t r0, int64_t n)
{
    switch (p->a->act) {
#define FINISH_CASE(act)                                                                           \
    case act: finish_as(p, sums, at, r0, n, act); break;
    FINISH_CASE(XD_GELU_TANH)
    FINISH_CASE(XD_GELU_ERF)
    FINISH_CASE(XD_SILU)
    FINISH_CASE(XD_RELU)
    FINISH_CASE(XD_GELU_QUICK)
    default: finish_as(p, sums, at, r0, n, XD_NONE);
    }
}

/* Asks for the lines of the output (and of another residual) that a tile will touch. */
FINISH_INLINE void finish_soon(const xd_product *p, int64_t at, int64_t r0, int64_t n)
{
    const xd_gemm   *a = p->a;
    const xd_tensor *t[2] = { &a->residual, &a->out };
    const int64_t    c0 = at * XD_PANEL, width = p->N - c0 < XD_PANEL ? p->N - c0 : XD_PANEL;
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
