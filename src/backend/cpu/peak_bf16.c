/* peak_bf16.c - measures the peak FLOP rate of bf16 dot products (vdpbf16ps) whose operands stay in
 * registers */
#include "backend/cpu/cpu.h"

#include <immintrin.h>

#include "base/clock.h"

/* Runs `n` rounds of 20 independent dot products. The result is returned so that the compiler does
 * not remove the loop that computes it. */
static float dot_rounds(int64_t n, float x)
{
    enum { CHAINS = 20 };
    __m512   s[CHAINS];
    __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(x), _mm512_set1_ps(x)), b = a;
    /* Without this pragma, gcc keeps the accumulators in memory, and the measured rate is 15 %
     * lower on Zen 4. */
#pragma GCC unroll 20
    for (int j = 0; j < CHAINS; j++)
        s[j] = _mm512_set1_ps((float)j);
    for (int64_t i = 0; i < n; i++) {
#pragma GCC unroll 20
        for (int j = 0; j < CHAINS; j++)
            s[j] = _mm512_dpbf16_ps(s[j], a, b);
    }
#pragma GCC unroll 20
    for (int j = 1; j < CHAINS; j++)
        s[0] = _mm512_add_ps(s[0], s[j]);
    return _mm512_reduce_add_ps(s[0]);
}

double xd_burst_bf16(void)
{
    enum { ROUNDS = 40000 };
    static volatile float keep = 1e-3f;
    double                t = xd_now_s();
    keep = dot_rounds(ROUNDS, keep) < 1e30f ? 1e-3f : 1e-4f;
    t = xd_now_s() - t;
    return 2e-9 * 20 * ROUNDS * 32 / (t > 1e-9 ? t : 1e-9);
}
