/* powers_tmpl.h - computes the softmax of amx.c between tile multiplies, with 6 instructions for 32
 * powers of two.
 *
 * The including file defines STRIP, STEP_KEYS, DEEP and ALWAYS_INLINE, and has included pairs.h and
 * flash_tmpl.h.
 *
 * A power of two is computed from its exponent in fixed point with 7 fraction bits. The fixed-point
 * number plus bf16's exponent bias, interpreted as the bits of a bf16 value, has the mantissa 1 + f
 * instead of 2^f, where f is the fraction of the exponent. A table (powers.h) corrects the
 * difference between the mantissa 1 + f and 2^f. The rms error of a power over all f is 0.23 %; the
 * rms error of rounding to bf16 alone is 0.17 %.
 *
 * The exponent in fixed point, with the bias, is computed as a float to which 1.5 * 2^23 is also
 * added; after this addition, the exponent is in the low 16 bits of the float. The low 16 bits of
 * two floats with fixed-point sums form a 32-bit unit of two bf16 probabilities. A fixed-point sum
 * that does not fit into 16 bits wraps around, so the range of the scores must be known in advance.
 * All variants of the softmax (BOUNDED, WATCHED, CLAMPED) round once and at the same place, so that
 * a row's probabilities are bit-identical whichever variant the neighbouring rows need. */
#ifndef XD_BACKEND_CPU_ATTN_POWERS_TMPL_H
#define XD_BACKEND_CPU_ATTN_POWERS_TMPL_H

#include "backend/cpu/attn/powers.h"

static const float ONE = 128;        /* 1.0 in fixed point with 7 fraction bits */
static const float BASE = 0x1.8p23f; /* a float whose low 16 bits are 0 */
/* The exponent bias of bf16 (127) plus 256, in fixed point. 256 in fixed point is 2^15, which is
 * subtracted later. */
static const float BIAS = (127 + 256) * 128;
/* largest fixed-point sum, for which the probability becomes NaN */
static const float MOST = 65535;
/* scores below BOUND need no reference score, because their powers of two fit into bf16 */
static const float BOUND = 126;
/* If the scores of a row, relative to the row's reference score, are below FAR, the magnitudes of
 * their exponents are below 2^15. If the magnitudes are below 2^15, a fixed-point sum that does not
 * fit into 16 bits changes the high 16 bits of the float. */
static const float FAR = 10000;
/* Exponent of two that replaces the exponent of a score of -infinity, if scores are not clamped.
 * For an exponent of LEAST, the computed power of two is 0, and the fixed-point sum is still
 * positive. */
static const float LEAST = -255;
/* a row is computed again if its sum of probabilities is above LIFT or below 1 / LIFT */
static const float LIFT = 0x1p60f;

/* The input scores and the output probabilities of a softmax of 32 queries and 32 keys. */
typedef struct softmax_state {
    float       *s;    /* [32][STEP_KEYS] attention scores */
    const float *bias; /* bias of query row 0, or NULL */
    int64_t      bias_step;
    unit        *p;   /* [32][DEEP] probabilities, in 32-bit units */
    const float *low; /* for each query, the number that is added to its scaled scores */
} softmax_state;

typedef struct curve {
    /* Two factors by which the softmax multiplies scores. With a bias, a score is first multiplied
     * by `natural`, which is the attention's scale, and the bias is added. Multiplying a score
     * (with its bias, if it has one) by `scale` converts it to an exponent of two in fixed
     * point. */
    vf      natural, scale;
    /* number that is added to scaled scores if the reference score is 0 */
    vf      low;
    vf      min_sum, max_sum; /* range of fixed-point sums that fit into 16 bits */
    __m512i less, high, six, halves;
    __m512i met; /* WATCHED only: bitwise OR of all floats with fixed-point sums */
} curve;

static const uint8_t LESS[XD_POWERS] __attribute__((aligned(64))) = { XD_POWERS_LESS };

/* The known range of the scores of a strip of queries (32 queries that are multiplied together).
 * BOUNDED: the magnitudes of all scores are below the constant BOUND. WATCHED: relative to any
 * reference score, all scores are finite and below FAR. CLAMPED: the range of the scores is
 * unknown, so scores are clamped. */
enum { BOUNDED, WATCHED, CLAMPED };

