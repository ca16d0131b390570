/* pair_dots.h - computes dot products of 32-bit units of two bf16 (plan.h) in vector registers, by
 * AVX512_BF16 or, if XD_EMULATE_BF16DOT is defined, by an emulation in AVX-512 F */
#ifndef XD_BACKEND_CPU_ATTN_PAIR_DOTS_H
#define XD_BACKEND_CPU_ATTN_PAIR_DOTS_H

#include "backend/cpu/attn/pairs.h"

typedef __m256i vuh;

static inline vu v_units(const unit *p)
{
    return _mm512_loadu_si512(p);
}
static inline vuh v_units_half(const unit *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* Broadcasts a 32-bit unit to all lanes. The intrinsic for float is used instead of a load as
 * uint32_t, because the probabilities were stored as floats: strict aliasing forbids such a
 * load. */
static inline vu v_spread(const unit *p)
{
    return _mm512_castps_si512(_mm512_broadcastss_ps(_mm_load_ss((const float *)(const void *)p)));
}

#ifdef XD_EMULATE_BF16DOT
/* Adds to each lane of acc the dot product of the two bf16 elements in that lane of x and of y.
 * Products of the high 16-bit halves of the lanes are added first, as in the instruction
 * vdpbf16ps. */
static inline vf v_dot(vf acc, vu x, vu y)
{
    const __m512i high = _mm512_set1_epi32((int)0xffff0000u);
    const vf      xh = _mm512_castsi512_ps(_mm512_and_si512(x, high));
    const vf      yh = _mm512_castsi512_ps(_mm512_and_si512(y, high));
    const vf      xl = _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
    const vf      yl = _mm512_castsi512_ps(_mm512_slli_epi32(y, 16));
    return _mm512_fmadd_ps(xl, yl, _mm512_fmadd_ps(xh, yh, acc));
}

static inline vh v_dot_half(vh acc, vu x, vuh y)
{
    return _mm512_castps512_ps256(v_dot(_mm512_castps256_ps512(acc), x, _mm512_castsi256_si512(y)));
}
#else
static inline vf v_dot(vf acc, vu x, vu y)
{
    return _mm512_dpbf16_ps(acc, (__m512bh)x, (__m512bh)y);
}

static inline vh v_dot_half(vh acc, vu x, vuh y)
{
    return _mm256_dpbf16_ps(acc, (__m256bh)_mm512_castsi512_si256(x), (__m256bh)y);
}
#endif

#endif
