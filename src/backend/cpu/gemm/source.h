/* source.h - reads rows of a weight as stored in a checkpoint file (the source) as vectors of
 * floats */
#ifndef XD_BACKEND_CPU_GEMM_SOURCE_H
#define XD_BACKEND_CPU_GEMM_SOURCE_H

#include <string.h>

#include "backend/cpu/gemm/finish.h"

static inline vf halves_at(const char *p, int64_t n)
{
#ifdef __AVX512F__
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lane_mask(n), p));
#else
    uint16_t h[LANES] = { 0 };
    memcpy(h, p, (size_t)(n < LANES ? n : LANES) * 2);
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)h));
#endif
}

/* Returns up to LANES elements of a row as floats, with zeros from element n on. */
static inline vf source_at(const char *p, xd_dtype type, int64_t n)
{
    float some[LANES] = { 0 };
    if (type == XD_F32 || type == XD_BF16)
        return float_row(p, type, 0, n);
    if (type == XD_F16)
        return halves_at(p, n);
    xd_convert(some, XD_F32, p, type, n < LANES ? n : LANES);
    return v_load(some);
}

/* Tensor `src` from which rows of weight w are packed. The first row of `src` is row `row0` of w,
 * which is the first row of a panel. */
typedef struct source {
    const xd_weight *w;
    xd_tensor        src;
    int64_t          row0;
} source;

static inline const char *source_row(const source *s, int64_t o)
{
    return (const char *)s->src.p + (o - s->row0) * s->w->in * (int64_t)xd_dtype_size(s->src.type);
}

static inline int64_t source_panels(const source *s)
{
    return (s->src.d[0] + XD_PANEL - 1) / XD_PANEL;
}

#endif
