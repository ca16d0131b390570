/* amx.c - computes attention with AMX tiles: each tile instruction multiplies a 16 x 32 by a 32 x
 * 16 matrix of bf16
 *
 * The words strip, step and part are defined in plan.h: a strip is 32 queries, a step is 32 keys
 * (STEP_KEYS), and a part is 8 steps (PART). A strip of queries is multiplied by one part of the
 * keys at a time. The steps are pipelined: while the scores of a step of 32 keys are multiplied,
 * the scores of the previous step are stored from the tiles, and the scores of the step before that
 * become probabilities. The probabilities of a part (8 steps of keys) stay in the L1 cache until
 * all probabilities of the part are computed. The part's probabilities are then multiplied by the
 * values, 32 columns at a time, with accumulators in tiles. The idea to compute the exponentials of
 * the softmax during matrix multiplies is from Shah et al. 2024 (FlashAttention-3).
 *
 * Unlike in the usual softmax, the row's largest score is not subtracted from the scores, because
 * finding the largest score takes long. The exponents of f32 and bf16 have enough range for the
 * resulting larger or smaller probabilities. By the Cauchy-Schwarz inequality no score of a query
 * exceeds the query's norm times the largest norm of a key. If this bound on the scores fits the
 * exponent of bf16, the probabilities are computed as powers of two without subtracting a score. If
 * the bound is too large, the first score of a row is subtracted from the row's scores, and the
 * results are checked for overflow. A row whose probabilities overflowed is computed again, with
 * its largest score subtracted from its scores. */
#include "backend/cpu/attn/attn.h"
#include "backend/cpu/attn/plan.h"

#include <stdatomic.h>

#include "backend/cpu/amx.h"
#include "backend/cpu/attn/pairs.h"

enum {
    TILES = 1,
    QUADS = 0,
    STRIP = XD_ATTN_STRIP,
    STEP_KEYS = XD_ATTN_STEP_KEYS, /* keys in a step of the pipeline */
    QROWS = STRIP,
    SCORE_WIDTH = 1,      /* number of 512-bit vectors in a row of a packed tile of keys */
    DEEP = 16,            /* 32-bit units (two bf16 each) in a row of a tile */
    TILE = DEEP * LANES,  /* 32-bit units (two bf16 each) in a tile */
    PART = XD_ATTN_PART,  /* key steps in a part; always even */
    L2_BYTES = 768 << 10, /* bytes of keys and values that stay in the L2 cache for all queries */
};

#define ALWAYS_INLINE static inline __attribute__((always_inline))

#define ONES 0x3f803f80u        /* the bits of two bf16 values of 1 */

#include "backend/cpu/attn/floats_tmpl.h"
#include "backend/cpu/attn/powers_tmpl.h"

/* Keeps the compiler from moving tile loads before vector stores. Tile loads read memory that
 * vector stores have written, and the compiler does not know about this dependency. */
static inline void compiler_fence(void)
{
    atomic_signal_fence(memory_order_seq_cst);
}

/* ---- norms of keys ------------------------------------------------------------------------ */

static float *norms_of(const xd_attn_plan *p, const unit *pair)
{
    return (float *)(void *)(pair + p->lengths);
}

/* Stores the largest norm of the n packed keys of key block kb. */
static void store_key_norm(const xd_attn_plan *p, int64_t n, int64_t kb, unit *pair)
{
    const unit *x = pair + kb * p->knext;
    vf          most = v_zero();
    for (int64_t j = 0; j < n; j += LANES, x += LANES * p->kdu)
        most = max_or_nan(sum_of_squares(x, p->kdu), most);
    float all[LANES], longest = 0;
    v_store(all, most);
    for (int64_t j = 0; j < LANES; j++)
        longest = all[j] > longest || all[j] != all[j] ? all[j] : longest;
    norms_of(p, pair)[kb] = sqrtf(longest);
}

/* Returns the largest norm of the first n packed keys of `pair` (a key head of one sample), or NaN
 * if a key has a NaN. */
static float max_key_norm(const xd_attn_plan *p, int64_t n, const unit *pair)
{
    const float *each = norms_of(p, pair);
    float        longest = 0;
    for (int64_t kb = 0; kb * p->keys < n; kb++)
        longest = each[kb] > longest || each[kb] != each[kb] ? each[kb] : longest;
    return longest;
}

/* ---- values ------------------------------------------------------------------------------- */

/* Returns the offset in 32-bit units at which the values of key step j (32 keys), from column c on,
 * begin in the packed data of a key head. The values of a part (8 key steps) are stored in the
 * order in which they are multiplied. For each 32 columns, the values of all steps of the part
 * follow each other, and the two tiles of a step are adjacent. The last group of columns may have
 * 16 columns instead of 32. The packed values of a key head follow all of its packed keys. */
