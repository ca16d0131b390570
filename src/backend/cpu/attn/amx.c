/* amx.c - attention with AMX tiles: multiplies of 16 x 32 by 32 x 16 bf16.
 *
 * A strip of 32 queries is multiplied with a part of the keys, PART steps of TURN (32) keys. The
 * work is pipelined: while the scores of a step are multiplied, those of the step before are stored
 * from the tiles and those two steps before become probabilities. Probabilities stay in the L1
 * cache until the part ends and are then multiplied by the values, 32 columns at a time, with the
 * sums in tiles. Computing exponentials during multiplies is the idea of Shah et al. 2024,
 * FlashAttention-3.
 *
 * Probabilities are not relative to a row's largest score, which would take long to find: floats
 * and bf16 have room for larger and smaller values. By the Cauchy-Schwarz inequality no score of a
 * query exceeds its norm times that of the longest key. Where this bound fits the exponent of bf16,
 * probabilities are powers of two of the scores themselves. Elsewhere they are relative to the
 * first score of the row, and the results are checked for overflow. Rows that overflowed are
 * computed again, relative to their largest score. */
#include "backend/cpu/attn/attn.h"
#include "backend/cpu/attn/plan.h"

#include <stdatomic.h>

#include "backend/cpu/amx.h"
#include "backend/cpu/attn/pairs.h"

enum {
    TILES = 1,
    STRIP = XD_ATTN_STRIP,
    TURN = XD_ATTN_TURN,        /* keys of a step                                             */
    QROWS = STRIP,
    SCORE_WIDTH = 1,            /* vectors of a packed tile                                   */
    DEEP = 16,                  /* units of a tile row                                        */
    TILE = DEEP * LANES,        /* units of a tile                                            */
    PART = XD_ATTN_PART,        /* steps of a part, even                                       */
    NEAR = 768 << 10,           /* bytes of keys and values that strips share in L2            */
};

#define ALWAYS_INLINE static inline __attribute__((always_inline))

#define ONES 0x3f803f80u        /* two bf16 ones                                               */

#include "backend/cpu/attn/flash_tmpl.h"
#include "backend/cpu/attn/powers_tmpl.h"

/* Compiler fence: tile loads read what vector stores wrote, which the compiler does not model. */
static inline void fence(void)
{
    atomic_signal_fence(memory_order_seq_cst);
}

/* ---- norms of keys ------------------------------------------------------------------------ */

static float *lengths_of(const xd_attn_plan *p, const unit *pair)
{
    return (float *)(void *)(pair + p->lengths);
}

/* Stores the norm of the longest of the n packed keys of block kb. */
static void measure_keys(const xd_attn_plan *p, int64_t n, int64_t kb, unit *pair)
{
    const unit *x = pair + kb * p->knext;
    vf          most = v_zero();
    for (int64_t j = 0; j < n; j += LANES, x += LANES * p->kdu)
        most = larger(squares(x, p->kdu), most);
    float all[LANES], longest = 0;
    v_store(all, most);
    for (int64_t j = 0; j < LANES; j++)
        longest = all[j] > longest || all[j] != all[j] ? all[j] : longest;
    lengths_of(p, pair)[kb] = sqrtf(longest);
}

/* The norm of the longest of n keys; NaN if a key has a NaN. */
static float longest_key(const xd_attn_plan *p, int64_t n, const unit *pair)
{
    const float *each = lengths_of(p, pair);
    float        longest = 0;
    for (int64_t kb = 0; kb * p->keys < n; kb++)
        longest = each[kb] > longest || each[kb] != each[kb] ? each[kb] : longest;
    return longest;
}

/* ---- values ------------------------------------------------------------------------------- */

/* The offset of values in the packed pair. The values of a part are in the order of multiplication:
 * 32 columns of all its steps, the two tiles of a step adjacent, then the next 32 columns; the last
 * may be 16. They follow all keys of the pair. */
static int64_t values_at(const xd_attn_plan *p, int64_t j, int64_t c)
{
    const int64_t part = j / PART * PART, tiles = xd_min((p->dp - c) / LANES, 2);
    return p->kunits * p->kblocks + part * DEEP * p->dp + c * PART * DEEP +
           (j - part) * tiles * TILE;
}

/* 1: there are padding columns, and the first of them holds ones: its sums are those of the
 * probabilities. */
