/* avx2.c - computes attention by AVX2 and FMA instructions. BF16 operands are converted to f32 when
 * they are packed. */
#include "backend/cpu/attn/attn.h"
#include "backend/cpu/attn/narrow.h"
#include "backend/cpu/attn/plan.h"

enum {
    PAIRS = 0,
    TILES = 0,
    QUADS = 0,
    QROWS = 6,
    SCORE_WIDTH = 2,
    HALVES = 0,
    LDS = XD_ATTN_LDS,
    STEP_KEYS = 2 * LANES
};

typedef float  unit;
typedef __m256 vu, vh, vuh;

/* clang-format off */
static inline vu v_units(const unit *p) { return _mm256_loadu_ps(p); }
static inline void v_put_units(unit *p, vu x) { _mm256_storeu_ps(p, x); }
static inline vu v_spread(const unit *p) { return _mm256_broadcast_ss(p); }
static inline vf v_dot(vf acc, vu x, vu y) { return _mm256_fmadd_ps(x, y, acc); }
/* clang-format on */

/* The functions for half vectors are never called, because HALVES is 0: on AVX2, half a vector
 * takes as long as a full vector. */
/* clang-format off */
static inline vh v_zero_half(void) { return v_zero(); }
static inline vh v_load_half(const float *p) { return v_load(p); }
static inline void v_store_half(float *p, vh x) { v_store(p, x); }
static inline vf v_wide(vh x) { return x; }
static inline vh v_add_half(vh x, vh y) { return v_add(x, y); }
static inline vuh v_units_half(const unit *p) { return v_units(p); }
static inline vh v_dot_half(vh acc, vu x, vuh y) { return v_dot(acc, x, y); }
/* clang-format on */

static inline void put_probs(float *to, vf x, vf y)
{
    v_store(to, x);
    v_store(to + LANES, y);
}

#include "backend/cpu/attn/float_softmax_tmpl.h"
#include "backend/cpu/attn/tile_tmpl.h"

SCORE_TILE(score1, 6, 1, 0)
SCORE_TILE(score2, 6, 2, 0)
SUM_TILE(sum1, 12, 1, 0)
SUM_TILE(sum2, 6, 2, 0)
SUM_TILE(sum3, 4, 3, 0)
SOFT_TILE(soft1, 8, 1, 0, 1)
SOFT_TILE(soft2, 4, 2, 0, 2)
SOFT_TILE(soft3, 3, 3, 0, 2)

static score_fn *const SCORE_TILES[1][3] = { { 0, score1, score2 } };
static sum_fn *const   SUM_TILES[1][4] = { { 0, sum1, sum2, sum3 } };
static const int64_t   SUM_ROWS[] = { 0, 12, 6, 4 };
static soft_fn *const  SOFT_TILES[1][4] = { { 0, soft1, soft2, soft3 } };
static const int64_t   SOFT_ROWS[] = { 0, 8, 4, 3 };

static inline int64_t sum_width(int64_t left)
{
    return left == 1 ? 1 : left % 2 ? 3 : 2;
}

static inline void transpose(vu v[8])
{
    transpose_floats(v);
}

static inline vu get_units(const char *row, xd_dtype type, int64_t u, int64_t D)
{
    return float_row(row, type, u, D);
}

static inline vu get_values(const char *row, const char *next, xd_dtype type, int64_t c, int64_t D)
{
    (void)next;
    return get_units(row, type, c, D);
}

#include "backend/cpu/attn/vector_tmpl.h"

size_t xd_attn_scratch_avx2(const xd_attn_args *a, int threads)
{
    return flash_scratch(a, threads);
}

xd_status xd_attn_avx2(const xd_attn_args *a, void *tmp)
{
    return flash_attn(a, tmp);
}
