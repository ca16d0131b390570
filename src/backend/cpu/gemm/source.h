/* source.h - rows of a weight as it comes from a file, as vectors of floats; its scale; and units
 * of four bytes into panels */
#ifndef XD_BACKEND_CPU_GEMM_SOURCE_H
#define XD_BACKEND_CPU_GEMM_SOURCE_H

#include <math.h>
#include <string.h>

#include "backend/cpu/gemm/finish.h"

/* Up to 16 elements, zeros behind the last of `n`. */
static inline __m512 source_at(const char *p, xd_dtype type, int64_t n)
{
    float some[16] = { 0 };
    if (type == XD_F32 || type == XD_BF16)
        return floats_at(p, type, lanes(n));
    if (type == XD_F16)
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes(n), p));
    xd_convert(some, XD_F32, p, type, n < 16 ? n : 16);
    return _mm512_loadu_ps(some);
}

typedef struct source { const xd_weight *w; xd_tensor src; } source;

static inline const char *source_row(const source *s, int64_t o)
{
    return (const char *)s->src.p + o * s->w->in * (int64_t)xd_dtype_size(s->src.type);
}

/* Magnitudes are in the order of their bits; NaN where one is not finite. */
static inline float most_of(__m512i most)
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
    return xd_quant_scale(s->w->type, most_of(most));
}

#endif
