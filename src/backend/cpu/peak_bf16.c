/* peak_bf16.c - the peak of dot products of brains (vdpbf16ps), in registers alone */
#include "backend/cpu/cpu.h"

#include <immintrin.h>

#include "base/clock.h"

/* `n` rounds of 20 independent dot products; the result keeps them alive. */
static float dot_rounds(int64_t n, float x)
{
    enum { CHAINS = 20 };
    __m512   s[CHAINS];
    __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(x), _mm512_set1_ps(x)), b = a;
    for (int j = 0; j < CHAINS; j++)
        s[j] = _mm512_set1_ps((float)j);
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < CHAINS; j++)
            s[j] = _mm512_dpbf16_ps(s[j], a, b);
    for (int j = 1; j < CHAINS; j++)
        s[0] = _mm512_add_ps(s[0], s[j]);
    return _mm512_reduce_add_ps(s[0]);
}

double xd_peak_bf16(double seconds)
{
    enum { ROUNDS = 20000 };
    volatile float keep = 1e-3f;
    double         best = 0, end = xd_now_s() + seconds, t = 0;
    while (t < end) {
        double t0 = xd_now_s();
        float  r = dot_rounds(ROUNDS, keep);
        t = xd_now_s();
        double flops = 2.0 * 20 * ROUNDS * 32;
        if (t > t0 && flops / (t - t0) > best)
            best = flops / (t - t0);
        keep = r < 1e30f ? 1e-3f : 1e-4f;
    }
    return best * 1e-9;
}
