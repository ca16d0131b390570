/* integers.h - quantizes rows of weights and inputs to int8 */
#ifndef XD_BACKEND_CPU_GEMM_INTEGERS_H
#define XD_BACKEND_CPU_GEMM_INTEGERS_H

#include "backend/cpu/gemm/scale.h"

/* Returns x rounded to nearest even and clamped to +-127, one byte per lane. */
static inline __m128i to_int8(__m512 x)
{
    x = _mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(-127.0f)), _mm512_set1_ps(127.0f));
    return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x));
}

/* Addresses of 16 int8 rows of a weight's source, beginning with row o0. Rows after the last row of
 * the source, and rows whose scale is 0, are not read. */
typedef struct stored_rows {
    const char *at[16];
    __mmask64   mask[16];
    int64_t     n;
} stored_rows;

static inline stored_rows stored_rows_of(const source *s, int64_t o0, const float *scale)
{
    stored_rows r = { .n = s->w->in };
    for (int64_t i = 0; i < 16; i++) {
        const int is = o0 + i < s->w->out && scale[i] > 0;
        r.at[i] = source_row(s, is ? o0 + i : s->row0);
        r.mask[i] = is ? ~0ull : 0;
    }
    return r;
}

/* Returns 64 int8 elements of row o of the weight matrix in `s`, from column i on. */
static inline __m512i one_stored(const source *s, int64_t o, int64_t i, float scale)
{
    const int64_t   n = scale > 0 ? s->w->in - i : 0;
    const __mmask64 m = n >= 64 ? ~0ull : n <= 0 ? 0 : (1ull << n) - 1;
    return _mm512_max_epi8(_mm512_maskz_loadu_epi8(m, source_row(s, o) + i),
                           _mm512_set1_epi8(-127));
}

/* Reads 64 int8 elements of each of 16 rows, from input i on, with zeros after the ends of rows.
 * stored_integers replaces the value -128 by -127. The hardware prefetcher does not follow sixteen
 * rows at a time, so stored_integers prefetches the rows. */
static inline void stored_integers(__m512i to[16], const stored_rows *r, int64_t i)
{
    enum { AHEAD = 1024 };
    const int64_t   n = r->n - i;
    const __mmask64 m = n >= 64 ? ~0ull : n <= 0 ? 0 : (1ull << n) - 1;
#pragma GCC unroll 16
    for (int64_t k = 0; k < 16; k++) {
        _mm_prefetch(r->at[k] + i + AHEAD, _MM_HINT_T0);
        to[k] = _mm512_max_epi8(_mm512_maskz_loadu_epi8(m & r->mask[k], r->at[k] + i),
                                _mm512_set1_epi8(-127));
    }
}

/* Returns 64 quantized elements of weight row o from input i on, with zeros after the end. */
static inline __m512i source_integers(const source *s, int64_t o, int64_t i, float scale)
{
    const int64_t size = (int64_t)xd_dtype_size(s->src.type);
    const char   *row = source_row(s, o);
    __m128i       q[4];
    for (int64_t k = 0; k < 4; k++) {
        int64_t from = i + 16 * k;
        q[k] = _mm_setzero_si128();
        if (from < s->w->in && scale > 0)
            q[k] = to_int8(_mm512_div_ps(source_at(row + from * size, s->src.type, s->w->in - from),
                                         _mm512_set1_ps(scale)));
    }
    return _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm256_inserti128_si256(_mm256_castsi128_si256(q[0]), q[1], 1)),
        _mm256_inserti128_si256(_mm256_castsi128_si256(q[2]), q[3], 1), 1);
}

/* Returns 32 bf16 values of a row of n elements, from element i on, two per 32-bit lane, with zeros
 * after the end. */
static inline __m512i bf16_pairs(const char *x, int64_t i, int64_t n)
{
    const __mmask32 m = n - i >= 32 ? ~0u : n <= i ? 0 : (1u << (n - i)) - 1;
    return _mm512_maskz_loadu_epi16(m, x + i * 2);
}

/* Returns the odd elements of bf16 pairs as floats. (Callers compute the even elements by a left
 * shift by 16.) */
static inline __m512i odd_bf16(__m512i x)
{
    return _mm512_and_si512(x, _mm512_set1_epi32((int)0xffff0000u));
}

/* Returns the element-wise maximum of m and the magnitudes of 64 elements, from element i on, of a
 * row of n elements. Magnitudes are compared as integers by their bits: those of bf16 in 16-bit
 * lanes, those of floats in 32-bit lanes. */
static inline __m512i max_bits_bf16(__m512i m, const char *x, int64_t i, int64_t n)
{
    const __m512i size = _mm512_set1_epi16(0x7fff);
    m = _mm512_max_epu16(m, _mm512_and_si512(size, bf16_pairs(x, i, n)));
    return _mm512_max_epu16(m, _mm512_and_si512(size, bf16_pairs(x, i + 32, n)));
}

