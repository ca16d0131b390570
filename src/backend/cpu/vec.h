/* vec.h - defines vectors of floats and their operations, for files that are compiled once per
 * instruction set.
 *
 * If the instruction set has no vectors, V_LOAD is not defined. Every function ends with a scalar
 * loop for the last elements; if V_LOAD is not defined, this loop processes all elements. */
#ifndef XD_BACKEND_CPU_VEC_H
#define XD_BACKEND_CPU_VEC_H

#include <stdint.h>

/* V_SWAP exchanges each even lane with the next lane. V_TWICE loads LANES / 2 floats and copies
 * each float to two neighbouring lanes. */
#if defined(__AVX512F__)
#include <immintrin.h>
typedef __m512 vec;
enum { LANES = 16 };
#define V_LOAD(p) _mm512_loadu_ps(p)
#define V_STORE(p, v) _mm512_storeu_ps(p, v)
#define V_SET(x) _mm512_set1_ps(x)
#define V_ADD(a, b) _mm512_add_ps(a, b)
#define V_SUB(a, b) _mm512_sub_ps(a, b)
#define V_MUL(a, b) _mm512_mul_ps(a, b)
#define V_FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define V_SWAP(a) _mm512_permute_ps(a, 0xB1)
#define V_SUM(a) _mm512_reduce_add_ps(a)
#define V_TWICE(p) twice16(p)
static inline __m512 twice16(const float *p)
{
    const __m512i order = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(order, _mm512_castps256_ps512(_mm256_loadu_ps(p)));
}
#elif defined(__AVX2__)
#include <immintrin.h>
typedef __m256 vec;
enum { LANES = 8 };
#define V_LOAD(p) _mm256_loadu_ps(p)
#define V_STORE(p, v) _mm256_storeu_ps(p, v)
#define V_SET(x) _mm256_set1_ps(x)
#define V_ADD(a, b) _mm256_add_ps(a, b)
#define V_SUB(a, b) _mm256_sub_ps(a, b)
#define V_MUL(a, b) _mm256_mul_ps(a, b)
#define V_FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define V_SWAP(a) _mm256_permute_ps(a, 0xB1)
#define V_SUM(a) sum8(a)
#define V_TWICE(p) twice8(p)
static inline __m256 twice8(const float *p)
{
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)),
                                    _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
}
static inline float sum8(__m256 a)
{
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
}
#endif

/* Prefetches `bytes` bytes at p from memory, while the kernel works on data in the L1 cache. */
static inline void prefetch_bytes(const char *p, int64_t bytes)
{
#if defined(__GNUC__)
    for (int64_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(p + i);
#else
    (void)p;
    (void)bytes;
#endif
}

/* Returns the sum of n floats, added in four accumulators to hide the latency of additions. */
static inline float sum_of(const float *x, int64_t n)
{
    float   s = 0;
    int64_t j = 0;
#if defined(V_LOAD)
    vec v[4] = { V_SET(0.0f), V_SET(0.0f), V_SET(0.0f), V_SET(0.0f) };
    for (; j + 4 * LANES <= n; j += 4 * LANES)
        for (int k = 0; k < 4; k++)
            v[k] = V_ADD(v[k], V_LOAD(x + j + k * LANES));
    for (; j + LANES <= n; j += LANES)
        v[0] = V_ADD(v[0], V_LOAD(x + j));
    s = V_SUM(V_ADD(V_ADD(v[0], v[1]), V_ADD(v[2], v[3])));
#else
#pragma omp simd reduction(+ : s)
#endif
    for (int64_t i = j; i < n; i++)
        s += x[i];
    return s;
}

/* Returns the sum of (x - mean)^2 over n floats. */
static inline float square_sum_of(const float *x, int64_t n, float mean)
{
    float   s = 0;
    int64_t j = 0;
#if defined(V_LOAD)
    vec v[4] = { V_SET(0.0f), V_SET(0.0f), V_SET(0.0f), V_SET(0.0f) }, m = V_SET(mean), t;
    for (; j + 4 * LANES <= n; j += 4 * LANES)
        for (int k = 0; k < 4; k++) {
            t = V_SUB(V_LOAD(x + j + k * LANES), m);
            v[k] = V_FMA(t, t, v[k]);
        }
    for (; j + LANES <= n; j += LANES) {
        t = V_SUB(V_LOAD(x + j), m);
        v[0] = V_FMA(t, t, v[0]);
    }
    s = V_SUM(V_ADD(V_ADD(v[0], v[1]), V_ADD(v[2], v[3])));
#else
#pragma omp simd reduction(+ : s)
#endif
    for (int64_t i = j; i < n; i++)
        s += (x[i] - mean) * (x[i] - mean);
    return s;
}

#endif