static int sums_among(const xd_attn_plan *p)
{
    return p->D < p->dp;
}

static void place_values(const job *w, const char **rows, int64_t n, int64_t kb, unit *pair)
{
    const xd_attn_plan *p = &w->p;
    if (!w->a->bias.p)
        measure_keys(p, n, kb, pair);
    for (int64_t j = 0; j < n; j += TURN)
        for (int64_t c = 0; c < p->dp; c += LANES) {
            unit *to = pair + values_at(p, (kb * p->keys + j) / TURN, c / 32 * 32) +
                       c / LANES % 2 * TILE;
            pack_values(w, rows + j, xd_min(n - j, TURN), c, 1, to);
            for (int64_t u = 0; p->D < c + LANES && u < DEEP && p->D < p->dp; u++)
                to[u * LANES + p->D - c] = ONES;
        }
}

/* ---- probabilities ------------------------------------------------------------------------ */

/* The workspace between scores and probabilities, contiguous in memory. The scores of a step are
 * stored from their tiles during the next step and become probabilities in the one after. */
enum { BEHIND = 2 };
typedef struct desk {
    float s[BEHIND][STRIP][TURN];       /* scores, by steps                                   */
    unit  p[PART][STRIP][DEEP];         /* probabilities, by steps                            */
    float bias[BEHIND][STRIP][TURN];    /* copies of a bias that cannot be read in place      */
} desk;
_Static_assert(sizeof(desk) == XD_ATTN_DESK * sizeof(float), "the plan has place for a desk");

/* ---- prefetch of rows --------------------------------------------------------------------- */

/* The rows of a block are prefetched one at a time between tile multiplies: a core has few
 * outstanding requests, and many prefetches at once would delay all other loads. */
typedef struct ahead {
    const block *k;
    size_t       out_bytes, query_bytes;        /* of a row                                   */
    int64_t      seen, each;    /* rows prefetched; rows per step, both in scores and in values */
} ahead;

ALWAYS_INLINE void prefetch_one(ahead *x)
{
    if (x->seen < x->k->n)
        prefetch(x->k, x->seen++, x->out_bytes, x->query_bytes);
}

/* ---- tile multiplies ---------------------------------------------------------------------- */

/* The destination of sums that are still in tiles 0 to 3. A tile store waits for the last multiply
 * of its tile and delays all later instructions, so each store is placed between the multiplies
 * that follow. */
typedef struct owed {
    float  *to;                 /* NULL: none                                                 */
    int64_t row;                /* floats from one row to the next                            */
    int     two;                /* 1: four tiles; 0: only tiles 0 and 2, 16 columns           */
} owed;

/* Stores or loads tile i of 32 x 32 sums at c. */
#define STORE(i, c, ldc) _tile_stored(i, (c) + (i) / 2 * DEEP * (ldc) + (i) % 2 * LANES, (ldc) * 4)
#define LOAD(i, c, ldc) _tile_loadd(i, (c) + (i) / 2 * DEEP * (ldc) + (i) % 2 * LANES, (ldc) * 4)

/* Stores tile i to its destination, if it has one, and sets it to zero. */
#define ANEW(i)                                                                                    \
    do {                                                                                           \
        if (due->to && ((i) % 2 == 0 || due->two))                                                 \
            STORE(i, due->to, due->row);                                                           \
        _tile_zero(i);                                                                             \
    } while (0)

/* Like ANEW, but then loads the tile from the sums at `from`, if there are any. */
#define ANEW_FROM(i, from, ldf)                                                                    \
    do {                                                                                           \
        ANEW(i);                                                                                   \
        if (from)                                                                                  \
            LOAD(i, from, ldf);                                                                    \
    } while (0)

/* 32 x 32 sums in tiles 0 to 3 += a[32][..] . b, with the two tiles of b at b0 and b1. `start` runs
 * before the first multiply of each tile, `beside` between multiplies. Tiles of b are loaded with
 * the streaming hint, to keep the L1 cache for data that is written. */
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

/* MULTIPLY for 16 columns, in tiles 0 and 2. */
#define MULTIPLY_HALF(a, b, start)                                                                 \
    _tile_stream_loadd(6, b, DEEP * 4);                                                            \
    _tile_loadd(4, a, DEEP * 4);                                                                   \
    start(0);                                                                                      \
    _tile_dpbf16ps(0, 4, 6);                                                                       \
    _tile_loadd(5, (a) + TILE, DEEP * 4);                                                          \
    start(2);                                                                                      \
    _tile_dpbf16ps(2, 5, 6);

