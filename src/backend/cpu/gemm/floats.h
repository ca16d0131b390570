/* floats.h - defines the accumulators of tile_tmpl.h as vectors of 16 floats */
#ifndef XD_BACKEND_CPU_GEMM_FLOATS_H
#define XD_BACKEND_CPU_GEMM_FLOATS_H

#include <immintrin.h>

typedef __m512 v_sums;

/* clang-format off */
static inline __m512 v_none(void) { return _mm512_setzero_ps(); }
static inline __m512 v_get(const float *p) { return _mm512_loadu_ps(p); }
static inline void   v_put(float *p, __m512 x) { _mm512_storeu_ps(p, x); }
static inline __m512 v_join(__m512 x, __m512 y) { return _mm512_add_ps(x, y); }
/* clang-format on */

#endif
