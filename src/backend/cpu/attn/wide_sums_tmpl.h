/* wide_sums_tmpl.h - defines AVX-512 register tiles for sums of values, in the sizes that 32
 * registers hold.
 *
 * The including file defines the types and functions that tile_tmpl.h requires. */
#ifndef XD_BACKEND_CPU_ATTN_WIDE_SUMS_TMPL_H
#define XD_BACKEND_CPU_ATTN_WIDE_SUMS_TMPL_H

#include "backend/cpu/attn/tile_tmpl.h"

enum { QROWS = 6, SCORE_WIDTH = 4, HALVES = 1, TILES = 0, STEP_KEYS = 2 * LANES };

/* Returns the width in vectors of the next register tile of value sums if `left` vectors remain.
 * For example, a head_dim of 72 uses one tile of five vectors, and a head_dim of 88 uses two tiles
 * of three vectors. */
static inline int64_t sum_width(int64_t left)
{
    return left == 4 || left > 6 ? 4 : left == 6 ? 3 : left;
}

SUM_TILE(sum1, 12, 1, 0)
SUM_TILE(sum2, 12, 2, 0)
SUM_TILE(sum3, 8, 3, 0)
SUM_TILE(sum4, 6, 4, 0)
SUM_TILE(sum5, 4, 5, 0)
SUM_TILE(sum2h, 12, 1, 1)
SUM_TILE(sum3h, 8, 2, 1)
SUM_TILE(sum4h, 6, 3, 1)
SUM_TILE(sum5h, 4, 4, 1)
SOFT_TILE(soft1, 12, 1, 0, 1)
SOFT_TILE(soft2, 8, 2, 0, 2)
SOFT_TILE(soft3, 6, 3, 0, 2)
SOFT_TILE(soft4, 4, 4, 0, 4)
SOFT_TILE(soft5, 4, 5, 0, 4)
SOFT_TILE(soft2h, 8, 1, 1, 2)
SOFT_TILE(soft3h, 6, 2, 1, 2)
SOFT_TILE(soft4h, 4, 3, 1, 4)
SOFT_TILE(soft5h, 4, 4, 1, 4)

static sum_fn *const  SUM_TILES[2][6] = { { 0, sum1, sum2, sum3, sum4, sum5 },
                                          { 0, sum1, sum2h, sum3h, sum4h, sum5h } };
static const int64_t  SUM_ROWS[] = { 0, 12, 12, 8, 6, 4 };
static soft_fn *const SOFT_TILES[2][6] = { { 0, soft1, soft2, soft3, soft4, soft5 },
                                           { 0, soft1, soft2h, soft3h, soft4h, soft5h } };
static const int64_t  SOFT_ROWS[] = { 0, 12, 8, 6, 4, 4 };

#endif
