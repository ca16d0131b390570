/* quantdot.c - quantizes rows and computes their dot products; compiled once per instruction set
 *
 * The compiler vectorizes all loops, except that dot products of integers use AVX2 intrinsics where
 * the processor has AVX2. Only dot products of floats depend on the order of additions, and this
 * order depends only on the length of the row. */
#include "backend/cpu/cpu.h"

#include "backend/cpu/element.h"

/* When this constant is added to a float, the last bit of the sum has the weight 1, so that the sum
 * is rounded to an integer. */
static const float ROUNDER = 12582912.0f;

/* Returns the largest magnitude of a row. Magnitudes are compared as integers, because the bit
 * patterns of floats are in the order of their magnitudes. The bits of non-finite values are larger
 * than those of all finite values. */
float GLUE(xd_max_magnitude_, ISA)(const void *x, xd_dtype t, int64_t n)
{
    uint32_t m = 0;
    if (t == XD_F32) {
        const uint32_t *p = x;
#pragma omp simd reduction(max : m)
        for (int64_t i = 0; i < n; i++) {
            uint32_t u = p[i] & 0x7fffffffu;
            m = u > m ? u : m;
        }
    } else {
        const uint16_t *p = x;
        uint16_t        h = 0;
#pragma omp simd reduction(max : h)
        for (int64_t i = 0; i < n; i++) {
            uint16_t u = p[i] & 0x7fffu;
            h = u > h ? u : h;
        }
        m = (uint32_t)h << 16;
    }
    return bits_float(m >= 0x7f800000u ? 0x7fc00000u : m);
}

static inline int8_t round_to_int8(float v)
{
    v = v < 127.0f ? v : 127.0f;
    v = v > -127.0f ? v : -127.0f;
    return (int8_t)(int32_t)(float_bits(v + ROUNDER) - float_bits(ROUNDER));
}

void GLUE(xd_integers_, ISA)(int8_t *q, const void *x, xd_dtype t, float by, int64_t n)
{
    if (t == XD_F32) {
        const float *p = x;
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            q[i] = round_to_int8(p[i] * by);
    } else {
        const uint16_t *p = x;
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            q[i] = round_to_int8(bits_float((uint32_t)p[i] << 16) * by);
    }
}

#if defined(__AVX2__)
#include <immintrin.h>

static inline __m256i load_16(const int8_t *p)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* Computes four dot products of integers at a time. Pairs of 16-bit products are added as 32-bit
 * integers, so that no sum saturates. */
static inline void dot4(int32_t *sum, const int8_t *x, const int8_t *const w[4], int64_t n)
{
    __m256i s[4] = { _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                     _mm256_setzero_si256() };
    for (int64_t i = 0; i < n; i += 16) {
        __m256i v = load_16(x + i);
        for (int k = 0; k < 4; k++)
            s[k] = _mm256_add_epi32(s[k], _mm256_madd_epi16(v, load_16(w[k] + i)));
    }
    __m256i a = _mm256_hadd_epi32(s[0], s[1]), b = _mm256_hadd_epi32(s[2], s[3]);
    a = _mm256_hadd_epi32(a, b);
    _mm_storeu_si128((__m128i *)(void *)sum,
                     _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1)));
}
#else
static inline void dot4(int32_t *sum, const int8_t *x, const int8_t *const w[4], int64_t n)
{
    int32_t       s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    const int8_t *a = w[0], *b = w[1], *c = w[2], *d = w[3];
#pragma omp simd reduction(+ : s0, s1, s2, s3)
    for (int64_t i = 0; i < n; i++) {
        s0 += x[i] * a[i];
        s1 += x[i] * b[i];
        s2 += x[i] * c[i];
        s3 += x[i] * d[i];
    }
    sum[0] = s0;
    sum[1] = s1;
    sum[2] = s2;
    sum[3] = s3;
}
#endif

void GLUE(xd_int_dot_, ISA)(int32_t *sum, const int8_t *x, const int8_t *w, int64_t ldw, int64_t m,
                            int64_t n)
{
    for (int64_t j = 0; j < m; j += 4) {
        const int8_t *row[4];
        int32_t       s[4];
        for (int64_t i = 0; i < 4; i++)
            row[i] = w + (j + i < m ? j + i : j) * ldw;
        dot4(s, x, row, n);
        for (int64_t i = 0; i < 4 && j + i < m; i++)
            sum[j + i] = s[i];
    }
}

/* Computes dot products of a float row with m integer rows, four at a time, so that each vector of
 * floats is read once for four rows. */
void GLUE(xd_float_dot_, ISA)(float *sum, const float *x, const int8_t *w, int64_t ldw, int64_t m,
                              int64_t n)
{
    for (int64_t j = 0; j < m; j += 4) {
        const int8_t *a = w + j * ldw, *b = j + 1 < m ? a + ldw : a, *c = j + 2 < m ? b + ldw : a,
                     *d = j + 3 < m ? c + ldw : a;
        float s[4] = { 0 }, s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
        for (int64_t i = 0; i < n; i++) {
            s0 += x[i] * (float)a[i];
            s1 += x[i] * (float)b[i];
            s2 += x[i] * (float)c[i];
            s3 += x[i] * (float)d[i];
        }
        s[0] = s0, s[1] = s1, s[2] = s2, s[3] = s3;
        for (int64_t i = 0; i < 4 && j + i < m; i++)
            sum[j + i] = s[i];
    }
}