static int64_t values_at(const xd_attn_plan *p, int64_t j, int64_t c)
{
    const int64_t part = j / PART * PART, tiles = xd_min((p->dp - c) / LANES, 2);
    return p->kunits * p->kblocks + part * DEEP * p->dp + c * PART * DEEP +
           (j - part) * tiles * TILE;
}

/* Returns 1 if the packed values have padding columns. The first padding column holds ones, so that
 * the accumulators of this column are the sums of the probabilities. */
static int sums_in_values(const xd_attn_plan *p)
{
    return p->D < p->dp;
}

static void place_values(const job *w, const char **rows, int64_t n, int64_t kb, unit *pair)
{
    const xd_attn_plan *p = &w->p;
    if (!w->a->bias.p)
        store_key_norm(p, n, kb, pair);
    for (int64_t j = 0; j < n; j += STEP_KEYS)
        for (int64_t c = 0; c < p->dp; c += LANES) {
            unit *to = pair + values_at(p, (kb * p->keys + j) / STEP_KEYS, c / 32 * 32) +
                       c / LANES % 2 * TILE;
            pack_values(w, rows + j, xd_min(n - j, STEP_KEYS), c, 1, to);
            for (int64_t u = 0; p->D < c + LANES && u < DEEP && p->D < p->dp; u++)
                to[u * LANES + p->D - c] = ONES;
        }
}

/* ---- probabilities ------------------------------------------------------------------------ */

/* A thread's memory for the scores and probabilities of 32 queries (a strip) and up to 8 steps of
 * 32 keys (a part). The scores of a step are stored from the tiles during the next step, and become
 * probabilities during the step after that. */
enum { MAX_DELAY = 2 };
typedef struct workspace {
    float s[MAX_DELAY][STRIP][STEP_KEYS];    /* scores of the last key steps */
    unit  p[PART][STRIP][DEEP];              /* probabilities of all key steps of a part */
    float bias[MAX_DELAY][STRIP][STEP_KEYS]; /* copies of bias rows that cannot be read in place */
} workspace;
_Static_assert(sizeof(workspace) == XD_ATTN_WORKSPACE * sizeof(float),
               "the plan allocates a workspace");

/* ---- prefetch of rows --------------------------------------------------------------------- */

/* The progress of prefetching the query and output rows of a block, one row at a time, between tile
 * multiplies. A core supports few outstanding memory requests, so many prefetches at once would
 * delay all other loads. */
typedef struct row_prefetch {
    const block *k;
    size_t       out_bytes, query_bytes; /* bytes of an output row; bytes of a query row */
    /* number of rows prefetched so far; number of rows to prefetch in each step of 32 keys */
    int64_t      seen, each;
} row_prefetch;

ALWAYS_INLINE void prefetch_next_row(row_prefetch *x)
{
    if (x->seen < x->k->n)
        prefetch_next_block(x->k, x->seen++, x->out_bytes, x->query_bytes);
}

/* ---- tile multiplies ---------------------------------------------------------------------- */

/* The destination of a tile store that is delayed, so that the accumulators are still in tiles 0 to
 * 3. A tile store waits for the last multiply of the stored tile and delays all later instructions.
 * Therefore each tile store is placed between the tile multiplies of the next step. */
typedef struct pending_store {
    /* destination of the accumulators, or NULL if no store is pending */
    float  *to;
    int64_t row; /* floats from one destination row to the next */
    int     two; /* 1: all four tiles are stored; 0: only tiles 0 and 2 */
} pending_store;

/* Stores or loads tile i of a block of 32 x 32 accumulators at c. */
#define STORE(i, c, ldc) _tile_stored(i, (c) + (i) / 2 * DEEP * (ldc) + (i) % 2 * LANES, (ldc) * 4)
#define LOAD(i, c, ldc) _tile_loadd(i, (c) + (i) / 2 * DEEP * (ldc) + (i) % 2 * LANES, (ldc) * 4)

/* Completes the pending store of accumulator tile i, if there is one, and sets the tile to zero. */
#define ANEW(i)                                                                                    \
    do {                                                                                           \
        if (due->to && ((i) % 2 == 0 || due->two))                                                 \
            STORE(i, due->to, due->row);                                                           \
        _tile_zero(i);                                                                             \
    } while (0)

/* Completes the pending store of accumulator tile i, then loads the tile from the address `from`,
 * or sets the tile to zero if `from` is NULL. */
#define ANEW_FROM(i, from, ldf)                                                                    \
    do {                                                                                           \
        ANEW(i);                                                                                   \
        if (from)                                                                                  \
            LOAD(i, from, ldf);                                                                    \
    } while (0)

