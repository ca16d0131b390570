/* bf16.c - computes GEMMs of bf16 weights by the AVX512_BF16 instruction vdpbf16ps */
#include "backend/cpu/gemm/finish.h"

#include <string.h>

#include "backend/cpu/gemm/bf16_pairs.h"
#include "backend/cpu/gemm/tile_tmpl.h"
#include "base/par.h"

TILES

#define PANELS_IN_PLACE
#include "backend/cpu/gemm/panel_tmpl.h"

static int64_t units_of(const xd_weight *w)
{
    return (w->in + 1) / 2;
}

/* ---- packing ------------------------------------------------------------------------------ */

static size_t pack_size(const xd_weight *w)
{
    return (size_t)(xd_panels(w) * units_of(w) * XD_UNIT_BYTES);
}

typedef struct pack_ctx {
    const xd_weight *w;
    xd_tensor        src;
    int64_t          row0;
} pack_ctx;

static void pack_panel(void *ctx, int64_t begin, int64_t end, int thread)
{
    const pack_ctx *c = ctx;
    int64_t K = c->w->in, units = units_of(c->w), size = (int64_t)xd_dtype_size(c->src.type);
    (void)thread;
    for (int64_t p = begin; p < end; p++) {
        char *to = (char *)c->w->p + (c->row0 / XD_PANEL + p) * units * XD_UNIT_BYTES;
        for (int64_t u = 0; u < units; u += 16)
            for (int64_t j = 0; j < XD_PANEL; j += 16) {
                __m512i r[16];
                for (int64_t i = 0; i < 16; i++) {
                    int64_t     o = p * XD_PANEL + j + i, left = K - 2 * u;
                    const char *from = (const char *)c->src.p + (o * K + 2 * u) * size;
                    r[i] = o < c->src.d[0] ? bf16_at(from, c->src.type, left < 32 ? left : 32)
                                           : _mm512_setzero_si512();
                }
                transpose_bits(r);
                for (int64_t i = 0; i < 16 && u + i < units; i++)
                    _mm512_storeu_si512(to + (u + i) * XD_UNIT_BYTES + j * 4, r[i]);
            }
    }
}

static xd_status pack_rows(const xd_weight *w, xd_tensor src, int64_t row0)
{
    pack_ctx c = { w, src, row0 };
    xd_par_for((src.d[0] + XD_PANEL - 1) / XD_PANEL, pack_panel, &c);
    return XD_OK;
}

/* ---- GEMM --------------------------------------------------------------------------------- */

static xd_gemm_job job_of(const xd_gemm *a, int threads)
{
    xd_gemm_job p = { .a = a,
                      .in = a->in.p,
                      .ldi = a->in.s[0] * 2,
                      .units = units_of(a->w),
                      .rest = (int)(a->w->in % 2),
                      .w = a->w->p };
    p.panel_bytes = p.units * XD_UNIT_BYTES;
    xd_gemm_job_cut(&p, 0, threads);
    return p;
}

XD_OWN_CALLS(xd_gemm_job, tmp, xd_gemm_job_run(&p, multiply_panel))
XD_OWN_CALL_ALONE(multiply_panel)

const xd_gemm_kernels xd_cpu_gemm_bf16 = {
    pack_size, scratch, gemm, pack_rows, gemm_alone,
};
