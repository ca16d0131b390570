/* element.h - converts tensor elements to floats and back, in files that are compiled once per
 * instruction set and define the macro ISA.
 *
 * The conversions contain no branches, so that the compiler can vectorize loops over them. */
#ifndef XD_BACKEND_CPU_ELEMENT_H
#define XD_BACKEND_CPU_ELEMENT_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#include "backend/cpu/vec512.h"
#endif

#ifndef ISA
#define ISA c
#endif
#define GLUE2(a, b) a##b
#define GLUE(a, b) GLUE2(a, b)

static inline uint32_t float_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float bits_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Rounds to the nearest bf16, ties to even; a NaN keeps its sign and becomes quiet. */
static inline uint16_t to_bf16(float f)
{
    uint32_t u = float_bits(f), nan = (u & 0x7fffffffu) > 0x7f800000u;
    uint32_t r = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
    return (uint16_t)(nan ? (u >> 16) | 0x40u : r);
}

/* Converts an f16 to float. If the exponent and mantissa bits of an f16 are moved to their
 * positions in a float, the float is the f16 value times 2^-112. The multiplication by 2^112 does
 * not restore infinities and NaNs, so their exponents are set separately. */
static inline float from_f16(uint16_t h)
{
    uint32_t s = (uint32_t)(h & 0x8000u) << 16, m = (uint32_t)(h & 0x7fffu) << 13;
    uint32_t u = float_bits(bits_float(m) * 0x1p112f);
    u = m >= 0x0f800000u ? m | 0x7f800000u : u;
    return bits_float(u | s);
}

/* Converts an e4m3 to float by moving its bits to their positions in a float and multiplying by
 * 2^120. The only NaN of e4m3 has all bits set. */
static inline float from_e4m3(uint8_t v)
{
    uint32_t s = (uint32_t)(v & 0x80u) << 24, m = (uint32_t)(v & 0x7fu) << 20;
    uint32_t u = float_bits(bits_float(m) * 0x1p120f);
    u = m == 0x07f00000u ? 0x7fc00000u : u;
    return bits_float(u | s);
}

/* Rounds a float to the nearest f16, ties to even. Normal f16 results are rounded by integer
 * arithmetic. Subnormal f16 results are rounded by adding 0.5f, because the last mantissa bit of
 * 0.5f is worth as much as the last bit of a subnormal f16. */
static inline uint16_t to_f16(float f)
{
    uint32_t u = float_bits(f), s = (u >> 16) & 0x8000u, m = u & 0x7fffffffu;
    uint32_t normal = (m - 0x38000000u + 0xfffu + ((m >> 13) & 1)) >> 13;
    uint32_t small = float_bits(bits_float(m) + 0.5f) - float_bits(0.5f);
    uint32_t special = m > 0x7f800000u ? 0x7e00u | (m >> 13 & 0x3ffu) : 0x7c00u;
    uint32_t r = m < 0x38800000u ? small : normal;
    return (uint16_t)(s | (m >= 0x477ff000u ? special : r));
}

/* Converts n bf16 values to floats. */
static inline void from_bf16s(float *to, const void *from, int64_t n)
{
    int64_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(to + i, load_bf16((const uint16_t *)from + i));
    if (i < n)
        _mm512_mask_storeu_ps(to + i, lane_mask(n - i),
                              load_bf16_some((const uint16_t *)from + i, n - i));
#else
    const uint16_t *p = from;
#pragma omp simd
    for (i = 0; i < n; i++)
        to[i] = bits_float((uint32_t)p[i] << 16);
#endif
}

/* Converts n floats, which are results of arithmetic, to bf16. With AVX512_BF16, to_bf16s flushes
 * denormals to 0, so a kernel that copies tensors must not use it. */
static inline void to_bf16s(void *to, const float *from, int64_t n)
{
    uint16_t *p = to;
    int64_t   i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((__m256i *)(void *)(p + i), bf16(_mm512_loadu_ps(from + i)));
    if (i < n)
        _mm256_mask_storeu_epi16(p + i, lane_mask(n - i),
                                 bf16(_mm512_maskz_loadu_ps(lane_mask(n - i), from + i)));
#else
#pragma omp simd
    for (i = 0; i < n; i++)
        p[i] = to_bf16(from[i]);
#endif
}

#endif