/* Adds the product of the rows a[32][..] and the matrix b to the 32 x 32 accumulators in tiles 0 to
 * 3. The two tiles of the matrix b are at b0 and b1. The macro argument `start` is executed before
 * the first multiply of each tile, and the argument `beside` between multiplies. The tiles of b are
 * loaded with the streaming hint, to keep the L1 cache for data that is written. */
#define MULTIPLY(a, a_row, b0, b1, start, beside)                                                  \
    _tile_stream_loadd(6, b0, DEEP * 4);                                                           \
    _tile_loadd(4, a, a_row);                                                                      \
    start(0);                                                                                      \
    _tile_dpbf16ps(0, 4, 6);                                                                       \
    beside                                                                                         \
    _tile_stream_loadd(7, b1, DEEP * 4);                                                           \
    start(1);                                                                                      \
    _tile_dpbf16ps(1, 4, 7);                                                                       \
    beside                                                                                         \
    _tile_loadd(5, (a) + DEEP * (a_row) / 4, a_row);                                               \
    start(2);                                                                                      \
    _tile_dpbf16ps(2, 5, 6);                                                                       \
    beside                                                                                         \
    start(3);                                                                                      \
    _tile_dpbf16ps(3, 5, 7);                                                                       \
    beside

#define GO_ON(i) (void)0

/* Adds products like the macro MULTIPLY, but for a matrix b of only 16 columns, whose accumulators
 * are in tiles 0 and 2. */
#define MULTIPLY_HALF(a, b, start)                                                                 \
    _tile_stream_loadd(6, b, DEEP * 4);                                                            \
    _tile_loadd(4, a, DEEP * 4);                                                                   \
    start(0);                                                                                      \
    _tile_dpbf16ps(0, 4, 6);                                                                       \
    _tile_loadd(5, (a) + TILE, DEEP * 4);                                                          \
    start(2);                                                                                      \
    _tile_dpbf16ps(2, 5, 6);

ALWAYS_INLINE void store_right_tiles(const pending_store *due)
{
    if (!due->to || !due->two)
        return;
    STORE(1, due->to, due->row);
    STORE(3, due->to, due->row);
}

static void store_sums(pending_store *due)
{
    store_right_tiles(due);
    if (due->to) {
        STORE(0, due->to, due->row);
        STORE(2, due->to, due->row);
    }
    due->to = NULL;
}

/* Multiplies the queries q[32][..] by the 32 keys of a step. The scores stay in tiles. If `some` is
 * 1, the complete softmax `soft` of an earlier step is computed between the multiplies. */
ALWAYS_INLINE void multiply_scores(const unit *q, const unit *keys, int64_t deep,
                                   const pending_store *due, int some, softmax_state soft,
                                   row_prefetch *rows_ahead, curve *k, how h)
{
    const int64_t each = (STRIP / 4 + deep - 1) / deep;
    int64_t       row = 0;
#define SOFTMAX                                                                                    \
    if (some)                                                                                      \
        row = softmax_rows(&soft, row, each, k, h);
    MULTIPLY(q, deep * DEEP * 4, keys, keys + deep * TILE, ANEW, SOFTMAX)
    prefetch_next_row(rows_ahead);
    _Pragma("GCC unroll 4") for (int64_t i = 1; i < deep; i++)
    {
        q += DEEP;
        keys += TILE;
        MULTIPLY(q, deep * DEEP * 4, keys, keys + deep * TILE, GO_ON, SOFTMAX)
        if (rows_ahead->each > i)
            prefetch_next_row(rows_ahead);
    }
#undef SOFTMAX
}

/* Sums each of the 32 rows of the probabilities p, and adds the sum to each of the row's LANES
 * floats in sum[32][LANES]. */
static void sum_probabilities(const unit *p, int64_t steps, float *sum, pending_store *due)
{
    static const unit ones[LANES] = { ONES, ONES, ONES, ONES, ONES, ONES, ONES, ONES,
                                      ONES, ONES, ONES, ONES, ONES, ONES, ONES, ONES };
#define FROM_SUM(i) if (a == p) ANEW_FROM(i, sum, LANES)
    store_right_tiles(due);
    _tile_loadd(6, ones, 0);
    for (const unit *a = p; a < p + steps * 2 * TILE; a += 2 * TILE) {
        _tile_loadd(4, a, DEEP * 4);
        FROM_SUM(0);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, a + TILE, DEEP * 4);
        FROM_SUM(2);
        _tile_dpbf16ps(2, 5, 6);
    }
#undef FROM_SUM
    *due = (pending_store){ sum, LANES, 0 };
}

