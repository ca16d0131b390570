/* vec512.h - computes masks of the first lanes of vectors of 16 floats, and converts such vectors
 * from and to bf16, in files that are compiled with AVX-512 */
#ifndef XD_BACKEND_CPU_VEC512_H
#define XD_BACKEND_CPU_VEC512_H

#include <immintrin.h>
#include <stdint.h>

/* Returns the mask of the first n lanes; empty for n <= 0. */
static inline __mmask16 lane_mask(int64_t n)
{
    return n >= 16 ? (__mmask16)0xffff : n <= 0 ? (__mmask16)0 : (__mmask16)((1u << n) - 1);
}

/* Returns x rounded to bf16 (to nearest even), in the low 16 bits of each lane; a NaN stays a
 * NaN. */
static inline __m512i bf16_bits(__m512 x)
{
    const __m512i   u = _mm512_castps_si512(x), one = _mm512_set1_epi32(1);
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i   odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), one);
    const __m512i   r = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    return _mm512_srli_epi32(
        _mm512_mask_mov_epi32(r, nan, _mm512_or_si512(u, _mm512_set1_epi32(0x400000))), 16);
}

/* Returns x rounded to bf16. With AVX512_BF16 the conversion instruction flushes denormals to 0. */
static inline __m256i bf16(__m512 x)
{
#if defined(__AVX512BF16__)
    return (__m256i)_mm512_cvtneps_pbh(x);
#else
    return _mm512_cvtepi32_epi16(bf16_bits(x));
#endif
}

static inline __m512 from_bf16(__m256i x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

/* Load 16 bf16 values as floats. load_bf16_some loads only the first n values, and sets the others
 * to zero. */
static inline __m512 load_bf16(const void *p)
{
    return from_bf16(_mm256_loadu_si256(p));
}

static inline __m512 load_bf16_some(const void *p, int64_t n)
{
    return from_bf16(_mm256_maskz_loadu_epi16(lane_mask(n), p));
}

#endif
