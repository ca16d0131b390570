/* wide_tiles_tmpl.h - defines AVX-512 register tiles (tile_tmpl.h) for attention scores that are
 * sums of floats.
 *
 * The including file first includes plan.h and defines everything that tile_tmpl.h requires, except
 * softmax_state, softmax_next and LDS. */
#ifndef XD_BACKEND_CPU_ATTN_WIDE_TILES_TMPL_H
#define XD_BACKEND_CPU_ATTN_WIDE_TILES_TMPL_H

enum { QUADS = 0, LDS = XD_ATTN_LDS };

#include "backend/cpu/attn/float_softmax_tmpl.h"
#include "backend/cpu/attn/wide_sums_tmpl.h"

SCORE_TILE(score1, 6, 1, 0)
SCORE_TILE(score2, 6, 2, 0)
SCORE_TILE(score3, 6, 3, 0)
SCORE_TILE(score4, 6, 4, 0)
SCORE_TILE(score2h, 6, 1, 1)
SCORE_TILE(score3h, 6, 2, 1)
SCORE_TILE(score4h, 6, 3, 1)

static score_fn *const SCORE_TILES[2][5] = { { 0, score1, score2, score3, score4 },
                                             { 0, score1, score2h, score3h, score4h } };

#endif
