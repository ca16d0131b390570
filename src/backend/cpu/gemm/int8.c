/* int8.c - computes GEMMs of int8 weights by the AVX-512 VNNI instruction vpdpbusd, which
 * multiplies unsigned by signed bytes
 *
 * A packed weight starts with the scale and the correction of each output column, followed by the
 * panels of XD_PANEL columns (block.h). A 32-bit unit of a column holds four weights. The rows of
 * the input are quantized once per GEMM call into scratch, with 128 added to each integer.
 * Therefore the sum of a column is too large by 128 times the sum of the column's weights, which
 * the correction subtracts modulo 2^32. */
#include "backend/cpu/gemm/integers.h"

#include "base/par.h"

typedef __m512i v_sums;

/* clang-format off */
static inline __m512i v_none(void) { return _mm512_setzero_si512(); }
static inline __m512i v_get(const float *p) { return _mm512_loadu_si512(p); }
static inline void    v_put(float *p, __m512i x) { _mm512_storeu_si512(p, x); }
static inline __m512i v_join(__m512i x, __m512i y) { return _mm512_add_epi32(x, y); }
static inline __m512i v_half(const char *p) { return _mm512_set1_epi32(*p); }
/* clang-format on */

/* Adds a dot product of four bytes to each 32-bit lane of `sum`. Inline assembly is used because
 * gcc 12 keeps copies of the accumulators in memory if the intrinsic is used. */
static inline __m512i v_dot(__m512i sum, __m512i x, __m512i y)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
    return sum;
}

#include "backend/cpu/gemm/tile_tmpl.h"

TILES

#define PANELS_IN_PLACE
#include "backend/cpu/gemm/panel_tmpl.h"

static int64_t units_of(const xd_weight *w)
{
    return (w->in + 3) / 4;
}

static float *scales_of(const xd_weight *w)
{
    return w->p;
}

static int32_t *fixes_of(const xd_weight *w)
{
    return (int32_t *)w->p + xd_panels(w) * XD_PANEL;
}

static char *panels_of(const xd_weight *w)
{
    return (char *)w->p + xd_panels(w) * XD_PANEL * 8;
}

/* ---- packing ------------------------------------------------------------------------------ */

static size_t pack_size(const xd_weight *w)
{
    return (size_t)(xd_panels(w) * (XD_PANEL * 8 + units_of(w) * XD_UNIT_BYTES));
}

/* Packs 16 output columns of a weight that is already stored as int8. */
static void copy_columns(const source *s, int64_t o0, char *to, float *scale, int32_t *fix)
{
    const int64_t units = units_of(s->w);
    __m512i       sum = _mm512_setzero_si512();
    for (int64_t i = 0; i < 16; i++)
        scale[i] = o0 + i < s->w->out ? source_scale(s, o0 + i) : 0.0f;
    const stored_rows rows = stored_rows_of(s, o0, scale);
    for (int64_t u = 0; u < units; u += 16, to += 16 * XD_UNIT_BYTES) {
        const int64_t n = units - u < 16 ? units - u : 16;
        __m512i       r[16];
        stored_integers(r, &rows, 4 * u);
        transpose_bits(r);
        for (int64_t i = 0; i < n; i++) {
            _mm512_storeu_si512(to + i * XD_UNIT_BYTES, r[i]);
            sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(-128), r[i]);
        }
    }
    _mm512_storeu_si512(fix, sum);
}

/* Quantizes and packs 16 output columns of a weight that is stored as floats. */
static void pack_columns(const source *s, int64_t o0, char *to, float *scale, int32_t *fix)
{
    const int64_t units = units_of(s->w);
    __m512i       sum = _mm512_setzero_si512();
    for (int64_t i = 0; i < 16; i++)
        scale[i] = o0 + i < s->w->out ? source_scale(s, o0 + i) : 0.0f;
    for (int64_t u = 0; u < units; u += 16) {
        __m512i r[16];
        for (int64_t i = 0; i < 16; i++)
            r[i] = o0 + i < s->w->out ? source_integers(s, o0 + i, 4 * u, scale[i])
                                      : _mm512_setzero_si512();
        transpose_bits(r);
        for (int64_t i = 0; i < 16 && u + i < units; i++) {
            _mm512_storeu_si512(to + (u + i) * XD_UNIT_BYTES, r[i]);
            sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(-128), r[i]);
        }
    }
    _mm512_storeu_si512(fix, sum);
}

static void pack_panels(void *ctx, int64_t begin, int64_t end, int thread)
{
    const source *s = ctx;
    void          (*pack)(const source *, int64_t, char *, float *, int32_t *) =
        s->src.type == XD_I8 ? copy_columns : pack_columns;
    (void)thread;
    for (int64_t p = s->row0 / XD_PANEL + begin; p < s->row0 / XD_PANEL + end; p++)
        for (int64_t j = 0; j < XD_PANEL; j += 16)
            pack(s, p * XD_PANEL + j, panels_of(s->w) + p * units_of(s->w) * XD_UNIT_BYTES + j * 4,
                 scales_of(s->w) + p * XD_PANEL + j, fixes_of(s->w) + p * XD_PANEL + j);
}

static xd_status pack_rows(const xd_weight *w, xd_tensor src, int64_t row0)
{
    source s = { w, src, row0 };
    xd_par_for(source_panels(&s), pack_panels, &s);
    return XD_OK;
}

/* ---- GEMM --------------------------------------------------------------------------------- */

typedef struct input {
    const xd_gemm *a;
    integer_rows   to;
} input;

static void input_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const input *c = ctx;
    (void)thread;
    input_integers(&c->to, c->a, begin, end);
}

static xd_gemm_job job_of(const xd_gemm *a, int threads)
{
    xd_gemm_job p = { .a = a, .units = units_of(a->w), .ldi = (a->w->in + 63) / 64 * 64 };
    p.panel_bytes = p.units * XD_UNIT_BYTES;
    xd_gemm_job_cut(&p, 0, threads);
    return p;
}

static int64_t input_bytes(const xd_gemm_job *p)
{
    return p->M * p->ldi + (p->M * (int64_t)sizeof(float) + 63) / 64 * 64;
}

static size_t scratch(const xd_gemm *a, int threads)
{
    xd_gemm_job p = job_of(a, threads);
    return (size_t)input_bytes(&p) + p.tmp_bytes * (size_t)threads;
}

static xd_status gemm(const xd_gemm *a, void *tmp)
{
    xd_gemm_job p = job_of(a, xd_par_threads());
    input in = { a, { tmp, (float *)(void *)((char *)tmp + p.M * p.ldi), p.ldi / 64, 1, -128 } };
    xd_par_for(p.M, input_rows, &in);
    p.in = in.to.q;
    p.row = in.to.scale;
    p.w = panels_of(a->w);
    p.col = scales_of(a->w);
    p.fix = fixes_of(a->w);
    p.tmp = (char *)tmp + input_bytes(&p);
    xd_gemm_job_run(&p, multiply_panel);
    return XD_OK;
}

const xd_gemm_kernels xd_cpu_gemm_int8 = { pack_size, scratch, gemm, pack_rows, NULL };