/* Variant of the softmax, known at compile time. `biased` is 1 if scores have a bias and are
 * therefore clamped. `kind` is BOUNDED, WATCHED or CLAMPED. `summed` is 1 if separate tile
 * multiplies sum the probabilities, and 0 if the multiplication by the values also sums them. */
typedef struct how { int biased, kind, summed; } how;

static inline curve curve_of(float c, how h)
{
    return (curve){ v_set(c / log2e),
                    v_set(h.biased ? log2e * ONE : c * ONE),
                    v_set(BASE + BIAS),
                    v_set(BASE),
                    v_set(BASE + MOST),
                    _mm512_load_si512(LESS),
                    _mm512_set1_epi16((short)0x8000),
                    _mm512_set1_epi64(0x0031002100110001),
                    _mm512_set1_epi64(0x2820000008000000),
                    _mm512_setzero_si512() };
}

/* Returns 16 powers of two in fixed point, in the low halves of the 32-bit lanes. */
ALWAYS_INLINE __m512i fixed_point_powers(const float *s, const float *bias, vf low, const curve *k,
                                         how h)
{
    vf x = v_load(s);
    if (h.biased)
        x = v_fma(x, k->natural, v_load(bias));
    x = v_fma(x, k->scale, low);
    if (h.kind == CLAMPED)
        x = v_max(v_min(x, k->max_sum), k->min_sum);
    return _mm512_castps_si512(x);
}

/* Turns the scores of row r into probabilities. Because BIAS includes 2^15, the fixed-point sum of
 * a score that is too large is 65535, and the sum of a score that is too small is less than 2^15.
 * The saturating subtraction of 2^15 turns 65535 into the bits of a bf16 NaN and values below 2^15
 * into 0. */
ALWAYS_INLINE void softmax_row(const softmax_state *a, int64_t r, curve *k, how h)
{
    const float  *s = a->s + r * STEP_KEYS, *bias = h.biased ? a->bias + r * a->bias_step : NULL;
    const vf      low = h.kind == BOUNDED ? k->low : v_set(a->low[r]);
    const __m512i even = fixed_point_powers(s, bias, low, k, h),
                  odd = fixed_point_powers(s + LANES, bias + LANES, low, k, h);
    const __m512i x = _mm512_mask_multishift_epi64_epi8(even, 0xcccccccccccccccc, k->halves, odd);
    const __m512i digits = _mm512_multishift_epi64_epi8(k->six, x);
    const __m512i less = _mm512_mask_permutexvar_epi8(k->high, 0x5555555555555555, digits, k->less);
    v_put_units(a->p + r * DEEP, _mm512_subs_epu16(x, less));
    if (h.kind == WATCHED)
        k->met = _mm512_ternarylogic_epi32(k->met, even, odd, 0xfe);
}

/* Returns 1 if all fixed-point sums so far fitted into the low 16 bits of a lane. For scores below
 * FAR, a fixed-point sum that did not fit has changed the high 16 bits of its lane. */
ALWAYS_INLINE int all_in_range(const curve *k)
{
    const __m512i base = _mm512_castps_si512(v_set(BASE)),
                  high = _mm512_set1_epi32((int)0xffff0000);
    return _mm512_test_epi32_mask(_mm512_andnot_si512(base, k->met), high) == 0;
}

/* Turns the scores of rows [row, row + n) of `soft` into probabilities, and stops after the strip's
 * last row. Returns the index of the row after the last processed row. */
ALWAYS_INLINE int64_t softmax_rows(const softmax_state *soft, int64_t row, int64_t n, curve *k,
                                   how h)
{
    const int64_t end = xd_min(row + n, STRIP);
    _Pragma("GCC unroll 8") for (; row < end; row++) softmax_row(soft, row, k, h);
    return row;
}

/* ---- norms of queries and keys ------------------------------------------------------------ */

/* Returns the sum of the squares of n vectors, for each lane separately. */
ALWAYS_INLINE vf sum_of_squares(const unit *x, int64_t n)
{
    vf sum = v_zero();
    for (const unit *end = x + n * LANES; x < end; x += LANES) {
        const __m512bh y = (__m512bh)_mm512_loadu_si512(x);
        sum = _mm512_dpbf16_ps(sum, y, y);
    }
    return sum;
}

/* Returns the maximum of non-negative values in each lane; a NaN counts as the largest. */
ALWAYS_INLINE vf max_or_nan(vf x, vf y)
{
    return _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(x), _mm512_castps_si512(y)));
}

#endif
