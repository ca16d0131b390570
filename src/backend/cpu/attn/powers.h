/* powers.h - scores become probabilities, powers of two, beside products of tiles: 6 instructions for 32 of them
 *
 * A power of two is made in fixed point: 7 binary digits behind the point, of which an addition of the
 * exponent's bias makes a bf16 value whose mantissa is the fraction f of the power instead of 2^f - 1. A table
 * has the difference. Counted over all f, its error is 0.23 % (rms), that of rounding to a bf16 value 0.17 %.
 *
 * Added is 1.5 2^23 too, so that the low half of a float is the sum, and two of them make a unit; where it
 * does not fit it wraps around. So what scores may be has to be known before; and all variants round once, at the
 * same place, so that no row's bits depend on which variant its neighbours need. */
#ifndef XD_BACKEND_CPU_ATTN_POWERS_H
#define XD_BACKEND_CPU_ATTN_POWERS_H

static const float ONE = 128;           /* in fixed point                                     */
static const float BASE = 0x1.8p23f;    /* zero, in the low half of a float                   */
static const float BIAS = (127 + 256) * 128;    /* of exponents, and 2^15 that are subtracted again   */
static const float MOST = 65535;        /* what is above, or no number, becomes no number     */
static const float BOUND = 126;         /* of scores that a bf16 value's exponent holds as they are */
static const float FAR = 10000;         /* of scores that wrap around so that it is seen: 2^15 with a reference */
static const float LEAST = -255;        /* stands for -infinity beside them: no bf16 value, but a sum above 0 */
static const float LIFT = 0x1p60f;      /* a sum of probabilities that is not trusted, or its inverse */

/* Scores of 32 queries and keys that are to become probabilities. */
typedef struct softmax_state {
    float       *s;             /* [32][TURN]                                                 */
    const float *bias;          /* of row 0, or NULL                                          */
    int64_t      bias_step;
    unit        *p;             /* [32][DEEP]                                                 */
    const float *low;           /* a row: what is added to scaled scores                      */
} softmax_state;

typedef struct curve {
    vf      natural, scale;     /* beside a bias scores are scaled to its units first         */
    vf      low;                /* what is added where the reference is 0                     */
    vf      least, most;        /* of sums that fit                                           */
    __m512i less, high, six, halves;
    __m512i met;                /* where scores are watched: all bits that were set in powers */
} curve;

/* What a mantissa f is too large by, by its first six digits: 128 (1 + f - 2^f). */
static const uint8_t LESS[64] __attribute__((aligned(64))) = {
    0, 1, 1, 2, 2, 3, 4, 4, 5, 5, 5, 6, 6, 7, 7, 8, 8, 8, 9, 9, 9, 9, 10, 10, 10, 10, 10, 11, 11, 11, 11, 11,
    11, 11, 11, 11, 11, 11, 11, 11, 11, 10, 10, 10, 10, 10, 9, 9, 9, 8, 8, 8, 7, 7, 6, 6, 5, 5, 4, 3, 3, 2, 1, 1,
};

/* What must be known of scores before they are powers of two: they stay within the bound; or, with any reference,
 * they are numbers and not far off; or nothing, and they are clamped. */
enum { BOUNDED, WATCHED, CLAMPED };

/* What is known when this is compiled: whether there is a bias (then scores are clamped), which of these scores are,
 * and whether sums of probabilities are made by products of their own, not among those of values. */
typedef struct how { int biased, kind, summed; } how;

static inline curve curve_of(float c, how h)
{
    return (curve){ v_set(c / log2e), v_set(h.biased ? log2e * ONE : c * ONE), v_set(BASE + BIAS), v_set(BASE),
                    v_set(BASE + MOST), _mm512_load_si512(LESS), _mm512_set1_epi16((short)0x8000),
                    _mm512_set1_epi64(0x0031002100110001), _mm512_set1_epi64(0x2820000008000000),
                    _mm512_setzero_si512() };
}

/* Powers of two of 16 scores, in fixed point, in the low halves. */
ALWAYS_INLINE __m512i fixed(const float *s, const float *bias, vf low, const curve *k, how h)
{
    vf x = v_load(s);
    if (h.biased)
        x = v_fma(x, k->natural, v_load(bias));
    x = v_fma(x, k->scale, low);
    if (h.kind == CLAMPED)
        x = v_max(v_min(x, k->most), k->least);
    return _mm512_castps_si512(x);
}

/* The scores of row r become probabilities. What is added to them beside the exponent's bias makes all that is
 * too large 65535 and all that is too small less than 2^15, for the last instruction, which saturates. */
ALWAYS_INLINE void softmax_row(const softmax_state *a, int64_t r, curve *k, how h)
{
    const float *s = a->s + r * TURN, *bias = h.biased ? a->bias + r * a->bias_step : NULL;
    const vf     low = h.kind == BOUNDED ? k->low : v_set(a->low[r]);
    const __m512i even = fixed(s, bias, low, k, h), odd = fixed(s + LANES, bias + LANES, low, k, h);
    const __m512i x = _mm512_mask_multishift_epi64_epi8(even, 0xcccccccccccccccc, k->halves, odd);
    const __m512i digits = _mm512_multishift_epi64_epi8(k->six, x);
    const __m512i less = _mm512_mask_permutexvar_epi8(k->high, 0x5555555555555555, digits, k->less);
    v_put_units(a->p + r * DEEP, _mm512_subs_epu16(x, less));
    if (h.kind == WATCHED)
        k->met = _mm512_ternarylogic_epi32(k->met, even, odd, 0xfe);
}

/* Whether all powers were in the low half: of scores that are not far off no other has its bits in the high one. */
ALWAYS_INLINE int all_held(const curve *k)
{
    const __m512i base = _mm512_castps_si512(v_set(BASE)), high = _mm512_set1_epi32((int)0xffff0000);
    return _mm512_test_epi32_mask(_mm512_andnot_si512(base, k->met), high) == 0;
}

/* Rows [row, row + n) of `soft`, as far as there are such, become probabilities. */
ALWAYS_INLINE int64_t softmax_some(const softmax_state *soft, int64_t row, int64_t n, curve *k, how h)
{
    const int64_t end = smaller(row + n, STRIP);
_Pragma("GCC unroll 8")
    for (; row < end; row++)
        softmax_row(soft, row, k, h);
    return row;
}

/* ---- lengths ------------------------------------------------------------------------------- */

/* Sums of squares by lanes, of n vectors. */
ALWAYS_INLINE vf squares(const unit *x, int64_t n)
{
    vf sum = v_zero();
    for (const unit *end = x + n * LANES; x < end; x += LANES) {
        const __m512bh y = (__m512bh)_mm512_loadu_si512(x);
        sum = _mm512_dpbf16_ps(sum, y, y);
    }
    return sum;
}

/* The larger of what is not negative, or no number, which is larger than all. */
ALWAYS_INLINE vf larger(vf x, vf y)
{
    return _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(x), _mm512_castps_si512(y)));
}

#endif
