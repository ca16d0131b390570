/* brains.h - units of two brains, the even input in the low half, for tile.h */
#ifndef XD_BACKEND_CPU_GEMM_BRAINS_H
#define XD_BACKEND_CPU_GEMM_BRAINS_H

#include <string.h>

#include "backend/cpu/gemm/floats.h"

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

#endif