ALWAYS_INLINE void store_odd(const owed *due)
{
    if (!due->to || !due->two)
        return;
    STORE(1, due->to, due->row);
    STORE(3, due->to, due->row);
}

static void store_sums(owed *due)
{
    store_odd(due);
    if (due->to) {
        STORE(0, due->to, due->row);
        STORE(2, due->to, due->row);
    }
    due->to = NULL;
}

/* Multiplies q[32][..] with the keys of a step; scores stay in tiles. If `some`, runs all of the
 * softmax `soft` meanwhile. */
ALWAYS_INLINE void score(const unit *q, const unit *keys, int64_t deep, const owed *due, int some,
                         softmax_state soft, ahead *soon, curve *k, how h)
{
    const int64_t each = (STRIP / 4 + deep - 1) / deep;
    int64_t       row = 0;
#define SOFTMAX                                                                                    \
    if (some)                                                                                      \
        row = softmax_some(&soft, row, each, k, h);
    MULTIPLY(q, deep * DEEP * 4, keys, keys + deep * TILE, ANEW, SOFTMAX)
    prefetch_one(soon);
_Pragma("GCC unroll 4")
    for (int64_t i = 1; i < deep; i++) {
        q += DEEP;
        keys += TILE;
        MULTIPLY(q, deep * DEEP * 4, keys, keys + deep * TILE, GO_ON, SOFTMAX)
        if (soon->each > i)
            prefetch_one(soon);
    }
#undef SOFTMAX
}

/* sum[32][LANES] += the sum of each row of p, in every lane. */
static void sum_up(const unit *p, int64_t turns, float *sum, owed *due)
{
    static const unit ones[LANES] = { ONES, ONES, ONES, ONES, ONES, ONES, ONES, ONES,
                                      ONES, ONES, ONES, ONES, ONES, ONES, ONES, ONES };
#define FROM_SUM(i) if (a == p) ANEW_FROM(i, sum, LANES)
    store_odd(due);
    _tile_loadd(6, ones, 0);
    for (const unit *a = p; a < p + turns * 2 * TILE; a += 2 * TILE) {
        _tile_loadd(4, a, DEEP * 4);
        FROM_SUM(0);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, a + TILE, DEEP * 4);
        FROM_SUM(2);
        _tile_dpbf16ps(2, 5, 6);
    }
#undef FROM_SUM
    *due = (owed){ sum, LANES, 0 };
}

/* o[32][dp] (+)= p . v of `turns` steps. Runs the softmax of the last `late` (at most two) steps
 * meanwhile. */
ALWAYS_INLINE void sum_values(const unit *p, const unit *v, float *o, int64_t dp, int64_t turns,
                              int begun, owed *due, int64_t late, softmax_state first,
                              softmax_state second, ahead *soon, curve *k, how h)
{
    const int64_t each = late ? (late * STRIP + turns - 2) / (turns - 1) : 0;
    int64_t       row = (BEHIND - late) * STRIP;
    for (int64_t c = 0; c < dp; c += 2 * LANES, v += 2 * PART * TILE) {
        const int    two = c + LANES < dp;
        const float *from = begun ? o + c : NULL;
#define FROM_O(i) ANEW_FROM(i, from, dp)
        if (!two)
            store_odd(due);
        for (int64_t t = 0; t < turns; t++) {
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
            if (soon->each * 2 * LANES > c)
                prefetch_one(soon);
            if (row < BEHIND * STRIP) {
                const int64_t end = row + each;
                if (row < STRIP)
                    row = softmax_some(&first, row, each, k, h);
                if (row < end && row >= STRIP)
                    row = softmax_some(&second, row - STRIP, end - row, k, h) + STRIP;
                fence();
            }
        }
#undef FROM_O
        *due = (owed){ o + c, dp, two };
    }
}

/* ---- strips ------------------------------------------------------------------------------- */

/* A part: a strip of queries of a block, and at most PART steps of keys. */
typedef struct part {
    int64_t i, rows;            /* first query of the block; number of queries                */
    int64_t turn, turns;        /* first step of all keys; number of steps                    */
    int     begun;              /* 1: o holds sums of earlier keys                            */
} part;