/* Multiplies the probabilities p of `steps` key steps by the values v, and adds the product to the
 * accumulators o[32][dp], or overwrites the accumulators if `begun` is 0. The softmax of the last
 * `delay` (at most two) key steps is computed between the multiplies. */
ALWAYS_INLINE void sum_values(const unit *p, const unit *v, float *o, int64_t dp, int64_t steps,
                              int begun, pending_store *due, int64_t delay, softmax_state first,
                              softmax_state second, row_prefetch *rows_ahead, curve *k, how h)
{
    const int64_t each = delay ? (delay * STRIP + steps - 2) / (steps - 1) : 0;
    int64_t       row = (MAX_DELAY - delay) * STRIP;
    for (int64_t c = 0; c < dp; c += 2 * LANES, v += 2 * PART * TILE) {
        const int    two = c + LANES < dp;
        const float *from = begun ? o + c : NULL;
#define FROM_O(i) ANEW_FROM(i, from, dp)
        if (!two)
            store_right_tiles(due);
        for (int64_t t = 0; t < steps; t++) {
            const unit *a = p + t * 2 * TILE, *b = v + t * (two ? 2 : 1) * TILE;
            if (two && t == 0) {
                MULTIPLY(a, DEEP * 4, b, b + TILE, FROM_O, ;)
            } else if (two) {
                MULTIPLY(a, DEEP * 4, b, b + TILE, GO_ON, ;)
            } else if (t == 0) {
                MULTIPLY_HALF(a, b, FROM_O)
            } else {
                MULTIPLY_HALF(a, b, GO_ON)
            }
            if (rows_ahead->each * 2 * LANES > c)
                prefetch_next_row(rows_ahead);
            if (row < MAX_DELAY * STRIP) {
                const int64_t end = row + each;
                if (row < STRIP)
                    row = softmax_rows(&first, row, each, k, h);
                if (row < end && row >= STRIP)
                    row = softmax_rows(&second, row - STRIP, end - row, k, h) + STRIP;
                compiler_fence();
            }
        }
#undef FROM_O
        *due = (pending_store){ o + c, dp, two };
    }
}

/* ---- strips ------------------------------------------------------------------------------- */

/* A part of the attention's work: a strip (up to 32 queries of a block) and at most PART steps of
 * 32 keys. */
typedef struct part {
    /* first query of the strip, counted in the block; number of queries */
    int64_t i, rows;
    /* first key step of the part, counted over all keys; number of key steps */
    int64_t step, steps;
    int     begun; /* 1: the accumulators `o` already hold sums of earlier keys */
} part;

typedef struct strips {
    const job   *w;
    block       *k;
    const unit  *packed;
    int64_t      row, rows;  /* queries [row, rows) of the block are computed */
    int64_t      first, end; /* key steps [first, end) are computed */
    workspace   *d;
    int          scaled;  /* 1: scores are scaled before the bias is added */
    int          touched; /* 1: scores are scaled, or some scores are masked */
    /* kind of each strip of 32 queries: BOUNDED, WATCHED or CLAMPED */
    uint8_t      kind[XD_ATTN_TILE_ROWS / STRIP];
    /* for each strip of 32 queries: 1 if some powers of two overflowed, which is possible only if
     * the strip's scores are not clamped (kind WATCHED) */
    uint8_t      missed[XD_ATTN_TILE_ROWS / STRIP];
    float        c; /* factor that converts scores to exponents of two */
    row_prefetch rows_ahead;
} strips;

/* Returns the part of the work (up to 8 key steps) that starts at key step `step`, for the strip of
 * 32 queries from query i on. A strip is multiplied part by part by the keys and values that fit
 * into the L2 cache, while the strip's queries and accumulators are in the L1 cache. After that,
 * the next strip of queries is multiplied by the same keys and values. */
static part first_part(const strips *a, int64_t i, int64_t step)
{
    part x = { .i = i, .rows = xd_min(a->rows - i, STRIP), .step = step, .begun = step > a->first };
    x.steps = xd_min(a->end - step, PART - step % PART);
    return x;
}

static part next_part(const strips *a, const part *x)
{
    const xd_attn_plan *p = &a->w->p;
    const int64_t       fit = L2_BYTES / (8 * PART * (p->kunits + p->vunits) / 4) * PART,
                        run = fit > PART ? fit : PART;
    const int64_t       next = x->step + x->steps, begin = x->step / run * run;
    if (next < a->end && next % run)
        return first_part(a, x->i, next);
    if (x->i + STRIP < a->rows)
        return first_part(a, x->i + STRIP, begin > a->first ? begin : a->first);
    return first_part(a, a->row, next);
}

