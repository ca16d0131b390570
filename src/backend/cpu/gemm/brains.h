/* brains.h - units of two brains, the even input in the low half, for tile.h */
#ifndef XD_BACKEND_CPU_GEMM_BRAINS_H
#define XD_BACKEND_CPU_GEMM_BRAINS_H

#include <immintrin.h>
#include <string.h>

typedef __m512 v_sums;

static inline __m512 v_none(void) { return _mm512_setzero_ps(); }
static inline __m512 v_get(const float *p) { return _mm512_loadu_ps(p); }
static inline void   v_put(float *p, __m512 x) { _mm512_storeu_ps(p, x); }
static inline __m512 v_join(__m512 x, __m512 y) { return _mm512_add_ps(x, y); }

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
