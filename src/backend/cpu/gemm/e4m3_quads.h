/* e4m3_quads.h - describes the packed layout of e4m3 weights, and converts such weights to bf16.
 *
 * A packed weight starts with the scales of its columns, XD_PANEL scales for each panel (block.h).
 * The scales are followed by the weight's elements, stored panel by panel, in the layout
 * [quad][XD_PANEL][4]. In packed e4m3 weights, a quad is the weights of four consecutive inputs. */
#ifndef XD_BACKEND_CPU_GEMM_E4M3_QUADS_H
#define XD_BACKEND_CPU_GEMM_E4M3_QUADS_H

#include <immintrin.h>

#include "backend/cpu/gemm/block.h"

static inline int64_t quads_of(const xd_weight *w)
{
    return (w->in + 3) / 4;
}

static inline float *scales_of(const xd_weight *w)
{
    return w->p;
}

static inline char *panels_of(const xd_weight *w)
{
    return (char *)w->p + xd_panels(w) * XD_PANEL * 4;
}

/* Return the byte shuffles that bf16_of expects as `pick`. In each 32-bit lane, first_pick()
 * selects the bytes of inputs 0 and 1 of a quad, and second_pick() selects the bytes of inputs 2
 * and 3. */
static inline __m512i first_pick(void)
{
    return _mm512_broadcast_i32x4(
        _mm_set_epi8(13, -1, 12, -1, 9, -1, 8, -1, 5, -1, 4, -1, 1, -1, 0, -1));
}

static inline __m512i second_pick(void)
{
    return _mm512_add_epi8(first_pick(), _mm512_set1_epi16(0x200));
}

/* Converts two e4m3 bytes of each 32-bit lane to bf16. The byte shuffle `pick` moves each selected
 * byte to the upper half of a 16-bit element. The conversion changes the exponent bias from 7
 * (e4m3) to 127 (bf16). Subnormal e4m3 values are looked up in a table. */
static inline __m512i bf16_of(__m512i bytes, __m512i pick)
{
    static const uint16_t few[32] = { 0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60 };
    const __m512i         x = _mm512_shuffle_epi8(bytes, pick);
    const __m512i         t = _mm512_srli_epi16(_mm512_and_si512(x, _mm512_set1_epi16(0x7f00)), 4);
    const __mmask32       low = _mm512_cmplt_epu16_mask(t, _mm512_set1_epi16(0x80));
    const __m512i v = _mm512_mask_permutexvar_epi16(_mm512_add_epi16(t, _mm512_set1_epi16(0x3c00)),
                                                    low, _mm512_srli_epi16(x, 8),
                                                    _mm512_loadu_si512(few));
    return _mm512_or_si512(v, _mm512_and_si512(x, _mm512_set1_epi16(-0x8000)));
}

#endif
