/* e4m3.c - computes GEMMs of e4m3 weights that have one scale per output column
 *
 * Before a chunk of e4m3 weights is multiplied, the chunk is expanded to bf16 (or to floats if
 * XD_E4M3_F32 is defined), once for all tiles of a block of input rows. A panel is XD_PANEL output
 * columns, and a unit is 32 bits of consecutive inputs (block.h). The packed weight starts with the
 * scales, XD_PANEL per panel. The panels of e4m3 values follow, each [quad][XD_PANEL][4], where a
 * quad is four consecutive inputs. A NaN in a column of weights makes the column's scale NaN. */
#include "backend/cpu/gemm/e4m3_quads.h"
#include "backend/cpu/gemm/scale.h"

#include "base/par.h"

#ifdef XD_E4M3_F32
#include "backend/cpu/gemm/floats.h"
/* UNIT is the number of consecutive inputs in a 32-bit unit of the expanded weight. LINES is the
 * number of cache lines of packed e4m3 that expand to one unit of each of a panel's 64 columns. */
enum { UNIT = 1, LINES = 1 };

static inline __m512i v_half(const char *p)
{
    return _mm512_set1_epi32(*p);
}

static inline __m512 v_dot(__m512 sum, __m512i x, __m512i y)
{
    return _mm512_fmadd_ps(_mm512_castsi512_ps(x), _mm512_castsi512_ps(y), sum);
}
#else
#include "backend/cpu/gemm/bf16_pairs.h"
enum { UNIT = 2, LINES = 2 };
#endif

#include "backend/cpu/gemm/tile_tmpl.h"

TILES

enum { QUAD_UNITS = 4 / UNIT };

/* Expands four consecutive inputs (a quad) of all columns of a panel to the layout that the tiles
 * read: one 32-bit unit of inputs after the other, each for all columns. */
static inline void expand_quad(char *to, const char *from)
{
    const __m512i first = first_pick(), second = second_pick();
    for (int64_t j = 0; j < XD_UNIT_BYTES; j += 64) {
        const __m512i bytes = _mm512_loadu_si512(from + j);
        const __m512i a = bf16_of(bytes, first), b = bf16_of(bytes, second);
#ifdef XD_E4M3_F32
        const __m512i high = _mm512_set1_epi32((int)0xffff0000u);
        _mm512_storeu_si512(to + j, _mm512_slli_epi32(a, 16));
        _mm512_storeu_si512(to + j + XD_UNIT_BYTES, _mm512_and_si512(a, high));
        _mm512_storeu_si512(to + j + 2 * XD_UNIT_BYTES, _mm512_slli_epi32(b, 16));
        _mm512_storeu_si512(to + j + 3 * XD_UNIT_BYTES, _mm512_and_si512(b, high));
#else
        _mm512_storeu_si512(to + j, a);
        _mm512_storeu_si512(to + j + XD_UNIT_BYTES, b);
#endif
    }
}

/* Expands `units` 32-bit units of a panel's weights, from unit k on, into `place`, and returns
 * `place`. A quad (the e4m3 weights of four consecutive inputs) expands to several units, and k
 * must be a multiple of the number of units of a quad. */
static inline const char *panel_in_l1(const char *w, int64_t k, int64_t units, char *place)
{
    const char *from = w + k / QUAD_UNITS * XD_UNIT_BYTES;
    for (int64_t u = 0; u < units; u += QUAD_UNITS)
        expand_quad(place + u * XD_UNIT_BYTES, from + u / QUAD_UNITS * XD_UNIT_BYTES);
    return place;
}

#include "backend/cpu/gemm/panel_tmpl.h"

/* ---- packing ------------------------------------------------------------------------------ */

static size_t pack_size(const xd_weight *w)
{
    return (size_t)(xd_panels(w) * (XD_PANEL * 4 + quads_of(w) * XD_UNIT_BYTES));
}

/* Rounds floats to the nearest e4m3, ties to even, clamped to +-448. If the result is a normal
 * e4m3, the bits of the float are rounded as an integer. If the result is subnormal, it is rounded
 * by the addition of a float whose last bit has the weight 2^-9, which is also the weight of the
 * last bit of a subnormal e4m3. */