static const unit *keys_of(const strips *a, int64_t step)
{
    return a->packed + step * STEP_KEYS * a->w->p.ldq;
}

/* Sets the reference score of row i, which is subtracted from the row's scores before the softmax.
 * The reference score is rounded to fixed point in advance, so that each score is rounded only
 * once. */
static void set_top(const block *k, int64_t i, float top)
{
    k->top[i] = nearbyintf(top * ONE) / ONE;
    k->sum[i] = top == -INFINITY ? 0 : BASE + BIAS - nearbyintf(top * ONE);
}

/* Sets soft->bias to the attention bias of the query rows of part x for the 32 keys of step j.
 * `own` is memory for a copy of the bias. */
static void find_bias(const strips *a, const part *x, int64_t j, float own[STRIP][STEP_KEYS],
                      softmax_state *soft)
{
    const int64_t    n = xd_min(a->k->keys - j * STEP_KEYS, STEP_KEYS);
    const xd_tensor *t = &a->w->a->bias;
    const int64_t    at = a->k->h * t->s[0] + (a->k->i0 + x->i) * t->s[1] + j * STEP_KEYS * t->s[2];
    const float     *bias = (const float *)t->p + at;
    soft->bias = bias;
    soft->bias_step = t->s[1];
    if (t->s[2] == 1 && n == STEP_KEYS && x->rows == STRIP)
        return;
    memset(own, 0, sizeof(float[STRIP][STEP_KEYS]));
    for (int64_t r = 0; r < x->rows; r++)
        if (t->s[2] == 1)
            memcpy(own[r], bias + r * t->s[1], (size_t)n * sizeof(float));
        else
            for (int64_t i = 0; i < n; i++)
                own[r][i] = bias[r * t->s[1] + i * t->s[2]];
    soft->bias = own[0];
    soft->bias_step = STEP_KEYS;
}

/* Returns the largest of the first n scores of a row, converted to an exponent of two. */
static float max_score(const softmax_state *soft, int64_t r, float c, int64_t n)
{
    const float *s = soft->s + r * STEP_KEYS,
                *bias = soft->bias ? soft->bias + r * soft->bias_step : NULL;
    float top = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        float y = c * s[i] + (bias ? log2e * bias[i] : 0);
        top = y > top || y != y ? y : top;
    }
    return top;
}

static int lacks_reference(const strips *a, const part *x)
{
    int some = 0;
    for (int64_t i = x->i; i < x->i + x->rows; i++)
        some |= a->k->top[i] == -INFINITY;
    return some;
}

/* Scales and masks the scores of key step j, and sets the reference scores of rows that have none
 * yet. The reference score of a row becomes the row's first score or, if the first score is
 * -infinity or NaN, the row's largest score. A row that attends to no key yet has the reference
 * score -infinity. */
static void prepare_scores(const strips *a, const part *x, int64_t j, const softmax_state *soft)
{
    const job    *w = a->w;
    const block  *k = a->k;
    const int64_t n = xd_min(k->keys - j * STEP_KEYS, STEP_KEYS);
    for (int64_t r = 0, i = x->i; r < x->rows; r++, i++) {
        float *s = soft->s + r * STEP_KEYS;
        for (int64_t c = 0; a->scaled && c < STEP_KEYS; c++)
            s[c] *= w->a->scale * log2e;
        mask_hidden(w, k, i, s, j * STEP_KEYS, n);
        if (k->top[i] != -INFINITY)
            continue;
        float top = max_score(soft, r, a->c, 1);
        set_top(k, i, top > -INFINITY ? top : max_score(soft, r, a->c, STEP_KEYS));
    }
}

/* Replaces scores of -infinity by finite scores whose power of two is 0. This includes the scores
 * of rows that only pad the strip to 32 queries. */
static void clamp_infinite(const strips *a, const part *x, float *s)
{
    for (int64_t r = 0; r < STRIP; r++) {
        const float top = a->k->top[x->i + r];
        const vf    least = v_set(top == -INFINITY ? 0 : (top + LEAST) / a->c);
        for (int64_t j = 0; j < STEP_KEYS; j += LANES)
            v_store(s + r * STEP_KEYS + j, v_max(v_load(s + r * STEP_KEYS + j), least));
    }
}

/* Returns 1 if some scores of key step t of part x may be -infinity. */
static int has_hidden_scores(const strips *a, const part *x, int64_t t)
{
    return a->touched || (x->step + t + 1) * STEP_KEYS > a->k->keys;
}

/* Prepares the softmax of key step t of part x. The scores of this step must already be stored from
 * the tiles, unless all reference scores are set and no score is masked. Returns 1 if some query
 * rows still have no reference score. */
