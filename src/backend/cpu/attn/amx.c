/* amx.c - attention with tiles of AMX: products of 16 x 32 by 32 x 16 bf16.
 *
 * Tiles are so fast that exponentials take as long as products, so three strips of queries are on
 * their way at a time: while scores of one and sums of values of another are multiplied, the
 * probabilities of the one between are made, some between any two products (Shah et al. 2024,
 * FlashAttention-3, for a CPU).
 *
 * A row's probabilities are relative to the first score that it meets instead of its largest, which
 * would cost more to find than all else but the exponential: floats and brains have room for both
 * larger and smaller ones. Where they grow beyond LIFT a strip is done once more with the largest. */
#include "backend/cpu/attn/attn.h"
#include "backend/cpu/attn/plan.h"

#include <stdatomic.h>

#include "backend/cpu/amx.h"
#include "backend/cpu/attn/pairs.h"

enum {
    TILES = 1,
    STRIP = XD_ATTN_STRIP, STRIPS = XD_ATTN_STRIPS,
    LDS = XD_ATTN_TILE_LDS,
    QROWS = STRIP,
    SCORE_WIDTH = 2,            /* vectors of keys, or columns of values, of two tiles         */
    DEEP = 16,                  /* units of a tile's row                                       */
};

static const float LIFT = 0x1p60f;      /* a sum of a key block's probabilities              */

static inline int64_t sum_width(int64_t left)
{
    return left > 1 ? 2 : 1;
}

#include "backend/cpu/attn/flash.h"

/* What tiles read was written by vectors before, which the compiler does not know. */
static inline void fence(void)
{
    atomic_signal_fence(memory_order_seq_cst);
}

/* ---- probabilities ------------------------------------------------------------------------- */

/* Scores of a strip on their way to probabilities: 2 LANES of a row a turn, row by row. */
typedef struct softening {
    const float *from;          /* LDS floats from row to row                                 */
    float       *to;            /* as many; may be `from`                                     */
    const float *low;           /* a row: what is added to its scaled scores                  */
    float       *sum;           /* a row: LANES floats                                        */
    float        scale;
    int64_t      rows, at;      /* of the strip; the next turn's                              */
    int64_t      left;          /* turns                                                      */
    int          odd, even;     /* turns after every first and every second product           */
} softening;

static inline void soften_next(softening *s)
{
    const vf c = v_set(s->scale), low = v_set(s->low[s->at]);
    const vf x = v_exp2(v_fma(v_load(s->from), c, low));
    const vf y = v_exp2(v_fma(v_load(s->from + LANES), c, low));
    float   *sum = s->sum + s->at * LANES;
    v_store(sum, v_add(v_load(sum), v_add(x, y)));
    put_probs(s->to, x, y);
    s->from += LDS;
    s->to += LDS;
    s->left--;
    if (++s->at == s->rows) {
        s->at = 0;
        s->from += 2 * LANES - s->rows * LDS;
        s->to += LANES - s->rows * LDS;
    }
}

#define SOFTEN(s, turns)                                                                           \
    for (int t = (turns); t > 0 && (s).left > 0; t--)                                              \
        soften_next(&(s));

/* ---- products ------------------------------------------------------------------------------ */