static inline __m128i round_to_e4m3(__m512 x)
{
    const __m512i u = _mm512_castps_si512(x), one = _mm512_set1_epi32(1);
    const __m512  abs = _mm512_min_ps(_mm512_abs_ps(x), _mm512_set1_ps(448.0f));
    const __m512i m = _mm512_castps_si512(abs);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(m, 20), one);
    const __m512i r = _mm512_sub_epi32(
        _mm512_srli_epi32(_mm512_add_epi32(m, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7ffff))),
                          20),
        _mm512_set1_epi32(120 << 3));
    const __m512    magic = _mm512_set1_ps(16384.0f);
    const __m512i   few = _mm512_sub_epi32(_mm512_castps_si512(_mm512_add_ps(abs, magic)),
                                           _mm512_castps_si512(magic));
    const __mmask16 low = _mm512_cmp_ps_mask(abs, _mm512_set1_ps(0x1p-6f), _CMP_LT_OQ);
    __m512i         q = _mm512_mask_mov_epi32(r, low, few);
    q = _mm512_mask_mov_epi32(q, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), _mm512_set1_epi32(0x7f));
    return _mm512_cvtepi32_epi8(
        _mm512_or_si512(q, _mm512_and_si512(_mm512_srli_epi32(u, 24), _mm512_set1_epi32(0x80))));
}

/* Returns the elements of weight row o from input i to input i + 63, quantized to e4m3. */
static __m512i source_e4m3(const source *s, int64_t o, int64_t i, float scale)
{
    const int64_t size = (int64_t)xd_dtype_size(s->src.type), left = s->w->in - i;
    const char   *row = source_row(s, o) + i * size;
    char          q[64] = { 0 };
    if (s->src.type == XD_F8E4M3)
        return _mm512_maskz_loadu_epi8(left < 64 ? (1ull << left) - 1 : ~0ull, row);
    for (int64_t k = 0; k < 64 && k < left && scale > 0; k += 16)
        _mm_storeu_si128(
            (__m128i *)(void *)(q + k),
            round_to_e4m3(_mm512_div_ps(source_at(row + k * size, s->src.type, left - k),
                                        _mm512_set1_ps(scale))));
    return _mm512_loadu_si512(q);
}

/* Packs 16 output columns of a panel as e4m3, and computes the scales of these columns. */
static void pack_columns(const source *s, int64_t o0, char *to, float *scale)
{
    const __m512i all = _mm512_set1_epi8(0x7f);
    const int64_t quads = quads_of(s->w);
    for (int64_t i = 0; i < 16; i++)
        scale[i] = o0 + i < s->w->out ? source_scale(s, o0 + i) : 0.0f;
    for (int64_t u = 0; u < quads; u += 16) {
        __m512i r[16];
        for (int64_t i = 0; i < 16; i++) {
            r[i] = o0 + i < s->w->out ? source_e4m3(s, o0 + i, 4 * u, scale[i])
                                      : _mm512_setzero_si512();
            if (_mm512_cmpeq_epi8_mask(_mm512_and_si512(r[i], all), all))
                scale[i] = NAN;
        }
        transpose_bits(r);
        for (int64_t i = 0; i < 16 && u + i < quads; i++)
            _mm512_storeu_si512(to + (u + i) * XD_UNIT_BYTES, r[i]);
    }
}

static void pack_panels(void *ctx, int64_t begin, int64_t end, int thread)
{
    const source *s = ctx;
    (void)thread;
    for (int64_t p = s->row0 / XD_PANEL + begin; p < s->row0 / XD_PANEL + end; p++)
        for (int64_t j = 0; j < XD_PANEL; j += 16)
            pack_columns(s, p * XD_PANEL + j,
                         panels_of(s->w) + p * quads_of(s->w) * XD_UNIT_BYTES + j * 4,
                         scales_of(s->w) + p * XD_PANEL + j);
}

static xd_status pack_rows(const xd_weight *w, xd_tensor src, int64_t row0)
{
    source s = { w, src, row0 };
    xd_par_for(source_panels(&s), pack_panels, &s);
    return XD_OK;
}

/* ---- GEMM --------------------------------------------------------------------------------- */

static xd_gemm_job job_of(const xd_gemm *a, int threads)
{
    xd_gemm_job p = { .a = a,
                      .in = a->in.p,
                      .ldi = a->in.s[0] * (4 / UNIT),
                      .units = (a->w->in + UNIT - 1) / UNIT,
                      .rest = (int)(a->w->in % UNIT) };
    p.panel_bytes = quads_of(a->w) * XD_UNIT_BYTES;
    xd_gemm_job_cut(&p, 1, threads);
    return p;
}

static size_t scratch(const xd_gemm *a, int threads)
{
    return job_of(a, threads).tmp_bytes * (size_t)threads;
}

static xd_status gemm(const xd_gemm *a, void *tmp)
{
    xd_gemm_job p = job_of(a, xd_par_threads());
    p.w = panels_of(a->w);
    p.col = scales_of(a->w);
    p.tmp = tmp;
    xd_gemm_job_run(&p, multiply_panel);
    return XD_OK;
}

#ifdef XD_E4M3_F32
const xd_gemm_kernels xd_cpu_gemm_e4m3_f32 = { pack_size, scratch, gemm, pack_rows, NULL };
#else
const xd_gemm_kernels xd_cpu_gemm_e4m3 = { pack_size, scratch, gemm, pack_rows, NULL };
#endif