ALWAYS_INLINE int prepare_softmax(const strips *a, const part *x, int64_t t, int lacks,
                                  softmax_state *soft, how h)
{
    const int64_t j = x->step + t;
    *soft = (softmax_state){ .s = a->d->s[t % MAX_DELAY][0],
                             .p = a->d->p[t][0],
                             .low = a->k->sum + x->i };
    if (h.biased)
        find_bias(a, x, j, a->d->bias[t % MAX_DELAY], soft);
    if (!lacks && !has_hidden_scores(a, x, t))
        return 0;
    prepare_scores(a, x, j, soft);
    if (h.kind != CLAMPED)
        clamp_infinite(a, x, soft->s);
    return lacks_reference(a, x);
}

/* Returns the delay of the softmax, which is the number of key steps between the multiplication of
 * a step's scores and the softmax of these scores. In a part with few key steps the scores are
 * stored at once, because the softmax of two steps would not fit between the multiplies of the
 * part's values. */
static int64_t softmax_delay(const part *x)
{
    return x->steps > 4 ? MAX_DELAY : 1;
}

/* Computes the scores of all key steps of a part. The multiplies of each step are interleaved with
 * the softmax of an earlier step. Returns in `last` the softmax states of the last steps, whose
 * probabilities are not computed yet. */
ALWAYS_INLINE void score_part(strips *a, const part *x, pending_store *due, int64_t deep,
                              softmax_state last[MAX_DELAY], how h)
{
    const unit   *q = a->k->q + x->i * deep * DEEP;
    curve         k = curve_of(a->c, h);
    const int64_t n = x->steps, delay = softmax_delay(x);
    softmax_state soft[MAX_DELAY] = { { .s = NULL } };
    int           lacks = h.kind != BOUNDED && lacks_reference(a, x);
    for (int64_t t = 0; t < n; t++) {
        const unit *keys = keys_of(a, x->step + t);
        compiler_fence();
        if (t >= delay)
            multiply_scores(q, keys, deep, due, 1, soft[(t - delay) % MAX_DELAY], &a->rows_ahead,
                            &k, h);
        else
            multiply_scores(q, keys, deep, due, 0, soft[0], &a->rows_ahead, &k, h);
        compiler_fence();
        if (delay > 1 && t > 0)
            lacks = prepare_softmax(a, x, t - 1, lacks, &soft[(t - 1) % MAX_DELAY], h);
        *due = (pending_store){ a->d->s[t % MAX_DELAY][0], STEP_KEYS, 1 };
        if (delay > 1 && (t < n - 1 || (!lacks && !has_hidden_scores(a, x, t))))
            continue;
        store_sums(due);
        if (delay == 1)
            lacks = prepare_softmax(a, x, t, lacks, &soft[t % MAX_DELAY], h);
    }
    if (delay > 1)
        prepare_softmax(a, x, n - 1, lacks, &soft[(n - 1) % MAX_DELAY], h);
    last[0] = soft[n % MAX_DELAY];
    last[1] = soft[(n - 1) % MAX_DELAY];
    if (h.kind == WATCHED)
        a->missed[x->i / STRIP] |= !all_in_range(&k);
}

ALWAYS_INLINE void attend_part(strips *a, const part *x, pending_store *due, how h)
{
    const xd_attn_plan *p = &a->w->p;
    curve               k = curve_of(a->c, h);
    const int64_t       deep = p->ldq / DEEP;
    softmax_state       last[MAX_DELAY];
    switch (deep) {
    case 1: score_part(a, x, due, 1, last, h); break;
    case 2: score_part(a, x, due, 2, last, h); break;
    case 3: score_part(a, x, due, 3, last, h); break;
    case 4: score_part(a, x, due, 4, last, h); break;
    default: score_part(a, x, due, deep, last, h);
    }
    if (x->steps == 1)
        softmax_rows(&last[1], 0, STRIP, &k, h);
    compiler_fence();
    sum_values(a->d->p[0][0], a->packed + values_at(p, x->step, 0), a->k->o + x->i * p->dp, p->dp,
               x->steps, x->begun, due, x->steps > 1 ? softmax_delay(x) : 0, last[0], last[1],
               &a->rows_ahead, &k, h);
    if (h.kind == WATCHED)
        a->missed[x->i / STRIP] |= !all_in_range(&k);
    if (h.summed)
        sum_probabilities(a->d->p[0][0], x->steps, a->k->lane_max + x->i * LANES, due);
    compiler_fence();
}

/* Returns 1 if the probabilities of the strip of queries at query i are summed by tile multiplies
 * of their own, and not by a column of ones in the packed values. For clamped scores the result is
 * always 1, so that fewer variants of the code are needed. */
