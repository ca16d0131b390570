/* amx_plan.c - splits an AMX GEMM into blocks of input rows and groups of weight strips (32 output
 * columns each) */
#include "backend/cpu/gemm/amx_block.h"
#include "base/minmax.h"

enum {
    /* maximum number of 64-byte steps in a chunk of inputs, with which a chunk of a weight strip is
     * 36 KiB */
    DEEP = 18,
    HELD_BYTES = 896 << 10, /* maximum input bytes kept in an L2 cache of 2 MiB */
    /* maximum number of weight strips in a group if accumulators are kept in scratch between
     * chunks */
    GROUP = 48,
    /* time to copy 64 bytes of an input row to a tile, in 1/256 of a tile multiply */
    ROW_LINE = 350,
    /* time to fetch 64 bytes of weights or of accumulators, in 1/256 of a tile multiply */
    LINE = 140,
};

typedef struct cut {
    int64_t held, rows, group;
    double  cost;
} cut;

/* Returns a split of the GEMM into `blocks` blocks of input rows and `groups` groups of weight
 * strips, all as even as possible, with the estimated cost of the split. Each block of rows is
 * divided into `parts` ranges of inputs, and one range at a time is kept in the L2 cache. The cost
 * is the time of all tile multiplies, of fetching input rows and weights, and of moving
 * accumulators between tiles and scratch. This time is multiplied by the number of rounds in which
 * the threads process all blocks. */
static cut cut_of(const xd_amx_job *t, int64_t parts, int64_t blocks, int64_t groups, int threads)
{
    int64_t held = xd_ceil_div(xd_ceil_div(t->steps, parts), 2) * 2;
    int64_t rows = xd_ceil_div(xd_ceil_div(t->of.M, blocks), XD_SIDE) * XD_SIDE,
            group = xd_ceil_div(t->strips, groups);
    int64_t rounds =
        xd_ceil_div(xd_ceil_div(t->of.M, rows) * xd_ceil_div(t->strips, group), threads);
    double r = (double)rows, c = (double)(group * XD_SIDE), n = (double)xd_ceil_div(t->steps, held);
    double waits = 4 * (n - 1) / n / (double)held;
    return (cut){ held, rows, group,
                  (double)rounds * (r * c * (1 + LINE / 32.0 * waits) + ROW_LINE * r + LINE * c) };
}

void xd_amx_job_cut(xd_amx_job *t, int expands, int threads)
{
    enum { TRIED = 6 };
    cut best = { 0 };
    t->of.M = t->of.a->out.d[0];
    t->of.N = t->of.a->w->out;
    t->steps = xd_amx_job_steps(t->row_bytes);
    t->strips = xd_ceil_div(t->of.N, XD_SIDE);
    const int64_t parts = xd_ceil_div(t->steps * XD_STEP_BYTES * XD_SIDE, HELD_BYTES);
    for (int64_t n = parts; n < 3 * parts + TRIED; n++) {
        int64_t most = HELD_BYTES / (xd_ceil_div(t->steps, n) * XD_STEP_BYTES) / XD_SIDE * XD_SIDE;
        int64_t blocks = xd_ceil_div(t->of.M, most < XD_SIDE ? XD_SIDE : most);
        int64_t groups = n > 1 ? xd_ceil_div(t->strips, GROUP) : 1;
        for (int64_t b = blocks; b < blocks + TRIED; b++)
            for (int64_t g = groups; g < groups + TRIED; g++) {
                cut c = cut_of(t, n, b, g, threads);
                if (best.rows == 0 || c.cost < 0.995 * best.cost)
                    best = c;
            }
    }
    t->held = best.held;
    t->deep = xd_ceil_div(xd_ceil_div(t->held, xd_ceil_div(t->held, DEEP)), 2) * 2;
    t->rows = best.rows;
    t->blocks = xd_ceil_div(t->of.M, t->rows);
    t->group = best.group;
    t->groups = xd_ceil_div(t->strips, t->group);
    t->tile_bytes = t->ready ? 0 : (size_t)(t->rows * t->held * XD_STEP_BYTES);
    t->sum_bytes =
        (size_t)(t->rows * XD_SIDE * (t->held < t->steps ? t->group : 1)) * sizeof(float);
    t->tmp_bytes = t->tile_bytes + t->sum_bytes;
    if (expands)
        t->tmp_bytes += (size_t)(t->deep * XD_PAIR_BYTES);
}