/* s[32][LDS] = q[32][ldq] . keys: panels of 32 keys, `deep` tiles each, while `soft` goes on. */
static void score_strip(const unit *q, int64_t ldq, const unit *keys, int64_t deep, int64_t panels,
                        float *s, softening *soft)
{
    const int64_t a_row = ldq * 4, b_row = 2 * DEEP * 4, c_row = LDS * 4;
    softening     e = *soft;
    for (int64_t g = 0; g < panels; g++, s += 2 * LANES) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int64_t k = 0; k < deep; k++, keys += 2 * DEEP * DEEP) {
            _tile_loadd(6, keys, b_row);
            _tile_loadd(4, q + k * DEEP, a_row);
            _tile_dpbf16ps(0, 4, 6);
            SOFTEN(e, e.odd)
            _tile_loadd(7, keys + DEEP, b_row);
            _tile_dpbf16ps(1, 4, 7);
            SOFTEN(e, e.even)
            _tile_loadd(5, q + DEEP * ldq + k * DEEP, a_row);
            _tile_dpbf16ps(2, 5, 6);
            SOFTEN(e, e.odd)
            _tile_dpbf16ps(3, 5, 7);
            SOFTEN(e, e.even)
        }
        _tile_stored(0, s, c_row);
        _tile_stored(1, s + LANES, c_row);
        _tile_stored(2, s + DEEP * LDS, c_row);
        _tile_stored(3, s + DEEP * LDS + LANES, c_row);
    }
    *soft = e;
}

/* o[32][ldo], 32 columns of it, (+)= p[32][LDS] . values. */
static void sum_two(const float *p, int64_t panels, const unit *values, float *o, int64_t ldo,
                    int add, softening *soft)
{
    const int64_t a_row = LDS * 4, b_row = 2 * DEEP * 4, c_row = ldo * 4;
    softening     e = *soft;
    if (add) {
        _tile_loadd(0, o, c_row);
        _tile_loadd(1, o + LANES, c_row);
        _tile_loadd(2, o + DEEP * ldo, c_row);
        _tile_loadd(3, o + DEEP * ldo + LANES, c_row);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t g = 0; g < panels; g++, p += DEEP, values += 2 * DEEP * DEEP) {
        _tile_loadd(6, values, b_row);
        _tile_loadd(4, p, a_row);
        _tile_dpbf16ps(0, 4, 6);
        SOFTEN(e, e.odd)
        _tile_loadd(7, values + DEEP, b_row);
        _tile_dpbf16ps(1, 4, 7);
        SOFTEN(e, e.even)
        _tile_loadd(5, p + DEEP * LDS, a_row);
        _tile_dpbf16ps(2, 5, 6);
        SOFTEN(e, e.odd)
        _tile_dpbf16ps(3, 5, 7);
        SOFTEN(e, e.even)
    }
    _tile_stored(0, o, c_row);
    _tile_stored(1, o + LANES, c_row);
    _tile_stored(2, o + DEEP * ldo, c_row);
    _tile_stored(3, o + DEEP * ldo + LANES, c_row);
    *soft = e;
}

/* The same for 16 columns. */
static void sum_one(const float *p, int64_t panels, const unit *values, float *o, int64_t ldo,
                    int add, softening *soft)
{
    const int64_t a_row = LDS * 4, b_row = DEEP * 4, c_row = ldo * 4;
    softening     e = *soft;
    if (add) {
        _tile_loadd(0, o, c_row);
        _tile_loadd(2, o + DEEP * ldo, c_row);
    } else {
        _tile_zero(0);
        _tile_zero(2);
    }
    for (int64_t g = 0; g < panels; g++, p += DEEP, values += DEEP * DEEP) {
        _tile_loadd(6, values, b_row);
        _tile_loadd(4, p, a_row);
        _tile_dpbf16ps(0, 4, 6);
        SOFTEN(e, e.odd)
        _tile_loadd(5, p + DEEP * LDS, a_row);
        _tile_dpbf16ps(2, 5, 6);
        SOFTEN(e, e.even)
    }
    _tile_stored(0, o, c_row);
    _tile_stored(2, o + DEEP * ldo, c_row);
    *soft = e;
}

/* ---- strips -------------------------------------------------------------------------------- */

/* A strip of queries of a block and a block of keys. */
typedef struct strip {
    int64_t     i, rows;        /* first query, and queries, of the block                     */
    int64_t     j, n;           /* first key and keys                                         */
    const unit *keys, *values;  /* packed                                                     */
    float      *s;              /* [32][LDS]                                                  */
    int         begun;          /* o holds sums of earlier keys                               */
} strip;