static int sums_separately(const strips *a, int64_t i)
{
    return a->kind[i / STRIP] == CLAMPED || !sums_in_values(&a->w->p);
}

/* Defines a variant of the function attend_part, which computes a part of the attention. The
 * variants are not inlined, because the compiler keeps constants in registers only in functions
 * with few loops. */
#define PART_OF(name, ...)                                                                         \
    static __attribute__((noinline)) void name(strips *a, const part *x, pending_store *due)       \
    {                                                                                              \
        attend_part(a, x, due, (how){ __VA_ARGS__ });                                              \
    }
PART_OF(part_biased, 1, CLAMPED, 1)
PART_OF(part_clamped, 0, CLAMPED, 1)
PART_OF(part_watched, 0, WATCHED, 0)
PART_OF(part_watched_summed, 0, WATCHED, 1)
PART_OF(part_bounded, 0, BOUNDED, 0)
PART_OF(part_bounded_summed, 0, BOUNDED, 1)

static void attend_parts(strips *a)
{
    pending_store due = { .to = NULL };
    for (part x = first_part(a, a->row, a->first); x.steps > 0; x = next_part(a, &x)) {
        const int kind = a->kind[x.i / STRIP], summed = sums_separately(a, x.i);
        if (a->w->a->bias.p)
            part_biased(a, &x, &due);
        else if (kind == CLAMPED)
            part_clamped(a, &x, &due);
        else if (kind == WATCHED)
            (summed ? part_watched_summed : part_watched)(a, &x, &due);
        else
            (summed ? part_bounded_summed : part_bounded)(a, &x, &due);
    }
    store_sums(&due);
    compiler_fence();
}

/* Sets the sums of probabilities to zero, also the sums of rows that only pad the last strip to 32
 * queries. */
static void clear_sums(const strips *a)
{
    for (int64_t i = a->row; i < (a->rows + STRIP - 1) / STRIP * STRIP; i++)
        v_store(a->k->lane_max + i * LANES, v_zero());
}

/* Returns 1 if the query row attends to keys, but the sum of its probabilities is too large, too
 * small or NaN. */
static int is_unreliable(const block *k, int64_t i)
{
    return !(k->l[i] <= LIFT) || (k->l[i] < 1 / LIFT && k->top[i] != -INFINITY);
}

/* Stores the sum of the probabilities of each query row in k->l. Returns 1 if some sums are too
 * large, too small or NaN. */
static int collect_sums(const strips *a)
{
    const xd_attn_plan *p = &a->w->p;
    const block        *k = a->k;
    int                 bad = 0;
    for (int64_t i = a->row; i < a->rows; i++) {
        k->l[i] = sums_separately(a, i) ? k->lane_max[i * LANES] : k->o[i * p->dp + p->D];
        bad |= is_unreliable(k, i);
    }
    return bad;
}

/* Computes the scores of the strip of queries at query i with the 32 keys of step j, ready for the
 * softmax. */
static softmax_state scores_of(strips *a, int64_t i, int64_t j)
{
    const int64_t ldq = a->w->p.ldq;
    const part    x = first_part(a, i, j);
    softmax_state soft = { .s = a->d->s[0][0] };
    pending_store due = { .to = NULL };
    compiler_fence();
    multiply_scores(a->k->q + i * ldq, keys_of(a, j), ldq / DEEP, &due, 0, soft, &a->rows_ahead,
                    NULL, (how){ 0, 0, 0 });
    due = (pending_store){ soft.s, STEP_KEYS, 1 };
    store_sums(&due);
    compiler_fence();
    if (a->w->a->bias.p)
        find_bias(a, &x, j, a->d->bias[0], &soft);
    prepare_scores(a, &x, j, &soft);
    return soft;
}

/* Computes a strip of queries again. In each row with an unreliable sum, the row's largest score is
 * subtracted from the scores before the softmax is computed again. */
static void attend_again(strips a)
{
    const int64_t i = a.row;
    float         top[STRIP];
    int           again[STRIP];
    for (int64_t r = 0; r < a.rows - i; r++) {
        again[r] = is_unreliable(a.k, i + r);
        top[r] = -INFINITY;
    }
    for (int64_t j = a.first; j < a.end; j++) {
        const softmax_state soft = scores_of(&a, i, j);
        for (int64_t r = 0; r < a.rows - i; r++) {
            float y = again[r] ? max_score(&soft, r, a.c, STEP_KEYS) : 0;
            top[r] = y > top[r] || y != y ? y : top[r];
        }
    }
    for (int64_t r = 0; r < a.rows - i; r++)
        if (again[r])
            set_top(a.k, i + r, top[r]);
    a.kind[i / STRIP] = CLAMPED;
    clear_sums(&a);
    attend_parts(&a);
    collect_sums(&a);
}

