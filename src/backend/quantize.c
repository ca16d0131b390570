/* quantize.c - which types are quantized, and the scale of a row */
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
