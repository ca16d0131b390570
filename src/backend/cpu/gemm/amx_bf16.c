/* amx_bf16.c - computes GEMMs of bf16 weights by the AMX instruction tdpbf16ps. F32 input rows are
 * converted to bf16 while they are copied to tiles. */
#include "backend/cpu/gemm/bf16_pairs.h"

#include "backend/cpu/gemm/amx_pack.h"

#define TILE_DOT(c, a, b) _tile_dpbf16ps(c, a, b)
#define TILED_IN_PLACE
#include "backend/cpu/gemm/amx_tile_tmpl.h"

/* ---- packing ------------------------------------------------------------------------------ */

static size_t pack_size(const xd_weight *w)
{
    return (size_t)tiled_bytes(w, 2 * w->in);
}

typedef struct pack_ctx {
    const xd_weight *w;
    xd_tensor        src;
    int64_t          row0;
} pack_ctx;

static inline __m512i step_at(const void *ctx, int64_t o, int64_t k)
{
    const pack_ctx *c = ctx;
    int64_t         left = c->w->in - 32 * k, at = (o - c->row0) * c->w->in + 32 * k;
    return bf16_at((const char *)c->src.p + at * (int64_t)xd_dtype_size(c->src.type), c->src.type,
                   left < 32 ? left : 32);
}

static void pack_strips(void *ctx, int64_t begin, int64_t end, int thread)
{
    const pack_ctx *c = ctx;
    (void)thread;
    for (int64_t s = begin; s < end; s++)
        pack_strip(c->w->p, c->w, 2 * c->w->in, c->row0 / XD_SIDE + s, step_at, c);
}

static xd_status pack_rows(const xd_weight *w, xd_tensor src, int64_t row0)
{
    pack_ctx c = { w, src, row0 };
    xd_par_for((src.d[0] + XD_SIDE - 1) / XD_SIDE, pack_strips, &c);
    return XD_OK;
}

/* ---- GEMM --------------------------------------------------------------------------------- */

static xd_amx_job job_of(const xd_gemm *a, int threads)
{
    xd_amx_job t = {
        .of = { .a = a, .in = a->in.p, .ldi = a->in.s[0] * size_of(a->in.type), .w = a->w->p },
        .row_bytes = a->w->in * 2,
        .floats = a->in.type == XD_F32
    };
    xd_amx_job_cut(&t, 0, threads);
    return t;
}

XD_OWN_CALLS(xd_amx_job, of.tmp, tiled_run(&p))

const xd_gemm_kernels xd_cpu_gemm_amx_bf16 = { pack_size, scratch, gemm, pack_rows, NULL };
