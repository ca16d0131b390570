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

static inline __m512i magnitudes(const char *x, xd_dtype type, int64_t n)
{
    return _mm512_and_si512(_mm512_castps_si512(floats_at(x, type, lanes(n))),
                            _mm512_set1_epi32(0x7fffffff));
}

/* n numbers of a row as integers; step k of 64 of them, zeros behind the end, goes to q + k * step,
 * each changed by `flip`. The scale, in which NaN says that there was something not finite. */
FINISH_INLINE float integer_row(char *q, int64_t step, const char *x, xd_dtype type, int64_t n, char flip)
{
    const int64_t size = size_of(type);
    __m512i       m0 = _mm512_setzero_si512(), m1 = m0;
    for (int64_t i = 0; i < n; i += 32) {
        m0 = _mm512_max_epu32(m0, magnitudes(x + i * size, type, n - i));
        m1 = _mm512_max_epu32(m1, magnitudes(x + (i + 16) * size, type, n - i - 16));
    }
    const float  most = most_of(_mm512_max_epu32(m0, m1)), s = xd_quant_scale(XD_I8, most);
    const __m512 by = _mm512_set1_ps(s > 0 ? 127.0f / most : 0.0f);
    for (int64_t k = 0; k < n; k += 64, q += step)
        for (int64_t i = 0; i < 64; i += 16) {
            __m512 v = k + i < n ? floats_at(x + (k + i) * size, type, lanes(n - k - i)) : _mm512_setzero_ps();
            v = s > 0 ? _mm512_mul_ps(v, by) : _mm512_setzero_ps();
            _mm_storeu_si128((__m128i *)(void *)(q + i), _mm_xor_si128(integers(v), _mm_set1_epi8(flip)));
        }
    return s;
}

#endif
