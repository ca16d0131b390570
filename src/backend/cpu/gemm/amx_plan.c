/* amx_plan.c - how a product by tile registers is cut into blocks of rows and groups of columns */
#include "backend/cpu/gemm/amx_block.h"

enum {
    DEEP = 18,                  /* most steps of a chunk: 36 KiB of 32 rows                   */
    SUMS_BYTES = 768 << 10,     /* most that wait                                             */
    TURN = 24,                  /* what a row or column of a block costs, in products;        */
    EXPANDED_TURN = 72,         /* a column that is expanded first                            */
};

/* Rows of a block and strips of a group: 18 are 648 KiB of a chunk. */
static const int64_t some_rows[] = { 768, 512, 384, 320, 256, 192, 128, 96, 64, 32 };
static const int64_t some_strips[] = { 18, 16, 14, 12, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1 };

static int64_t up(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

int64_t xd_tiled_steps(int64_t row_bytes)
{
    return up(row_bytes, XD_STEP_BYTES);
}

/* Even, so that a chunk of bytes that are expanded to brains begins with a whole step of theirs. */
int64_t xd_tiled_deep(int64_t row_bytes)
{
    int64_t steps = xd_tiled_steps(row_bytes);
    return up(up(steps, up(steps, DEEP)), 2) * 2;
}

typedef struct cut { int64_t rows, group; double cost; } cut;

/* As even as may be below these most; the time of all rounds of threads. */
static cut cut_of(const xd_tiled *t, int64_t rows, int64_t group, int64_t turn, int threads)
{
    rows = up(up(t->of.M, up(t->of.M, rows)), XD_SIDE) * XD_SIDE;
    group = up(t->strips, up(t->strips, group));
    int64_t rounds = up(up(t->of.M, rows) * up(t->strips, group), threads), width = group * XD_SIDE;
    return (cut){ rows, group, (double)rounds * (double)(rows * width + TURN * rows + turn * width) };
}

static cut best_cut(const xd_tiled *t, int waits, int64_t turn, int threads)
{
    cut best = { 0 };
    for (size_t r = 0; r < sizeof some_rows / sizeof *some_rows; r++)
        for (size_t g = 0; g < sizeof some_strips / sizeof *some_strips; g++) {
            cut c = cut_of(t, some_rows[r], some_strips[g], turn, threads);
            int fits = !waits || c.rows * c.group * XD_SIDE * (int64_t)sizeof(float) <= SUMS_BYTES;
            if (fits && (best.rows == 0 || c.cost < 0.995 * best.cost))
                best = c;
        }
    return best;
}

void xd_tiled_cut(xd_tiled *t, int expands, int threads)
{
    t->of.M = t->of.a->out.d[0];
    t->of.N = t->of.a->w->out;
    t->steps = xd_tiled_steps(t->row_bytes);
    t->deep = xd_tiled_deep(t->row_bytes);
    t->strips = up(t->of.N, XD_SIDE);
    int waits = t->deep < t->steps;
    cut best = best_cut(t, waits, expands ? EXPANDED_TURN : TURN, threads);
    t->rows = best.rows;
    t->blocks = up(t->of.M, t->rows);
    t->group = best.group;
    t->groups = up(t->strips, t->group);
    t->near_bytes = (size_t)(t->deep * XD_PAIR_BYTES);
    t->sum_bytes = waits ? (size_t)(t->rows * t->group * XD_SIDE) * sizeof(float) : 0;
    t->tmp_bytes = t->near_bytes + t->sum_bytes;
    if (expands)
        t->tmp_bytes += (size_t)(t->group * t->deep * XD_PAIR_BYTES);
}
