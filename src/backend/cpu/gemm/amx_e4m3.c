/* amx_e4m3.c - computes GEMMs of bf16 inputs and e4m3 weights, which are packed as in e4m3.c. A
 * chunk of weights at a time is expanded to bf16 for the tile multiply instruction tdpbf16ps. */
#include "backend/cpu/gemm/e4m3_quads.h"

#include "backend/cpu/gemm/amx_block.h"

#define TILE_DOT(c, a, b) _tile_dpbf16ps(c, a, b)

enum { STEP_QUADS = 8, HALF_BYTES = XD_UNIT_BYTES / 2 };

/* Returns the address of the packed weights of a strip (32 output columns) for step k of the inputs
 * (64 bytes of each bf16 row). A strip is half a panel of e4m3.c, so four consecutive inputs of the
 * strip's columns take two cache lines. */
static inline const char *weights_at(const xd_amx_job *t, int64_t strip, int64_t k)
{
    return t->of.w + strip / 2 * t->of.panel_bytes + k * STEP_QUADS * XD_UNIT_BYTES +
           strip % 2 * HALF_BYTES;
}

static inline void expand_step(char *to, const char *packed, int64_t k, int64_t quads)
{
    const __m512i first = first_pick(), second = second_pick();
    const char   *from = packed + k * STEP_QUADS * XD_UNIT_BYTES;
    for (int64_t q = 0; q < STEP_QUADS; q++, to += 128, from += XD_UNIT_BYTES)
        for (int64_t j = 0; j < 2; j++) {
            const __m512i bytes = q < quads - k * STEP_QUADS ? _mm512_loadu_si512(from + j * 64)
                                                             : _mm512_setzero_si512();
            _mm512_storeu_si512(to + j * 1024, bf16_of(bytes, first));
            _mm512_storeu_si512(to + j * 1024 + 64, bf16_of(bytes, second));
        }
}

#include "backend/cpu/gemm/amx_tile_tmpl.h"

static xd_amx_job job_of(const xd_gemm *a, int threads)
{
    xd_amx_job t = { .of = { .a = a,
                             .in = a->in.p,
                             .ldi = a->in.s[0] * 2,
                             .w = panels_of(a->w),
                             .col = scales_of(a->w),
                             .panel_bytes = quads_of(a->w) * XD_UNIT_BYTES },
                     .row_bytes = a->w->in * 2 };
    xd_amx_job_cut(&t, 1, threads);
    return t;
}

XD_OWN_CALLS(xd_amx_job, of.tmp, tiled_run(&p))

const xd_gemm_kernels xd_cpu_gemm_amx_e4m3 = { .scratch = scratch, .gemm = gemm };