typedef struct strips {
    const job  *w;
    block      *k;
    const unit *packed;
    int64_t     row, rows;      /* first query of the block; end of its queries               */
    int64_t     first, end;     /* first step of keys; end of steps                           */
    desk       *d;
    int         scaled;         /* 1: scores are scaled before bias and softmax               */
    int         touched;        /* 1: scores are scaled, or masked within steps               */
    uint8_t     kind[XD_ATTN_TILE_ROWS / STRIP];        /* of strips: BOUNDED, WATCHED or CLAMPED */
    /* WATCHED strips with powers that did not fit */
    uint8_t     missed[XD_ATTN_TILE_ROWS / STRIP];
    float       c;              /* factor from scores to powers of two                        */
    ahead       soon;
} strips;

/* The order of parts: a strip is multiplied with the keys and values that fit into the L2 cache,
 * part by part, while its queries and sums are in L1; then the next strip with the same keys. */
static part part_from(const strips *a, int64_t i, int64_t turn)
{
    part x = { .i = i, .rows = xd_min(a->rows - i, STRIP), .turn = turn,
               .begun = turn > a->first };
    x.turns = xd_min(a->end - turn, PART - turn % PART);
    return x;
}

static part part_after(const strips *a, const part *x)
{
    const xd_attn_plan *p = &a->w->p;
    const int64_t near = NEAR / (8 * PART * (p->kunits + p->vunits) / 4) * PART,
                  run = near > PART ? near : PART;
    const int64_t next = x->turn + x->turns, begin = x->turn / run * run;
    if (next < a->end && next % run)
        return part_from(a, x->i, next);
    if (x->i + STRIP < a->rows)
        return part_from(a, x->i + STRIP, begin > a->first ? begin : a->first);
    return part_from(a, a->row, next);
}

static const unit *keys_of(const strips *a, int64_t turn)
{
    return a->packed + turn * TURN * a->w->p.ldq;
}

/* Sets the reference of the probabilities of row i, rounded in fixed point because scores are
 * rounded only once. */
static void set_top(const block *k, int64_t i, float top)
{
    k->top[i] = nearbyintf(top * ONE) / ONE;
    k->sum[i] = top == -INFINITY ? 0 : BASE + BIAS - nearbyintf(top * ONE);
}

/* Sets the address of the bias of the rows of x for the keys of step j; `own` is memory for a
 * copy. */
static void find_bias(const strips *a, const part *x, int64_t j, float own[STRIP][TURN],
                      softmax_state *soft)
{
    const int64_t    n = xd_min(a->k->keys - j * TURN, TURN);
    const xd_tensor *t = &a->w->a->bias;
    const int64_t    at = a->k->h * t->s[0] + (a->k->i0 + x->i) * t->s[1] + j * TURN * t->s[2];
    const float     *bias = (const float *)t->p + at;
    soft->bias = bias;
    soft->bias_step = t->s[1];
    if (t->s[2] == 1 && n == TURN && x->rows == STRIP)
        return;
    memset(own, 0, sizeof(float[STRIP][TURN]));
    for (int64_t r = 0; r < x->rows; r++)
        if (t->s[2] == 1)
            memcpy(own[r], bias + r * t->s[1], (size_t)n * sizeof(float));
        else
            for (int64_t i = 0; i < n; i++)
                own[r][i] = bias[r * t->s[1] + i * t->s[2]];
    soft->bias = own[0];
    soft->bias_step = TURN;
}

/* The largest of the first n scores of a row, in powers of two. */
static float largest(const softmax_state *soft, int64_t r, float c, int64_t n)
{
    const float *s = soft->s + r * TURN,
                *bias = soft->bias ? soft->bias + r * soft->bias_step : NULL;
    float        top = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        float y = c * s[i] + (bias ? log2e * bias[i] : 0);
        top = y > top || y != y ? y : top;
    }
    return top;
}

static int lacking(const strips *a, const part *x)
{
    int some = 0;
    for (int64_t i = x->i; i < x->i + x->rows; i++)
        some |= a->k->top[i] == -INFINITY;
    return some;
}

/* Scales and masks the scores of step j and sets missing references: the first score of the row or,
 * if that is -infinity or NaN, the largest; -infinity as long as the row sees no key. */