static float norm_of_row(const strips *a, int64_t i)
{
    const int64_t ldq = a->w->p.ldq;
    return sqrtf(v_hadd(sum_of_squares(a->k->q + i * ldq, ldq / LANES)));
}

/* Sets the reference score of a row of the strip of queries at query i to 0 if all scores of the
 * row are certain to be below BOUND, so that their powers of two fit bf16. All other rows of the
 * strip get no reference score here. The scores of a row are bounded by the norm of the query row
 * times `most`. A coarser bound, which is computed once for all rows of the strip, is tried first
 * and often suffices. */
static void set_references(strips *a, int64_t i, float most)
{
    const int64_t ldq = a->w->p.ldq;
    vf            all = v_zero();
    for (int64_t r = i; r < i + STRIP; r++)
        all = max_or_nan(sum_of_squares(a->k->q + r * ldq, ldq / LANES), all);
    float     y = most * sqrtf(v_hadd(all));
    const int sure = y < BOUND;
    for (int64_t r = i; r < i + STRIP; r++) {
        const float z = sure ? 0 : most * norm_of_row(a, r);
        set_top(a->k, r, z < BOUND ? 0 : -INFINITY);
        y = r == i || z > y || z != z ? z : y;
    }
    a->kind[i / STRIP] = y < BOUND ? BOUNDED : y < FAR ? WATCHED : CLAMPED;
}

static void clear_references(strips *a, int64_t i)
{
    for (int64_t r = i; r < i + STRIP; r++)
        set_top(a->k, r, -INFINITY);
    a->kind[i / STRIP] = CLAMPED;
}

static void set_all_references(strips *a)
{
    const int   none = a->scaled || a->w->a->bias.p;
    const float most = none ? 0 : a->c * max_key_norm(&a->w->p, a->k->keys, a->packed);
    for (int64_t i = 0; i < a->k->n; i += STRIP)
        if (none)
            clear_references(a, i);
        else
            set_references(a, i, most);
}

/* Computes a strip of queries again with clamped scores, because some powers of two of its scores
 * overflowed without clamping (kind WATCHED). */
static void attend_clamped(strips *a)
{
    a->kind[a->row / STRIP] = CLAMPED;
    clear_sums(a);
    attend_parts(a);
}

static void attend_keys(const job *w, block *k, int64_t first, int64_t end, const unit *packed)
{
    strips a = { .w = w,
                 .k = k,
                 .packed = packed,
                 .rows = k->n,
                 .first = 2 * first,
                 .end = xd_min(2 * end, (k->keys + STEP_KEYS - 1) / STEP_KEYS),
                 .d = (workspace *)(void *)k->s,
                 .scaled = !(w->a->scale * log2e > 1e-20f) };
    a.c = a.scaled ? 1 : w->a->scale * log2e;
    a.touched = a.scaled || w->a->window || w->a->causal;
    k->begun = a.end > a.first;
    for (int64_t i = 0; i < k->n; i++) {
        k->l[i] = 0;
        k->top[i] = -INFINITY;
    }
    if (!k->begun)
        return;
    a.rows_ahead =
        (row_prefetch){ .k = k,
                        .out_bytes = (size_t)w->p.D * xd_dtype_size(w->a->out.type),
                        .query_bytes = (size_t)w->p.D * sizeof(uint16_t),
                        .each = (STRIP + 2 * (a.end - a.first) - 1) / (2 * (a.end - a.first)) };
    set_all_references(&a);
    clear_sums(&a);
    xd_tiles_begin();
    attend_parts(&a);
    while (a.rows_ahead.seen < k->n)
        prefetch_next_row(&a.rows_ahead);
    for (a.rows = 0; a.rows < k->n;) {
        a.row = a.rows;
        a.rows = xd_min(k->n, a.row + STRIP);
        if (a.missed[a.row / STRIP])
            attend_clamped(&a);
        if (collect_sums(&a))
            attend_again(a);
    }
    xd_tiles_end();
}

/* Returns 1 if this attention can be computed with AMX tiles. The tile pipeline does not support a
 * soft cap, which would be applied to the scores before the softmax. */
static int takes_tiles(const xd_attn_args *a)
{
    return a->q.type == XD_BF16 && !(a->softcap > 0);
}

size_t xd_attn_scratch_amx(const xd_attn_args *a, int threads)
{
    return takes_tiles(a) ? flash_scratch(a, threads) : xd_attn_scratch_avx512bf16(a, threads);
}

xd_status xd_attn_amx(const xd_attn_args *a, void *tmp)
{
    return takes_tiles(a) ? flash_attn(a, tmp) : xd_attn_avx512bf16(a, tmp);
}