typedef struct strips {
    const job *w;
    block     *k;
    const unit *packed;
    int64_t    first, count;    /* the first key block; strips of the block of queries        */
    int        scaled, odd, even;
    float      c;
} strips;

/* Strip x of all: those of the first key block, those of the second, ... */
static strip strip_of(const strips *a, int64_t x)
{
    const xd_attn_plan *p = &a->w->p;
    int64_t             kb = a->first + x / a->count;
    const unit         *keys = a->packed + kb * (p->kunits + p->vunits);
    strip s = { .i = x % a->count * STRIP, .j = kb * p->keys, .begun = kb > a->first,
                .keys = keys, .values = keys + p->kunits,
                .s = a->k->s + x % STRIPS * (STRIP * LDS) };
    s.rows = smaller(a->k->n - s.i, STRIP);
    s.n = smaller(a->k->keys - s.j, p->keys);
    return s;
}

static void score(const strips *a, const strip *s, float *to, softening *soft)
{
    const xd_attn_plan *p = &a->w->p;
    score_strip(a->k->q + s->i * p->ldq, p->ldq, s->keys, p->ldq / DEEP, turns(s->n), to, soft);
}

static void sum_values(const strips *a, const strip *s, softening *soft)
{
    const xd_attn_plan *p = &a->w->p;
    float              *o = a->k->o + s->i * p->dp;
    for (int64_t c = 0; c < p->dp; c += 2 * LANES) {
        const unit *values = s->values + c * (p->vunits / p->dp);
        if (p->dp - c > LANES)
            sum_two(s->s, turns(s->n), values, o + c, p->dp, s->begun, soft);
        else
            sum_one(s->s, turns(s->n), values, o + c, p->dp, s->begun, soft);
    }
}

static softening soft_strip(const strips *a, const strip *s)
{
    const block *k = a->k;
    return (softening){ .from = s->s, .to = s->s, .low = k->low + s->i,
                        .sum = k->sum + s->i * LANES, .scale = a->c, .rows = s->rows,
                        .left = s->rows * turns(s->n), .odd = a->odd, .even = a->even };
}

static void set_top(const block *k, int64_t i, float top)
{
    k->top[i] = top;
    k->low[i] = top == -INFINITY ? 0 : -top;
}

/* Scores are there: what comes before their probabilities. Rows without a reference get the first
 * score, or where that is none the largest, which is -infinity as long as they see no key. */
static void prepare(const strips *a, const strip *s)
{
    const job   *w = a->w;
    const block *k = a->k;
    int          touched = a->scaled || w->a->bias.p || w->a->window || w->a->causal;
    for (int64_t r = 0; r < s->rows; r++) {
        float *row = s->s + r * LDS;
        if (touched || s->n % (2 * LANES))
            bias_and_mask(w, k, s->i + r, row, s->j, s->n, a->scaled, v_zero());
        if (k->top[s->i + r] == -INFINITY)
            set_top(k, s->i + r, a->c * (*row > -INFINITY ? *row : v_hmax(row_max(row, s->n))));
        v_store(k->sum + (s->i + r) * LANES, v_zero());
    }
}

/* Whether a row's sum of probabilities is out of bounds. */
static int high(const block *k, int64_t i)
{
    return v_hmax(v_load(k->sum + i * LANES)) > LIFT;
}

/* Once more the probabilities of rows that are too high, relative to the largest of their scores,
 * which are made again at `spare`. Values of these keys are not yet added to o. */
