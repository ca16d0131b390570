/* plan.c - splits our own GEMMs into blocks of input rows and groups of panels (block.h),
 * distributes the blocks and groups to threads, and selects the kernels */
#include "backend/cpu/gemm/amx_block.h"
#include "backend/cpu/gemm/block.h"
#include "backend/cpu/gemm/gemm.h"
#include "base/minmax.h"

#include "base/par.h"

enum {
    /* maximum bytes of a group of weight panels, which stays in the L3 cache for all blocks of
     * input rows */
    GROUP_BYTES = 8 << 20,
    BLOCK_BYTES = 1200 << 10, /* maximum bytes of a block's rows in one chunk of inputs */
    /* blocks of input rows are not made smaller than this to give all threads work */
    MIN_ROWS = 24,
};

/* Returns the number of 32-bit units of a weight column in a chunk, which depends only on the
 * number of units in an input row. */
static int64_t chunk_units(int64_t units, int64_t most)
{
    int64_t n = xd_ceil_div(units, most);
    return n > 1 ? xd_ceil_div(xd_ceil_div(units, n), 16) * 16 : units;
}

/* Returns the number of blocks of input rows. The number of blocks is the minimum, or a slightly
 * larger number that keeps more threads busy in the last round of work. For each block, fetching a
 * panel of weights takes as much time as multiplying about four rows by the panel. */
static int64_t blocks_of(int64_t M, int64_t most, int64_t panels, int threads)
{
    int64_t fewest = xd_ceil_div(M, most), best = fewest;
    double  cost = 0;
    for (int64_t b = fewest; b < fewest + 8; b++) {
        int64_t rows = xd_ceil_div(xd_ceil_div(M, b), XD_TILE) * XD_TILE,
                rounds = xd_ceil_div(xd_ceil_div(M, rows) * panels, threads);
        double  c = (double)rounds * (double)(rows + 4);
        if (b > fewest && rows < MIN_ROWS)
            break;
        if (b == fewest || c < 0.995 * cost) {
            cost = c;
            best = b;
        }
    }
    return best;
}

/* Returns the maximum number of input rows in a block. */
static int64_t max_rows(const xd_gemm_job *p, int expands)
{
    int64_t most = BLOCK_BYTES / (4 * p->deep);
    if (p->rows)
        return p->rows;
    return expands || most > XD_BLOCK_MANY ? XD_BLOCK_MANY
           : most < XD_BLOCK_ROWS          ? XD_BLOCK_ROWS
                                           : most;
}

/* Returns the number of weight panels that a thread processes together. More panels
 * are better, unless fewer panels keep more threads busy in the last round of work. Input rows are
 * copied once for all panels that are processed together, and the copy takes as long as multiplying
 * by an eighth of a panel. */
static int64_t panels_side_by_side(const xd_gemm_job *p, int threads)
{
    int64_t best = 1;
    double  cost = 0;
    for (int64_t s = p->side < p->group ? p->side : p->group; s > 0; s--) {
        double c = (double)xd_ceil_div(xd_ceil_div(p->panels, s) * p->blocks, threads) *
                   ((double)s + 0.125);
        if (cost <= 0 || c < cost) {
            cost = c;
            best = s;
        }
    }
    return best;
}

void xd_gemm_job_cut(xd_gemm_job *p, int expands, int threads)
{
    p->M = p->a->out.d[0];
    p->N = p->a->w->out;
    p->deep = chunk_units(p->units, p->deep ? p->deep : XD_DEEP);
    int64_t most = max_rows(p, expands);
    p->panels = xd_panels(p->a->w);
    p->group = GROUP_BYTES / p->panel_bytes;
    p->group = p->group < 1 ? 1 : p->group;
    p->group = p->group < p->side ? p->side : p->group;
    p->group = p->group > p->panels ? p->panels : p->group;
    p->group = xd_ceil_div(p->panels, xd_ceil_div(p->panels, p->group));
    p->rows = xd_ceil_div(xd_ceil_div(p->M, blocks_of(p->M, most, p->panels, threads)), XD_TILE) *
              XD_TILE;
    p->blocks = xd_ceil_div(p->M, p->rows);
    /* If blocks have few rows, multiplying by a panel takes very little time. Distributing panels
     * to threads one by one would then cost more than the imbalance of several panels at a time. */
    p->per = xd_ceil_div(XD_TILE * 4, p->rows);
    while (p->per > 1 && xd_ceil_div(p->group, p->per) * p->blocks < 4 * threads)
        p->per--;
    if (p->side)
        p->per = p->side = panels_side_by_side(p, threads);
    if (p->deep < p->units)
        p->sum_bytes = (size_t)(p->rows * XD_PANEL) * sizeof(float);
    p->tmp_bytes = p->sum_bytes + (expands ? (size_t)((p->deep + 4) * XD_UNIT_BYTES) : 0);
}

typedef struct run_ctx {
    const xd_gemm_job *p;
    xd_panel_fn       *fn;
} run_ctx;

/* Runs the work items from `begin` to `end` - 1. A work item is the product of one block of input
 * rows and `per` weight panels of a group. Consecutive work items differ first in their panels of a
 * group, then in their block of rows, and last in their group, so that threads that run at the same
 * time read the same rows and the panels of one group. */
static void run_piece(void *ctx, int64_t begin, int64_t end, int thread)
{
    const run_ctx     *c = ctx;
    const xd_gemm_job *p = c->p;
    int64_t            full = xd_ceil_div(p->group, p->per);
    for (int64_t i = begin; i < end; i++) {
        int64_t g = i / (full * p->blocks), first = g * p->group, at = i - g * full * p->blocks;
        int64_t width = p->panels - first < p->group ? p->panels - first : p->group;
        int64_t pieces = xd_ceil_div(width, p->per), r0 = at / pieces * p->rows;
        int64_t from = at % pieces * p->per, to = from + p->per < width ? from + p->per : width;
        int64_t n = p->M - r0 < p->rows ? p->M - r0 : p->rows;
        for (int64_t k = from, count = p->side ? p->side : 1; k < to; k += count)
            c->fn(p, first + k, to - k < count ? to - k : count, r0, n,
                  p->tmp ? p->tmp + (size_t)thread * p->tmp_bytes : NULL);
    }
}

