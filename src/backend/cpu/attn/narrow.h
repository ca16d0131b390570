/* narrow.h - defines the vector operations of flash_tmpl.h in AVX2, for vectors of 8 floats.
 * wide_tmpl.h defines the operations in AVX-512. */
#ifndef XD_BACKEND_CPU_ATTN_NARROW_H
#define XD_BACKEND_CPU_ATTN_NARROW_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "tensor/tensor.h"

enum { LANES = 8 };

typedef __m256  vf, vm;
typedef __m256i vi;

/* clang-format off */
static inline vf v_zero(void) { return _mm256_setzero_ps(); }
static inline vf v_set(float x) { return _mm256_set1_ps(x); }
static inline vf v_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void v_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
static inline vf v_add(vf x, vf y) { return _mm256_add_ps(x, y); }
static inline vf v_sub(vf x, vf y) { return _mm256_sub_ps(x, y); }
static inline vf v_mul(vf x, vf y) { return _mm256_mul_ps(x, y); }
static inline vf v_min(vf x, vf y) { return _mm256_min_ps(x, y); }
static inline vf v_max(vf x, vf y) { return _mm256_max_ps(x, y); }
static inline vf v_fma(vf x, vf y, vf z) { return _mm256_fmadd_ps(x, y, z); }
static inline float v_first(vf x) { return _mm256_cvtss_f32(x); }
static inline vf v_abs(vf x) { return _mm256_andnot_ps(v_set(-0.0f), x); }
/* clang-format on */

/* Returns the inverse of each lane, 1 / x. */
static inline vf v_inverse(vf x)
{
    return _mm256_div_ps(v_set(1.0f), x);
}

static inline vi v_integers(const int32_t *p)
{
    return p ? _mm256_loadu_si256((const __m256i *)(const void *)p) : _mm256_setzero_si256();
}

/* Returns the differences of two vectors of int32 values, converted to float. */
static inline vf v_whole(const float *x, vi less)
{
    return _mm256_cvtepi32_ps(
        _mm256_sub_epi32(_mm256_loadu_si256((const __m256i *)(const void *)x), less));
}

static inline float v_hmax(vf x)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

static inline float v_hadd(vf x)
{
    __m128 m = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    m = _mm_add_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_add_ss(m, _mm_movehdup_ps(m)));
}

/* The comments in wide_tmpl.h describe v_not_below and v_power. */
static inline vm v_not_below(vf x, float least)
{
    return _mm256_cmp_ps(x, v_set(least), _CMP_NLT_UQ);
}

static inline vf v_power(vf p, vf t, vm live)
{
    const __m256i r =
        _mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(t), 23));
    return _mm256_and_ps(live, _mm256_castsi256_ps(r));
}

static inline vf v_exp2(vf x)
{
    const vf magic = v_set(12582912.0f), t = v_add(x, magic);
    const vf f = v_sub(x, v_sub(t, magic));
    vf       p = v_fma(v_set(0.00132647273f), f, v_set(0.00967151299f));
    p = v_fma(p, f, v_set(0.0555073358f));
    p = v_fma(p, f, v_set(0.240222424f));
    p = v_fma(p, f, v_set(0.693147004f));
    p = v_fma(p, f, v_set(1.0f));
    return v_power(p, t, v_not_below(x, -100.0f));
}

static inline __m256i first_lanes(int64_t n)
{
    const __m256i at = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n > 8 ? 8 : (int)n), at);
}

/* Returns the first n lanes of x, with -infinity in the other lanes. */
static inline vf v_keep(vf x, int64_t n)
{
    return _mm256_blendv_ps(v_set(-INFINITY), x, _mm256_castsi256_ps(first_lanes(n)));
}

/* Returns elements [c, c + 8) of a row of D elements as floats, with zeros after the end of the
 * row. */
static inline vf float_row(const char *row, xd_dtype type, int64_t c, int64_t D)
{
    const int64_t left = D - c;
    if (left <= 0)
        return v_zero();
    if (type == XD_F32 && left >= 8)
        return _mm256_loadu_ps((const float *)(const void *)row + c);
    if (type == XD_F32)
        return _mm256_maskload_ps((const float *)(const void *)row + c, first_lanes(left));
    uint16_t h[8] = { 0 };
    memcpy(h, row + 2 * c, left < 8 ? (size_t)left * 2 : 16);
    const __m256i w = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)h));
    return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
}

/* Returns x rounded to the nearest bf16, ties to even; a NaN stays a NaN. */
static inline __m128i bf16(vf x)
{
    const __m256i u = _mm256_castps_si256(x), one = _mm256_set1_epi32(1);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), one);
    const __m256i r = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i b = _mm256_srli_epi32(
        _mm256_blendv_epi8(r, _mm256_or_si256(u, _mm256_set1_epi32(0x400000)), nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
}

static inline void put_out(char *to, xd_dtype type, vf x, int64_t n)
{
    if (type == XD_F32) {
        if (n >= 8)
            _mm256_storeu_ps((float *)(void *)to, x);
        else
            _mm256_maskstore_ps((float *)(void *)to, first_lanes(n), x);
        return;
    }
    const __m128i h = bf16(x);
    if (n >= 8)
        _mm_storeu_si128((__m128i *)(void *)to, h);
    else
        memcpy(to, &h, (size_t)n * 2);
}

/* Transposes a matrix of 8 x 8 floats. */
static inline void transpose_floats(vf v[8])
{
    vf t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        v[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        v[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        v[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        v[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(v[i], v[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(v[i], v[i + 4], 0x31);
    }
    for (int i = 0; i < 8; i++)
        v[i] = t[i];
}

#endif
