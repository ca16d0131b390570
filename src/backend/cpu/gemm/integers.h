/* integers.h - rows of weights and of inputs as integers */
#ifndef XD_BACKEND_CPU_GEMM_INTEGERS_H
#define XD_BACKEND_CPU_GEMM_INTEGERS_H

#include "backend/cpu/gemm/scale.h"

/* Rounded to nearest even and clamped, in the low bytes of 32-bit lanes. */
static inline __m128i integers(__m512 x)
{
    x = _mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(-127.0f)), _mm512_set1_ps(127.0f));
    return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x));
}

/* 64 inputs of a row from the i-th on. */
static inline __m512i source_integers(const source *s, int64_t o, int64_t i, float scale)
{
    const int64_t size = (int64_t)xd_dtype_size(s->src.type);
    const char   *row = source_row(s, o);
    __m128i       q[4];
    for (int64_t k = 0; k < 4; k++) {
        int64_t from = i + 16 * k;
        q[k] = _mm_setzero_si128();
        if (from < s->w->in && scale > 0)
            q[k] = integers(_mm512_div_ps(
                source_at(row + from * size, s->src.type, s->w->in - from), _mm512_set1_ps(scale)));
    }
    return _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm256_inserti128_si256(_mm256_castsi128_si256(q[0]), q[1], 1)),
        _mm256_inserti128_si256(_mm256_castsi128_si256(q[2]), q[3], 1), 1);
}

/* 32 brains of a row from the i-th of n on, two in 32 bits, zeros behind the end. */
static inline __m512i brain_pairs(const char *x, int64_t i, int64_t n)
{
    const __mmask32 m = n - i >= 32 ? ~0u : n <= i ? 0 : (1u << (n - i)) - 1;
    return _mm512_maskz_loadu_epi16(m, x + i * 2);
}

/* The second of each two, as floats; the first is there when they are shifted by 16. */
static inline __m512i odd_brains(__m512i x)
{
    return _mm512_and_si512(x, _mm512_set1_epi32((int)0xffff0000u));
}

static inline float brains_most(const char *x, int64_t n)
{
    const __m512i size = _mm512_set1_epi16(0x7fff);
    __m512i       m0 = _mm512_setzero_si512(), m1 = m0;
    for (int64_t i = 0; i < n; i += 64) {
        m0 = _mm512_max_epu16(m0, _mm512_and_si512(size, brain_pairs(x, i, n)));
        m1 = _mm512_max_epu16(m1, _mm512_and_si512(size, brain_pairs(x, i + 32, n)));
    }
    m0 = _mm512_max_epu16(m0, m1);
    return most_of(_mm512_max_epu32(_mm512_slli_epi32(m0, 16), odd_brains(m0)));
}

static inline float floats_most(const char *x, int64_t n)
{
    const __m512i size = _mm512_set1_epi32(0x7fffffff);
    __m512i       m0 = _mm512_setzero_si512(), m1 = m0;
    for (int64_t i = 0; i < n; i += 32, x += 128) {
        m0 = _mm512_max_epu32(m0, _mm512_and_si512(size, _mm512_maskz_loadu_epi32(lanes(n - i), x)));
        m1 = _mm512_max_epu32(m1, _mm512_and_si512(size, _mm512_maskz_loadu_epi32(lanes(n - i - 16), x + 64)));
    }
    return most_of(_mm512_max_epu32(m0, m1));
}

/* x times `by`, rounded to nearest even, in 32 bits. */
static inline __m512i rounded(__m512i x, __m512 by)
{
    return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_castsi512_ps(x), by));
}

/* 64 numbers of a row from the i-th of n on times `by`, zeros behind the end; none is beyond 127. Instructions
 * that pack keep to quarters of a register, whose parts are put in order at last. */
static inline __m512i brain_integers(const char *x, int64_t i, int64_t n, __m512 by)
{
    const __m512i p = brain_pairs(x, i, n), q = brain_pairs(x, i + 32, n);
    const __m512i odd = _mm512_packs_epi32(rounded(odd_brains(p), by), rounded(odd_brains(q), by));
    const __m512i even = _mm512_packs_epi32(rounded(_mm512_slli_epi32(p, 16), by),
                                            rounded(_mm512_slli_epi32(q, 16), by));
    return _mm512_permutexvar_epi64(
        _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7),
        _mm512_or_si512(_mm512_slli_epi16(odd, 8), _mm512_and_si512(even, _mm512_set1_epi16(0xff))));
}

static inline __m512i float_integers(const char *x, int64_t i, int64_t n, __m512 by)
{
    __m512i v[4];
    for (int64_t k = 0; k < 4; k++, i += 16)
        v[k] = rounded(_mm512_maskz_loadu_epi32(lanes(n - i), x + i * 4), by);
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
        _mm512_packs_epi16(_mm512_packs_epi32(v[0], v[1]), _mm512_packs_epi32(v[2], v[3])));
}

/* n numbers of a row, brains or floats, as integers; step k of 64 of them, zeros behind the end, goes to q + k * step,
 * each changed by `flip`. The scale, in which NaN says that there was something not finite. */
FINISH_INLINE float integer_row(char *q, int64_t step, const char *x, int brains, int64_t n, char flip)
{
    const float   most = brains ? brains_most(x, n) : floats_most(x, n), s = xd_quant_scale(XD_I8, most);
    const __m512  by = _mm512_set1_ps(s > 0 ? 127.0f / most : 0.0f);
    const __m512i change = _mm512_set1_epi8(flip);
    for (int64_t i = 0; i < n; i += 64, q += step) {
        __m512i v = _mm512_setzero_si512();
        if (s > 0)
            v = brains ? brain_integers(x, i, n, by) : float_integers(x, i, n, by);
        _mm512_storeu_si512(q, _mm512_xor_si512(v, change));
    }
    return s;
}

/* Row r of a product's input likewise. What the processor asks for by itself ends with a page, so the row after
 * the next is asked for. */
static inline float input_integers(const xd_gemm *a, int64_t r, char *q, int64_t step, char flip)
{
    enum { AHEAD = 2 };
    const xd_tensor *in = &a->in;
    const int64_t    n = a->w->in, bytes = r + AHEAD < in->d[0] ? n * size_of(in->type) : 0;
    const char      *x = place_of(in, r, 0), *later = x + AHEAD * in->s[0] * size_of(in->type);
    for (int64_t b = 0; b < bytes; b += 64)
        _mm_prefetch(later + b, _MM_HINT_T0);
    return in->type == XD_BF16 ? integer_row(q, step, x, 1, n, flip) : integer_row(q, step, x, 0, n, flip);
}

#endif