static void lift(const strips *a, const strip *s, float *spare)
{
    const block        *k = a->k;
    const xd_attn_plan *p = &a->w->p;
    softening           none = { .left = 0 };
    score(a, s, spare, &none);
    for (int64_t r = 0; r < s->rows; r++) {
        int64_t i = s->i + r;
        float  *row = spare + r * LDS, *all = k->most + i * LANES;
        if (!high(k, i))
            continue;
        bias_and_mask(a->w, k, i, row, s->j, s->n, a->scaled, v_zero());
        float top = v_hmax(row_max(row, s->n)) * a->c;
        float by = v_first(v_exp2(v_set(k->top[i] - top)));
        v_store(all, v_mul(v_load(all), v_set(by)));
        if (s->begun)
            rescale(k->o + i * p->dp, p->dp, by);
        set_top(k, i, top);
        v_store(k->sum + i * LANES, v_zero());
        softening again = { .from = row, .to = s->s + r * LDS, .low = k->low + i,
                            .sum = k->sum + i * LANES, .scale = a->c, .rows = 1,
                            .left = turns(s->n) };
        while (again.left > 0)
            soften_next(&again);
    }
}

/* Probabilities are there: their sums join those of earlier keys. `spare` is a strip's scores. */
static void settle(const strips *a, const strip *s, float *spare)
{
    const block *k = a->k;
    vf           most = v_zero();
    for (int64_t i = s->i; i < s->i + s->rows; i++)
        most = v_max(v_load(k->sum + i * LANES), most);
    if (v_hmax(most) > LIFT)
        lift(a, s, spare);
    for (int64_t i = s->i; i < s->i + s->rows; i++) {
        float *all = k->most + i * LANES;
        v_store(all, v_add(v_load(all), v_load(k->sum + i * LANES)));
    }
}

/* As many turns after two products as let both end together. */
static void pace(strips *a)
{
    const xd_attn_plan *p = &a->w->p;
    int64_t             products = 4 * p->ldq / DEEP + 2 * p->dp / LANES;
    int64_t             two = (2 * STRIP + products - 1) / products;
    a->odd = (int)(two + 1) / 2;
    a->even = (int)two / 2;
}

/* In every turn of the loop: the scores of strip x, the probabilities of the one before, and the
 * values of the one before that. */
static void attend_strips(const strips *a, int64_t all)
{
    strip now, before = { .n = 0 }, first = before;
    for (int64_t x = 0; x < all + 2; x++, first = before, before = now) {
        softening soft = { .left = 0 };
        fence();
        if (x > 0 && x <= all)
            soft = soft_strip(a, &before);
        now = before;
        if (x < all) {
            now = strip_of(a, x);
            score(a, &now, now.s, &soft);
        }
        if (x > 1)
            sum_values(a, &first, &soft);
        while (soft.left > 0)
            soften_next(&soft);
        fence();
        if (x > 0 && x <= all)
            settle(a, &before, a->k->s + (x + 1) % STRIPS * (STRIP * LDS));
        if (x < all)
            prepare(a, &now);
    }
}

static void attend_keys(const job *w, block *k, int64_t first, int64_t end, const unit *packed)
{
    strips a = { .w = w, .k = k, .packed = packed, .first = first, .scaled = scaled_first(w) };
    a.count = (k->n + STRIP - 1) / STRIP;
    a.c = a.scaled ? 1 : w->a->scale * log2e;
    pace(&a);
    for (int64_t i = 0; i < k->n; i++) {
        set_top(k, i, -INFINITY);
        v_store(k->most + i * LANES, v_zero());
    }
    xd_tiles_begin();
    if (end > first)
        attend_strips(&a, (end - first) * a.count);
    xd_tiles_end();
    for (int64_t i = 0; i < k->n; i++)
        k->l[i] = v_hadd(v_load(k->most + i * LANES));
    k->begun = end > first;
}

size_t xd_attn_scratch_amx(const xd_attn_args *a, int threads)
{
    return a->q.type == XD_BF16 ? flash_scratch(a, threads) : xd_attn_scratch_avx512(a, threads);
}

xd_status xd_attn_amx(const xd_attn_args *a, void *tmp)
{
    return a->q.type == XD_BF16 ? flash_attn(a, tmp) : xd_attn_avx512(a, tmp);
}