static int64_t pieces_of(const xd_gemm_job *p)
{
    int64_t groups = xd_ceil_div(p->panels, p->group), last = p->panels - (groups - 1) * p->group;
    int64_t pieces = (groups - 1) * xd_ceil_div(p->group, p->per) + xd_ceil_div(last, p->per);
    return pieces * p->blocks;
}

void xd_gemm_job_run(const xd_gemm_job *p, xd_panel_fn *fn)
{
    xd_par_dynamic(pieces_of(p), run_piece, &(run_ctx){ p, fn });
}

void xd_gemm_job_run_alone(const xd_gemm_job *p, xd_panel_fn *fn)
{
    run_piece(&(run_ctx){ p, fn }, 0, pieces_of(p), 0);
}

/* ---- selection of kernels ----------------------------------------------------------------- */

#if defined(__x86_64__)
/* Returns the kernels that pack a weight, or NULL if our own GEMMs do not support the weight. */
static const xd_gemm_kernels *packing_kernels(xd_isa isa, const xd_weight *w)
{
    if (w->nk || w->in < 1 || w->out < 1 || w->floats)
        return NULL;
#if defined(XD_WITH_AMX)
    if (isa == XD_ISA_AMX && w->type == XD_I8)
        return w->in <= XD_INT8_MAX_INPUTS ? &xd_cpu_gemm_amx_int8 : NULL;
    if (isa == XD_ISA_AMX && w->type == XD_BF16)
        return &xd_cpu_gemm_amx_bf16;
#endif
    if (w->type == XD_I8)
        return isa >= XD_ISA_AVX512 && xd_isa_has_vnni() && w->in <= XD_INT8_MAX_INPUTS
                   ? &xd_cpu_gemm_int8
                   : NULL;
    if (w->type == XD_F32)
        return isa == XD_ISA_AVX2 ? &xd_cpu_gemm_f32 : NULL;
    if (isa < XD_ISA_AVX512BF16)
        return NULL;
    return w->type == XD_BF16 ? &xd_cpu_gemm_bf16 : w->type == XD_F8E4M3 ? &xd_cpu_gemm_e4m3 : NULL;
}

/* Returns the kernels that multiply an input by the packed weight. */
static const xd_gemm_kernels *multiplying_kernels(xd_isa isa, const xd_gemm *a)
{
    if (a->w->type == XD_F8E4M3 && a->in.type == XD_F32)
        return &xd_cpu_gemm_e4m3_f32;
#if defined(XD_WITH_AMX)
    if (isa == XD_ISA_AMX && a->w->type == XD_F8E4M3)
        return &xd_cpu_gemm_amx_e4m3;
#endif
    return packing_kernels(isa, a->w);
}

const xd_gemm_kernels *xd_cpu_gemm_alone(xd_isa isa, xd_dtype type)
{
    if (type == XD_BF16)
        return isa >= XD_ISA_AVX512BF16 ? &xd_cpu_gemm_bf16 : NULL;
    return isa >= XD_ISA_AVX512 ? &xd_cpu_gemm_f32_wide
           : isa >= XD_ISA_AVX2 ? &xd_cpu_gemm_f32
                                : NULL;
}
#else
const xd_gemm_kernels *xd_cpu_gemm_alone(xd_isa isa, xd_dtype type)
{
    (void)isa;
    (void)type;
    return NULL;
}

static const xd_gemm_kernels *packing_kernels(xd_isa isa, const xd_weight *w)
{
    (void)isa;
    (void)w;
    return NULL;
}

static const xd_gemm_kernels *multiplying_kernels(xd_isa isa, const xd_gemm *a)
{
    (void)isa;
    (void)a;
    return NULL;
}
#endif

int xd_cpu_gemm_takes(xd_isa isa, const xd_weight *w)
{
    return packing_kernels(isa, w) != NULL;
}

int xd_cpu_gemm_reads_floats(xd_isa isa, const xd_weight *w)
{
    return w->type != XD_BF16 || isa == XD_ISA_AMX;
}

size_t xd_cpu_gemm_pack_size(xd_isa isa, xd_weight *w)
{
    w->layout = 2;
    w->bytes = packing_kernels(isa, w)->pack_size(w);
    return w->bytes;
}

xd_status xd_cpu_gemm_pack(xd_isa isa, const xd_weight *w, xd_tensor src)
{
    return packing_kernels(isa, w)->pack_rows(w, src, 0);
}

int64_t xd_cpu_gemm_pack_band(xd_isa isa, const xd_weight *w)
{
    (void)isa, (void)w;
    return XD_PANEL;
}

xd_status xd_cpu_gemm_pack_rows(xd_isa isa, const xd_weight *w, xd_tensor src, int64_t row0)
{
    return packing_kernels(isa, w)->pack_rows(w, src, row0);
}

size_t xd_cpu_gemm_scratch(xd_isa isa, const xd_gemm *a, int threads)
{
    return a->out.d[0] > 0 ? multiplying_kernels(isa, a)->scratch(a, threads) : 0;
}

xd_status xd_cpu_gemm_gemm(xd_isa isa, const xd_gemm *a, void *tmp)
{
    return a->out.d[0] > 0 ? multiplying_kernels(isa, a)->gemm(a, tmp) : XD_OK;
}
