/* bf16_pairs.h - defines the bf16 operands of tile_tmpl.h, and converts weight rows to bf16. A
 * 32-bit unit (block.h) holds two neighbouring bf16 values: the element with the even index is in
 * the low half. */
#ifndef XD_BACKEND_CPU_GEMM_BF16_PAIRS_H
#define XD_BACKEND_CPU_GEMM_BF16_PAIRS_H

#include <string.h>

#include "backend/cpu/gemm/floats.h"
#include "tensor/tensor.h"

static inline __m512 v_dot(__m512 sum, __m512i x, __m512i y)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)y);
}

static inline __m512i v_half(const char *p)
{
    uint16_t u;
    memcpy(&u, p, sizeof u);
    return _mm512_set1_epi32(u);
}

/* Returns up to 32 elements of a row of `type` as bf16, with zeros from element n on. */
static inline __m512i bf16_at(const char *p, xd_dtype type, int64_t n)
{
    uint16_t some[32];
    if (type == XD_BF16)
        return _mm512_maskz_loadu_epi16(n < 32 ? (1u << n) - 1 : 0xffffffffu, p);
    if (n == 32 && type == XD_F32)
        return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(p + 64), _mm512_loadu_ps(p));
    if (n == 32 && type == XD_F16)
        return (__m512i)_mm512_cvtne2ps_pbh(
            _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(p + 32))),
            _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p)));
    memset(some, 0, sizeof some);
    xd_convert(some, XD_BF16, p, type, n);
    return _mm512_loadu_si512(some);
}

#endif
