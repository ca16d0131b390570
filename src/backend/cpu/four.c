/* four.c - quantizes floats to blocks of XD_Q4_0 (four.h); compiled once per instruction set
 *
 * Each sum is computed as 16 partial sums, which are then added pairwise, so that all instruction
 * sets round identically. */
#include "backend/cpu/cpu.h"

#include <math.h>
#include <string.h>

#include "backend/four.h"

enum { LANES = 16, TRIES = 4, BLOCK = 18 };
/* Each candidate scale maps the block's element of largest magnitude to a number from -9 to -7.
 * STEP is the distance between the numbers of two neighbouring candidates. */
static const float STEP = 0.25f;

#define JOIN(a, b) a##b
#define NAME(a, b) JOIN(a, b)

typedef struct fit { float xq, qq; } fit; /* sums over a block: of x q, and of q q */

static float sum_lanes(float s[LANES])
{
    for (int w = LANES / 2; w; w /= 2)
        for (int l = 0; l < w; l++)
            s[l] += s[l + w];
    return s[0];
}

/* Rounds v to the nearest integer, ties to even. The magnitude of v must be below 2^22. */
static inline float nearest(float v)
{
    const float big = 12582912.0f;
    return (v + big) - big;
}

static inline float integer_of(float x, float inverse)
{
    const float v = x * inverse;
    return nearest(v < -8.0f ? -8.0f : v > 7.0f ? 7.0f : v);
}

static fit fit_of(const float *x, float inverse)
{
    float xq[LANES], qq[LANES];
#pragma omp simd
    for (int l = 0; l < LANES; l++) {
        const float p = integer_of(x[l], inverse), q = integer_of(x[LANES + l], inverse);
        xq[l] = x[l] * p + x[LANES + l] * q;
        qq[l] = p * p + q * q;
    }
    return (fit){ sum_lanes(xq), sum_lanes(qq) };
}

/* Returns the element of largest magnitude with its sign, or NaN if an element is not finite. */
static float widest(const float *x)
{
    float low[LANES], high[LANES], bad[LANES];
#pragma omp simd
    for (int l = 0; l < LANES; l++) {
        const float a = x[l], b = x[LANES + l];
        low[l] = a < b ? a : b;
        high[l] = a < b ? b : a;
        bad[l] = (a - a) + (b - b);
    }
    for (int l = 1; l < LANES; l++) {
        low[0] = low[l] < low[0] ? low[l] : low[0];
        high[0] = high[l] > high[0] ? high[l] : high[0];
    }
    return sum_lanes(bad) != 0.0f ? NAN : -low[0] > high[0] ? low[0] : high[0];
}

/* Returns the candidate scale d with the smallest quantization error. For given integers q, the
 * minimum over d of the squared error of x ~ d q is sum(x x) - sum(x q)^2 / sum(q q). */
static float best_scale(const float *x, float wide)
{
    float best = 0, scale = 0;
    for (int i = -TRIES; i <= TRIES; i++) {
        const fit   f = fit_of(x, -(8.0f + STEP * (float)i) / wide);
        const float gain = f.qq > 0.0f ? f.xq * f.xq / f.qq : 0.0f;
        if (gain > best)
            best = gain, scale = f.xq / f.qq;
    }
    return best > 0.0f ? scale : wide / -8.0f;
}

static void put_block(unsigned char *to, const float *x, uint16_t half, float inverse)
{
    unsigned char q[2 * LANES];
    for (int i = 0; i < 2 * LANES; i++)
        q[i] = (unsigned char)((int)integer_of(x[i], inverse) + 8);
    memcpy(to, &half, sizeof half);
    for (int i = 0; i < LANES; i++)
        to[2 + i] = (unsigned char)(q[i] | q[LANES + i] << 4);
}

void NAME(xd_four_, ISA)(void *to, const float *x, int64_t n)
{
    static const float zeros[2 * LANES];
    unsigned char     *b = to;
    for (int64_t i = 0; i < n; i += 2 * LANES, b += BLOCK) {
        const float    wide = widest(x + i);
        const int      bad = isnan(wide);
        const uint16_t half = bad ? 0x7e00 : xd_f32_f16(wide != 0.0f ? best_scale(x + i, wide) : 0);
        const float    d = xd_f16_f32(half);
        put_block(b, bad ? zeros : x + i, half, d != 0.0f && !bad ? 1.0f / d : 0.0f);
    }
}
