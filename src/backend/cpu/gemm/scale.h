/* scale.h - computes the scale of a row of a quantized weight */
#ifndef XD_BACKEND_CPU_GEMM_SCALE_H
#define XD_BACKEND_CPU_GEMM_SCALE_H

#include <math.h>

#include "backend/cpu/gemm/source.h"

/* Returns the maximum of the magnitudes in `most`, or NaN if one of them is not finite. Magnitudes
 * are compared as integers, because the bits of positive floats are ordered like the values. */
static inline float max_magnitude(__m512i most)
{
    uint32_t u = _mm512_reduce_max_epu32(most);
    float    f;
    memcpy(&f, &u, sizeof f);
    return u < 0x7f800000u ? f : NAN;
}

static inline float source_scale(const source *s, int64_t o)
{
    const int64_t size = (int64_t)xd_dtype_size(s->src.type);
    const __m512i sign = _mm512_set1_epi32((int)0x80000000u);
    const char   *row = source_row(s, o);
    __m512i       most = _mm512_setzero_si512();
    if (s->w->scale)
        return s->w->scale[o];
    if (s->w->type == XD_F8E4M3 && s->src.type == XD_F8E4M3)
        return 1.0f;
    for (int64_t i = 0; i < s->w->in; i += 16)
        most = _mm512_max_epu32(
            most, _mm512_andnot_si512(sign, _mm512_castps_si512(source_at(
                                                row + i * size, s->src.type, s->w->in - i))));
    return xd_quant_scale(s->w->type, max_magnitude(most));
}

#endif
