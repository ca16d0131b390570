/* gelu.h - computes tanh-GELU by a piecewise cubic in AVX-512, for results that are rounded to
 * bf16.
 *
 *   gelu(x) = max(x, 0) - b(|x|)
 *   b(u) = u / (1 + e^(2 k(u))),  k(u) = sqrt(2 / pi) (u + 0.044715 u^3)
 *
 * b is 0 at 0, nearly 0 beyond 5.5, and nowhere above 0.17. b is approximated by a cubic in u on
 * each of 32 intervals around multiples of 5.5 / 31. The cubics are fitted for the lowest relative
 * error of gelu; the cubic of the last interval is 0. The relative error of gelu is 7e-6 for x >
 * -1, 3e-5 down to -3, 4e-4 down to -4 and 2e-3 down to -5; the absolute error is at most 8e-7. */
#ifndef XD_BACKEND_CPU_GELU_H
#define XD_BACKEND_CPU_GELU_H

#include "backend/cpu/vec512.h"

/* Coefficients of u^0, u^1, u^2 and u^3 of the cubics for b(u), with one column for each of the 32
 * intervals. */
static const float gelu_bump[4][32] __attribute__((aligned(64))) = {
    { 0.0f,
      -4.19817916e-05f,
      -0.000793627289f,
      -0.00318596f,
      -0.00627990207f,
      -0.00553756999f,
      0.00695592351f,
      0.039960105f,
      0.0992922634f,
      0.184621111f,
      0.28835094f,
      0.39702639f,
      0.494588673f,
      0.566245615f,
      0.601763785f,
      0.597388446f,
      0.556137383f,
      0.486546844f,
      0.400372028f,
      0.309879899f,
      0.225444466f,
      0.154009148f,
      0.0986593068f,
      0.0591778792f,
      0.0331821106f,
      0.0173632093f,
      0.00846388377f,
      0.0038364965f,
      0.00161405967f,
      0.000629074755f,
      0.000226697346f,
      0.0f },
    { 0.50000149f,      0.501134932f,     0.509491622f,     0.525754273f,
      0.541006267f,     0.538698554f,     0.50084883f,      0.415516496f,
      0.282144219f,     0.112611823f,     -0.0719923526f,   -0.247134f,
      -0.390823126f,    -0.488044381f,    -0.532823622f,    -0.527981281f,
      -0.483187199f,    -0.412018329f,    -0.328843981f,    -0.246178538f,
      -0.172974497f,    -0.114046156f,    -0.0705010295f,   -0.0408149287f,
      -0.0220974181f,   -0.0111707943f,   -0.00526403822f,  -0.00230824947f,
      -0.000940118916f, -0.000354979624f, -0.000124024882f, 0.0f },
    { -0.399242222f,   -0.409895927f,   -0.441487998f,   -0.478592634f,
      -0.503732979f,   -0.501442134f,   -0.463175654f,   -0.389563799f,
      -0.289555311f,   -0.177214533f,   -0.0676530376f,  0.0264685638f,
      0.097031936f,    0.14101176f,     0.159833521f,    0.158051848f,
      0.141835496f,    0.117570862f,    0.0908077806f,   0.065632835f,
      0.0444749817f,   0.0282696821f,   0.0168493092f,   0.00940837432f,
      0.00491570588f,  0.00239974563f,  0.00109283312f,  0.00046345088f,
      0.000182696211f, 6.68215216e-05f, 2.26321135e-05f, 0.0f },
    { 0.00893236976f,   0.0449162386f,    0.0855337903f,    0.113943309f,
      0.12779732f,      0.127089977f,     0.11417871f,      0.092991367f,
      0.0679760724f,    0.0431475788f,    0.0214629117f,    0.00459619751f,
      -0.00695820292f,  -0.0135915726f,   -0.0162291154f,   -0.0160112437f,
      -0.0140540563f,   -0.0112960096f,   -0.00842509419f,  -0.00586918881f,
      -0.00383057771f,  -0.00234494521f,  -0.00134646718f,  -0.000724717334f,
      -0.000365240092f, -0.000172119049f, -7.57251328e-05f, -3.10507239e-05f,
      -1.18451289e-05f, -4.19590424e-06f, -1.37747384e-06f, 0.0f },
};

static inline __m512 gelu_part(int power, __m512i interval)
{
    const float *t = gelu_bump[power];
    return _mm512_permutex2var_ps(_mm512_load_ps(t), interval, _mm512_load_ps(t + 16));
}

static inline __m512 brief_gelu(__m512 x)
{
    /* Mode of the instruction vrangeps that returns the smaller of the magnitudes of its two
     * operands. If one operand of vrangeps is NaN, the result is the magnitude of the other
     * operand. */
    enum { LEAST_OF_SIZES = 10 };
    const __m512  u = _mm512_range_ps(x, _mm512_set1_ps(5.5f), LEAST_OF_SIZES);
    const __m512i k = _mm512_castps_si512(
        _mm512_fmadd_ps(u, _mm512_set1_ps(31 / 5.5f), _mm512_set1_ps(12582912.0f)));
    __m512 b = _mm512_fmadd_ps(gelu_part(3, k), u, gelu_part(2, k));
    b = _mm512_fmadd_ps(b, u, gelu_part(1, k));
    b = _mm512_fmadd_ps(b, u, gelu_part(0, k));
    return _mm512_sub_ps(_mm512_max_ps(_mm512_setzero_ps(), x), b);
}

static inline void brief_gelus(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16)
        _mm512_mask_storeu_ps(y + i, lane_mask(n - i),
                              brief_gelu(_mm512_maskz_loadu_ps(lane_mask(n - i), x + i)));
}

#endif
