/* quantize.c - computes the scale of a row of a quantized weight, and rotates groups of elements
 * (ConvRot) */
#include "backend/backend.h"

#include <float.h>
#include <math.h>

int xd_is_quantized(xd_dtype t)
{
    return t == XD_I8 || t == XD_F8E4M3;
}

float xd_quant_scale(xd_dtype t, float most)
{
    float s = most / (t == XD_I8 ? 127.0f : 448.0f);
    return s < FLT_MIN ? 0.0f : isfinite(most) ? s : NAN;
}

int xd_rotates(int64_t n)
{
    for (; n > 1 && n % 4 == 0; n /= 4)
        if (n > XD_ROTATE_MAX)
            return 0;
    return n == 1;
}

void xd_rotation(float *x, int64_t n)
{
    for (int64_t step = 1; step < n; step *= 4)
        for (int64_t i = 0; i < n; i++) {
            if (i / step % 4)
                continue;
            float *p = x + i, a = p[0], b = p[step], c = p[2 * step], d = p[3 * step];
            float  half = 0.5f * ((a + b) + (c + d));
            p[0] = half - d, p[step] = half - c, p[2 * step] = half - b, p[3 * step] = half - a;
        }
}