static void prepare(const strips *a, const part *x, int64_t j, const softmax_state *soft)
{
    const job    *w = a->w;
    const block  *k = a->k;
    const int64_t n = xd_min(k->keys - j * TURN, TURN);
    for (int64_t r = 0, i = x->i; r < x->rows; r++, i++) {
        float *s = soft->s + r * TURN;
        for (int64_t c = 0; a->scaled && c < TURN; c++)
            s[c] *= w->a->scale * log2e;
        mask_hidden(w, k, i, s, j * TURN, n);
        if (k->top[i] != -INFINITY)
            continue;
        float top = largest(soft, r, a->c, 1);
        set_top(k, i, top > -INFINITY ? top : largest(soft, r, a->c, TURN));
    }
}

/* Replaces scores of -infinity, also in rows that do not exist, by finite ones whose power is 0. */
static void bound(const strips *a, const part *x, float *s)
{
    for (int64_t r = 0; r < STRIP; r++) {
        const float top = a->k->top[x->i + r];
        const vf    least = v_set(top == -INFINITY ? 0 : (top + LEAST) / a->c);
        for (int64_t j = 0; j < TURN; j += LANES)
            v_store(s + r * TURN + j, v_max(v_load(s + r * TURN + j), least));
    }
}

/* 1: some scores of step t of x may be -infinity. */
static int hidden(const strips *a, const part *x, int64_t t)
{
    return a->touched || (x->turn + t + 1) * TURN > a->k->keys;
}

/* Prepares the softmax of step t of x. Its scores must be stored from the tiles, unless neither a
 * reference is missing nor a score is masked. Returns 1 if some rows still have no reference. */
ALWAYS_INLINE int ready(const strips *a, const part *x, int64_t t, int lacks, softmax_state *soft,
                        how h)
{
    const int64_t j = x->turn + t;
    *soft = (softmax_state){ .s = a->d->s[t % BEHIND][0], .p = a->d->p[t][0],
                             .low = a->k->sum + x->i };
    if (h.biased)
        find_bias(a, x, j, a->d->bias[t % BEHIND], soft);
    if (!lacks && !hidden(a, x, t))
        return 0;
    prepare(a, x, j, soft);
    if (h.kind != CLAMPED)
        bound(a, x, soft->s);
    return lacking(a, x);
}

/* The number of steps after which the scores of a step become probabilities. In a short part the
 * softmax of two steps would not fit into the value multiplies: its scores are stored at once. */
static int64_t behind(const part *x)
{
    return x->turns > 4 ? BEHIND : 1;
}

/* Multiplies the scores of the steps of a part, each with the softmax of an earlier step; `last`
 * receives the softmax states of the last steps. */
ALWAYS_INLINE void score_part(strips *a, const part *x, owed *due, int64_t deep,
                              softmax_state last[BEHIND], how h)
{
    const unit   *q = a->k->q + x->i * deep * DEEP;
    curve         k = curve_of(a->c, h);
    const int64_t n = x->turns, late = behind(x);
    softmax_state     soft[BEHIND] = { { .s = NULL } };
    int           lacks = h.kind != BOUNDED && lacking(a, x);
    for (int64_t t = 0; t < n; t++) {
        const unit *keys = keys_of(a, x->turn + t);
        fence();
        if (t >= late)
            score(q, keys, deep, due, 1, soft[(t - late) % BEHIND], &a->soon, &k, h);
        else
            score(q, keys, deep, due, 0, soft[0], &a->soon, &k, h);
        fence();
        if (late > 1 && t > 0)
            lacks = ready(a, x, t - 1, lacks, &soft[(t - 1) % BEHIND], h);
        *due = (owed){ a->d->s[t % BEHIND][0], TURN, 1 };
        if (late > 1 && (t < n - 1 || (!lacks && !hidden(a, x, t))))
            continue;
        store_sums(due);
        if (late == 1)
            lacks = ready(a, x, t, lacks, &soft[t % BEHIND], h);
    }
    if (late > 1)
        ready(a, x, n - 1, lacks, &soft[(n - 1) % BEHIND], h);
    last[0] = soft[n % BEHIND];
    last[1] = soft[(n - 1) % BEHIND];
    if (h.kind == WATCHED)
        a->missed[x->i / STRIP] |= !all_held(&k);
}

