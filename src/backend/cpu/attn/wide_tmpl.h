/* wide_tmpl.h - defines the vector operations of flash_tmpl.h in AVX-512. A 32-bit unit of a row is
 * one float or two bf16.
 *
 * Before including wide_tmpl.h, the including file defines PAIRS and the operations on 32-bit
 * units. */
#ifndef XD_BACKEND_CPU_ATTN_WIDE_TMPL_H
#define XD_BACKEND_CPU_ATTN_WIDE_TMPL_H

#include <math.h>
#include <stddef.h>

#include "backend/cpu/vec512.h"
#include "tensor/tensor.h"

enum { LANES = 16 };

typedef __m512    vf;
typedef __m256    vh;
typedef __m512i   vi;
typedef __mmask16 vm;

/* clang-format off */
static inline vf v_zero(void) { return _mm512_setzero_ps(); }
static inline vf v_set(float x) { return _mm512_set1_ps(x); }
static inline vf v_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void v_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
static inline vf v_add(vf x, vf y) { return _mm512_add_ps(x, y); }
static inline vf v_sub(vf x, vf y) { return _mm512_sub_ps(x, y); }
static inline vf v_mul(vf x, vf y) { return _mm512_mul_ps(x, y); }
static inline vf v_min(vf x, vf y) { return _mm512_min_ps(x, y); }
static inline vf v_max(vf x, vf y) { return _mm512_max_ps(x, y); }
static inline vf v_fma(vf x, vf y, vf z) { return _mm512_fmadd_ps(x, y, z); }
static inline vf v_abs(vf x) { return _mm512_abs_ps(x); }
static inline float v_hmax(vf x) { return _mm512_reduce_max_ps(x); }
static inline float v_hadd(vf x) { return _mm512_reduce_add_ps(x); }
static inline float v_first(vf x) { return _mm512_cvtss_f32(x); }

static inline vh v_zero_half(void) { return _mm256_setzero_ps(); }
static inline vh v_load_half(const float *p) { return _mm256_loadu_ps(p); }
static inline void v_store_half(float *p, vh x) { _mm256_storeu_ps(p, x); }
static inline vf v_wide(vh x) { return _mm512_insertf32x8(v_set(-INFINITY), x, 0); }
static inline vh v_add_half(vh x, vh y) { return _mm256_add_ps(x, y); }
/* clang-format on */

/* Returns 1 / x for 1 <= x, from a 14-bit estimate and one Newton step. */
static inline vf v_inverse(vf x)
{
    const vf r = _mm512_rcp14_ps(x);
    return v_fma(_mm512_fnmadd_ps(x, r, v_set(1.0f)), r, r);
}

static inline vi v_integers(const int32_t *p)
{
    return p ? _mm512_loadu_si512(p) : _mm512_setzero_si512();
}

/* Returns the differences of two vectors of int32 values, converted to float. */
static inline vf v_whole(const float *x, vi less)
{
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_loadu_si512(x), less));
}

static inline vm v_not_below(vf x, float least)
{
    return _mm512_cmp_ps_mask(x, v_set(least), _CMP_NLT_UQ);
}

/* Returns p times 2^n, where n is the integer in the low bits of t. Lanes whose bit in the mask
 * `live` is 0 become 0. */
static inline vf v_power(vf p, vf t, vm live)
{
    return _mm512_castsi512_ps(_mm512_maskz_add_epi32(
        live, _mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(t), 23)));
}

/* Computes 2^x for x < 100.
 *
 * If PAIRS is 1, probabilities are later rounded to bf16, so a polynomial of low degree suffices
 * for 2^x. The minimax polynomial p, with p(0) = 1, computes 2^(x - floor(x)) with a relative error
 * of 9e-5. For x = -infinity, the instruction vscalefps returns 0, so 2^x is 0.
 *
 * If PAIRS is 0, v_exp2 returns 0 for x < -100. A term of 2^-100 does not change an f32 sum that is
 * at least 1, and without terms below 2^-100, sums of products never become denormal. Adding 1.5 *
 * 2^23 to x rounds x to an integer n, which is then in the low bits of the float; a shift moves n
 * to the exponent. A polynomial of degree 5 approximates 2^(x - n) on [-1/2, 1/2] with a relative
 * error of 9e-8. */
static inline vf v_exp2(vf x)
{
    if (PAIRS) {
        const vf g = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
        vf       q = v_fma(v_set(0.0770671974f), g, v_set(0.227644822f));
        q = v_fma(q, g, v_set(0.695116825f));
        return _mm512_scalef_ps(v_fma(q, g, v_set(1.0f)), x);
    }
    const vf t = v_add(x, v_set(12582912.0f));
    const vf f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEAREST_INT);
    vf       p = v_fma(v_set(0.00132647273f), f, v_set(0.00967151299f));
    p = v_fma(p, f, v_set(0.0555073358f));
    p = v_fma(p, f, v_set(0.240222424f));
    p = v_fma(p, f, v_set(0.693147004f));
    p = v_fma(p, f, v_set(1.0f));
    return v_power(p, t, v_not_below(x, -100.0f));
}

/* Returns the first n lanes of x, with -infinity in the other lanes. */
static inline vf v_keep(vf x, int64_t n)
{
    return _mm512_mask_mov_ps(v_set(-INFINITY), lane_mask(n), x);
}

/* Returns 16 bf16 values of a row of D elements, from element c on, in the low halves of the lanes.
 * Full vectors are loaded without a mask, because on some machines a masked load costs more than a
 * branch. */
static inline __m512i bf16_row(const char *row, int64_t c, int64_t D)
{
    if (D - c >= 16)
        return _mm512_cvtepu16_epi32(
            _mm256_loadu_si256((const __m256i *)(const void *)(row + 2 * c)));
    return _mm512_cvtepu16_epi32(
        _mm256_maskz_loadu_epi16(lane_mask(D - c), (const uint16_t *)(const void *)row + c));
}

static inline vf float_row(const char *row, xd_dtype type, int64_t c, int64_t D)
{
    if (type == XD_F32)
        return _mm512_maskz_loadu_ps(lane_mask(D - c), (const float *)(const void *)row + c);
    return _mm512_castsi512_ps(_mm512_slli_epi32(bf16_row(row, c, D), 16));
}

static inline void put_out(char *to, xd_dtype type, vf x, int64_t n)
{
    if (type == XD_F32)
        _mm512_mask_storeu_ps(to, lane_mask(n), x);
    else if (n >= 16)
        _mm256_storeu_si256((__m256i *)(void *)to, bf16(x));
    else if (n == 8)
        _mm_storeu_si128((__m128i *)(void *)to, _mm256_castsi256_si128(bf16(x)));
    else
        _mm256_mask_storeu_epi16(to, lane_mask(n), bf16(x));
}

/* Transposes a matrix of 16 x 16 elements of 32 bits, by two rounds of unpack instructions within
 * 128-bit lanes and two rounds of shuffles of these lanes. */
static inline void transpose_bits(__m512i r[16])
{
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

#endif
