/* pairs.h - creates 32-bit units of two bf16 (plan.h) in AVX-512, for vector dot products and for
 * tile multiplies */
#ifndef XD_BACKEND_CPU_ATTN_PAIRS_H
#define XD_BACKEND_CPU_ATTN_PAIRS_H

enum { PAIRS = 1 };

#include "backend/cpu/attn/wide_tmpl.h"

typedef uint32_t unit; /* element 2u of a row is in the low half, element 2u + 1 in the high half */
typedef __m512i  vu;

static inline void v_put_units(unit *p, vu x)
{
    _mm512_storeu_si512(p, x);
}

/* Stores 32 probabilities as bf16. put_probs works in place: `to` may be the address of the 32
 * scores from which x and y were computed; the first 16 of these scores are then overwritten. */
static inline void put_probs(float *to, vf x, vf y)
{
#ifdef XD_EMULATE_BF16DOT
    _mm256_storeu_si256((__m256i *)(void *)to, bf16(x));
    _mm256_storeu_si256((__m256i *)(void *)(to + 8), bf16(y));
#else
    _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(y, x));
#endif
}

static inline vu get_units(const char *row, xd_dtype type, int64_t u, int64_t D)
{
    const int64_t left = D - 2 * u;
    (void)type;
    if (left >= 32)
        return _mm512_loadu_si512(row + 4 * u);
    return _mm512_maskz_loadu_epi16(left <= 0 ? 0 : (1u << left) - 1,
                                    (const uint16_t *)(const void *)row + 2 * u);
}

static inline vu get_values(const char *row, const char *next, xd_dtype type, int64_t c, int64_t D)
{
    const vu low = bf16_row(row, c, D);
    (void)type;
    return next ? _mm512_or_si512(low, _mm512_slli_epi32(bf16_row(next, c, D), 16)) : low;
}

static inline void transpose(vu v[16])
{
    transpose_bits(v);
}

#endif