ALWAYS_INLINE void attend_part(strips *a, const part *x, owed *due, how h)
{
    const xd_attn_plan *p = &a->w->p;
    curve               k = curve_of(a->c, h);
    const int64_t       deep = p->ldq / DEEP;
    softmax_state           last[BEHIND];
    switch (deep) {
    case 1: score_part(a, x, due, 1, last, h); break;
    case 2: score_part(a, x, due, 2, last, h); break;
    case 3: score_part(a, x, due, 3, last, h); break;
    case 4: score_part(a, x, due, 4, last, h); break;
    default: score_part(a, x, due, deep, last, h);
    }
    if (x->turns == 1)
        softmax_some(&last[1], 0, STRIP, &k, h);
    fence();
    sum_values(a->d->p[0][0], a->packed + values_at(p, x->turn, 0), a->k->o + x->i * p->dp, p->dp,
               x->turns, x->begun, due, x->turns > 1 ? behind(x) : 0, last[0], last[1], &a->soon,
               &k, h);
    if (h.kind == WATCHED)
        a->missed[x->i / STRIP] |= !all_held(&k);
    if (h.summed)
        sum_up(a->d->p[0][0], x->turns, a->k->most + x->i * LANES, due);
    fence();
}

/* 1: probabilities are summed by multiplies of their own. Clamped scores always are, which saves
 * variants. */
static int summed_apart(const strips *a, int64_t i)
{
    return a->kind[i / STRIP] == CLAMPED || !sums_among(&a->w->p);
}

/* Not inlined: the compiler keeps constants in registers only in functions with few loops. */
#define PART_OF(name, ...)                                                                         \
    static __attribute__((noinline)) void name(strips *a, const part *x, owed *due)                \
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
    owed due = { .to = NULL };
    for (part x = part_from(a, a->row, a->first); x.turns > 0; x = part_after(a, &x)) {
        const int kind = a->kind[x.i / STRIP], summed = summed_apart(a, x.i);
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
    fence();
}

/* Clears the sums of probabilities, also of the rows that pad the last strip. */
static void forget_sums(const strips *a)
{
    for (int64_t i = a->row; i < (a->rows + STRIP - 1) / STRIP * STRIP; i++)
        v_store(a->k->most + i * LANES, v_zero());
}

/* 1: the row sees keys, but the sum of its probabilities is too large, too small or NaN. */
static int doubtful(const block *k, int64_t i)
{
    return !(k->l[i] <= LIFT) || (k->l[i] < 1 / LIFT && k->top[i] != -INFINITY);
}

/* Collects the sums of probabilities; 1 if some are doubtful. */
static int add_up(const strips *a)
{
    const xd_attn_plan *p = &a->w->p;
    const block        *k = a->k;
    int                 bad = 0;
    for (int64_t i = a->row; i < a->rows; i++) {
        k->l[i] = summed_apart(a, i) ? k->most[i * LANES] : k->o[i * p->dp + p->D];
        bad |= doubtful(k, i);
    }
    return bad;
}

/* Scores of the strip at query i for step j, ready for the softmax. */
static softmax_state scores_of(strips *a, int64_t i, int64_t j)
{
    const int64_t ldq = a->w->p.ldq;
    const part    x = part_from(a, i, j);
    softmax_state     soft = { .s = a->d->s[0][0] };
    owed          due = { .to = NULL };
    fence();
    score(a->k->q + i * ldq, keys_of(a, j), ldq / DEEP, &due, 0, soft, &a->soon, NULL,
          (how){ 0, 0, 0 });
    due = (owed){ soft.s, TURN, 1 };
    store_sums(&due);
    fence();
    if (a->w->a->bias.p)
        find_bias(a, &x, j, a->d->bias[0], &soft);
    prepare(a, &x, j, &soft);
    return soft;
}

/* Computes a strip again, with doubtful rows relative to their largest score. */
static void attend_again(strips a)
{
    const int64_t i = a.row;
    float         top[STRIP];
    int           again[STRIP];
    for (int64_t r = 0; r < a.rows - i; r++) {
        again[r] = doubtful(a.k, i + r);
        top[r] = -INFINITY;
    }
    for (int64_t j = a.first; j < a.end; j++) {
        const softmax_state soft = scores_of(&a, i, j);
        for (int64_t r = 0; r < a.rows - i; r++) {
            float y = again[r] ? largest(&soft, r, a.c, TURN) : 0;
            top[r] = y > top[r] || y != y ? y : top[r];
        }
    }
    for (int64_t r = 0; r < a.rows - i; r++)
        if (again[r])
            set_top(a.k, i + r, top[r]);
    a.kind[i / STRIP] = CLAMPED;
    forget_sums(&a);
    attend_parts(&a);
    add_up(&a);
}