static inline __m512i max_bits_floats(__m512i m, const char *x, int64_t i, int64_t n)
{
    const __m512i size = _mm512_set1_epi32(0x7fffffff);
    for (int64_t k = i; k < i + 64; k += 16)
        m = _mm512_max_epu32(
            m, _mm512_and_si512(size, _mm512_maskz_loadu_epi32(lane_mask(n - k), x + k * 4)));
    return m;
}

/* Returns x times `by`, rounded to nearest even, as int32. */
static inline __m512i scale_and_round(__m512i x, __m512 by)
{
    return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_castsi512_ps(x), by));
}

/* Returns 64 elements of a row of n elements, from element i on, times `by`, as int8, with zeros
 * after the end. The multiplication by `by` never gives a result above 127. The pack instructions
 * that convert to int8 work within 128-bit lanes, so a permutation at the end restores the order of
 * the elements. */
static inline __m512i bf16_integers(const char *x, int64_t i, int64_t n, __m512 by)
{
    const __m512i p = bf16_pairs(x, i, n), q = bf16_pairs(x, i + 32, n);
    const __m512i odd =
        _mm512_packs_epi32(scale_and_round(odd_bf16(p), by), scale_and_round(odd_bf16(q), by));
    const __m512i even = _mm512_packs_epi32(scale_and_round(_mm512_slli_epi32(p, 16), by),
                                            scale_and_round(_mm512_slli_epi32(q, 16), by));
    return _mm512_permutexvar_epi64(
        _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7),
        _mm512_or_si512(_mm512_slli_epi16(odd, 8),
                        _mm512_and_si512(even, _mm512_set1_epi16(0xff))));
}

static inline __m512i float_integers(const char *x, int64_t i, int64_t n, __m512 by)
{
    __m512i v[4];
    for (int64_t k = 0; k < 4; k++, i += 16)
        v[k] = scale_and_round(_mm512_maskz_loadu_epi32(lane_mask(n - i), x + i * 4), by);
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
        _mm512_packs_epi16(_mm512_packs_epi32(v[0], v[1]), _mm512_packs_epi32(v[2], v[3])));
}

/* Rows of a GEMM's input, quantized to int8, and their scales. The layout of the quantized rows is
 * [rows / side][step][side][64], where a step is 64 consecutive elements. Each byte of the
 * quantized rows is combined with `flip` by xor: `flip` is 0x80 for unsigned bytes with an offset
 * of 128, and 0 for signed bytes. If a row contains non-finite elements, its scale is NaN. */
typedef struct integer_rows {
    char   *q;
    float  *scale;
    int64_t steps, side;
    char    flip;
} integer_rows;

/* Quantizes rows [begin, end) of the input of a GEMM, with zeros after the ends of rows. One loop
 * computes the maximum of a row and quantizes the row before it, so that the latencies of loads and
 * stores overlap. The hardware prefetcher stops at the end of a page, so integers_of prefetches
 * each row two rows in advance. */
FINISH_INLINE void integers_of(const integer_rows *to, const xd_gemm *a, int64_t begin, int64_t end,
                               int bf16)
{
    enum { AHEAD = 2 };
    const xd_tensor *in = &a->in;
    const int64_t    n = a->w->in, size = bf16 ? 2 : 4, ahead = AHEAD * in->s[0] * size;
    const __m512i    change = _mm512_set1_epi8(to->flip);
    const char      *before = NULL;
    __m512           by = _mm512_setzero_ps();
    for (int64_t r = begin; r <= end; r++) {
        const char   *x = r < end ? place_of(in, r, 0) : NULL;
        const char   *later = x && r + AHEAD < in->d[0] ? x + ahead : NULL;
        const int64_t at = before ? r - 1 : r;
        char         *q = to->q + (at / to->side * to->side * to->steps + at % to->side) * 64;
        __m512i       most = _mm512_setzero_si512();
        for (int64_t i = 0; i < n; i += 64, q += to->side * 64) {
            for (int64_t b = 0; later && b < 64 * size; b += 64)
                _mm_prefetch(later + i * size + b, _MM_HINT_T0);
            if (x)
                most = bf16 ? max_bits_bf16(most, x, i, n) : max_bits_floats(most, x, i, n);
            if (before)
                _mm512_storeu_si512(
                    q, _mm512_xor_si512(change, bf16 ? bf16_integers(before, i, n, by)
                                                     : float_integers(before, i, n, by)));
        }
        if (bf16)
            most = _mm512_max_epu32(_mm512_slli_epi32(most, 16), odd_bf16(most));
        const float m = max_magnitude(most), s = xd_quant_scale(XD_I8, m);
        by = _mm512_set1_ps(s > 0 ? 127.0f / m : 0.0f);
        before = x;
        if (x)
            to->scale[r] = s;
    }
}

static inline void input_integers(const integer_rows *to, const xd_gemm *a, int64_t begin,
                                  int64_t end)
{
    if (a->in.type == XD_BF16)
        integers_of(to, a, begin, end, 1);
    else
        integers_of(to, a, begin, end, 0);
}

#endif