static float length_of_row(const strips *a, int64_t i)
{
    const int64_t ldq = a->w->p.ldq;
    return sqrtf(v_hadd(squares(a->k->q + i * ldq, ldq / LANES)));
}

/* Rows of strip i whose scores stay within BOUND get the reference 0, the others none yet; scores
 * are bounded by `most` times the norm of the row. A bound from the per-lane maxima of squares over
 * all rows is tried first: it is often sufficient. */
static void refer(strips *a, int64_t i, float most)
{
    const int64_t ldq = a->w->p.ldq;
    vf            all = v_zero();
    for (int64_t r = i; r < i + STRIP; r++)
        all = larger(squares(a->k->q + r * ldq, ldq / LANES), all);
    float     y = most * sqrtf(v_hadd(all));
    const int sure = y < BOUND;
    for (int64_t r = i; r < i + STRIP; r++) {
        const float z = sure ? 0 : most * length_of_row(a, r);
        set_top(a->k, r, z < BOUND ? 0 : -INFINITY);
        y = r == i || z > y || z != z ? z : y;
    }
    a->kind[i / STRIP] = y < BOUND ? BOUNDED : y < FAR ? WATCHED : CLAMPED;
}

static void refer_to_none(strips *a, int64_t i)
{
    for (int64_t r = i; r < i + STRIP; r++)
        set_top(a->k, r, -INFINITY);
    a->kind[i / STRIP] = CLAMPED;
}

static void refer_all(strips *a)
{
    const int   none = a->scaled || a->w->a->bias.p;
    const float most = none ? 0 : a->c * longest_key(&a->w->p, a->k->keys, a->packed);
    for (int64_t i = 0; i < a->k->n; i += STRIP)
        if (none)
            refer_to_none(a, i);
        else
            refer(a, i, most);
}

/* Computes a WATCHED strip again, clamped, because some of its powers did not fit. */
static void attend_clamped(strips *a)
{
    a->kind[a->row / STRIP] = CLAMPED;
    forget_sums(a);
    attend_parts(a);
}

static void attend_keys(const job *w, block *k, int64_t first, int64_t end, const unit *packed)
{
    strips         a = { .w = w, .k = k, .packed = packed, .rows = k->n, .first = 2 * first,
                         .end = xd_min(2 * end, (k->keys + TURN - 1) / TURN),
                         .d = (desk *)(void *)k->s, .scaled = !(w->a->scale * log2e > 1e-20f) };
    a.c = a.scaled ? 1 : w->a->scale * log2e;
    a.touched = a.scaled || w->a->window || w->a->causal;
    k->begun = a.end > a.first;
    for (int64_t i = 0; i < k->n; i++) {
        k->l[i] = 0;
        k->top[i] = -INFINITY;
    }
    if (!k->begun)
        return;
    a.soon = (ahead){ .k = k, .out_bytes = (size_t)w->p.D * xd_dtype_size(w->a->out.type),
                      .query_bytes = (size_t)w->p.D * sizeof(uint16_t),
                      .each = (STRIP + 2 * (a.end - a.first) - 1) / (2 * (a.end - a.first)) };
    refer_all(&a);
    forget_sums(&a);
    xd_tiles_begin();
    attend_parts(&a);
    while (a.soon.seen < k->n)
        prefetch_one(&a.soon);
    for (a.rows = 0; a.rows < k->n;) {
        a.row = a.rows;
        a.rows = xd_min(k->n, a.row + STRIP);
        if (a.missed[a.row / STRIP])
            attend_clamped(&a);
        if (add_up(&a))
            attend_again(a);
    }
    xd_tiles_end();
}

size_t xd_attn_scratch_amx(const xd_attn_args *a, int threads)
{
    return a->q.type == XD_BF16 ? flash_scratch(a, threads) : xd_attn_scratch_avx512(a, threads);
}

xd_status xd_attn_amx(const xd_attn_args *a, void *tmp)
{
    return a->q.type == XD_BF16 ? flash_attn(a, tmp) : xd_attn_avx512(a, tmp);
}
