/* amx.c - attention with tiles of AMX: products of 16 x 32 by 32 x 16 bf16.
 *
 * Tiles are so fast that exponentials take as long as products, so three strips of queries are on
 * their way at a time: while scores of one and sums of values of another are multiplied, the
 * probabilities of the one between are made, a row after any two products (the idea of Shah et al.
 * 2024, FlashAttention-3).
 *
 * A row's probabilities are relative to the first score that it meets instead of its largest, which
 * would take long to find: floats and brains have room for both larger and smaller ones. Where their
 * sum grows beyond LIFT a row's are made once more, relative to the largest. */
#include "backend/cpu/attn/attn.h"
#include "backend/cpu/attn/plan.h"

#include <stdatomic.h>

#include "backend/cpu/amx.h"
#include "backend/cpu/attn/pairs.h"

enum {
    TILES = 1,
    STRIP = XD_ATTN_STRIP,
    TURN = XD_ATTN_TILE_KEYS,   /* a row's scores of a key block                              */
    LDS = TURN,
    LDP = TURN / 2,             /* pairs of probabilities                                     */
    QROWS = STRIP,
    SCORE_WIDTH = 1,            /* vectors of a packed tile                                   */
    DEEP = 16,                  /* units of a tile's row                                      */
    CHUNK = 1024 / XD_ATTN_TILE_KEYS,   /* key blocks that a strip meets at a time            */
};

static const float LIFT = 0x1p60f;      /* a sum of a key block's probabilities              */

/* Brains that are cut off lack half of their last bit, 2^-8 (on average over all mantissas m, of
 * which 1 / m is log2(e) / 2): log2(1 + 2^-8 log2(e) / 2) is added to all exponents. */
static const float CUT = 0.00405944f;

static inline int64_t sum_width(int64_t left)
{
    return left > 0;
}

#include "backend/cpu/attn/flash.h"

/* What tiles read was written by vectors before, which compilers do not know. */
static inline void fence(void)
{
    atomic_signal_fence(memory_order_seq_cst);
}

/* ---- probabilities ------------------------------------------------------------------------- */

/* All of a strip on its way from scores to probabilities, in one piece of memory, so that few
 * registers tell where everything is. */
typedef struct desk {
    float s[STRIP][LDS];        /* scores                                                     */
    unit  p[STRIP][LDP];        /* probabilities                                              */
    float sum[STRIP][LANES];    /* their sums                                                 */
} desk;
_Static_assert(sizeof(desk) == XD_ATTN_DESK * sizeof(float), "the plan has place for two desks");

typedef struct softening {
    desk        *d;
    const float *low;           /* a row: what is added to scaled scores                      */
    int64_t      row, rows;     /* the next, and behind the last                              */
    float        scale, cubic[4];   /* CUBIC, read from here so that it stays in registers    */
} softening;

typedef struct curve { vf scale, d, c, b, a; } curve;

static inline curve curve_of(const softening *s)
{
    return (curve){ v_set(s->scale), v_set(s->cubic[3]), v_set(s->cubic[2]), v_set(s->cubic[1]),
                    v_set(s->cubic[0]) };
}

/* Brains of x in the low halves and of y in the high ones. They are cut off, which CUT makes up for:
 * the instruction that rounds takes nearly twice as long. */
static inline void put_cut(unit *to, vf x, vf y)
{
    const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(x), 16);
    v_put_units(to, _mm512_mask_blend_epi16(0xaaaaaaaa, low, _mm512_castps_si512(y)));
}

static inline vf power(const float *s, const curve *k, vf low)
{
    return exp2_cubic(v_fma(v_load(s), k->scale, low), k->d, k->c, k->b, k->a);
}

/* All scores of row r become probabilities; vectors of them are added up. */
static inline void soften_row(desk *d, const float *row_low, int64_t r, const curve *k)
{
    const float *s = d->s[r];
    const vf     low = v_set(row_low[r]);
    const vf     x0 = power(s, k, low), x1 = power(s + LANES, k, low);
    const vf     x2 = power(s + 2 * LANES, k, low), x3 = power(s + 3 * LANES, k, low);
    put_cut(d->p[r], x0, x1);
    put_cut(d->p[r] + LANES, x2, x3);
    v_store(d->sum[r], v_add(v_add(x0, x1), v_add(x2, x3)));
}

#define SOFTEN                                                                                     \
    if (row < rows)                                                                                \
        soften_row(d, low, row++, &k);

/* ---- products ------------------------------------------------------------------------------ */

/* c[32][ldc] (+)= a[32][lda] . b, 16 columns of c at a time: `deep` tiles of b follow each other. */
typedef struct product {
    const unit  *a;
    int64_t      lda;
    const unit  *b;
    int64_t      next;          /* units of b from 16 columns to the next                     */
    int64_t      deep, columns; /* columns: times 16                                          */
    float       *c;
    int64_t      ldc;
    int          add;
} product;

/* Sums are in tiles 0 and 1, or 2 and 3: while one pair is added up the other is stored and filled
 * again, during which the multiplier would wait for its own sums. Tiles of b pass the first cache by:
 * what must stay there is what is stored to. */
#define BEGIN(c0, c1, n)                                                                           \
    if (p->add) {                                                                                  \
        _tile_loadd(c0, p->c + (n) * LANES, c_row);                                                \
        _tile_loadd(c1, p->c + (n) * LANES + DEEP * p->ldc, c_row);                                \
    } else {                                                                                       \
        _tile_zero(c0);                                                                            \
        _tile_zero(c1);                                                                            \
    }

#define STORE(c0, c1, n)                                                                           \
    _tile_stored(c0, p->c + (n) * LANES, c_row);                                                   \
    _tile_stored(c1, p->c + (n) * LANES + DEEP * p->ldc, c_row);

#define STEP(c0, c1)                                                                               \
    _tile_stream_loadd(6, b, DEEP * 4);                                                            \
    _tile_loadd(4, a, a_row);                                                                      \
    _tile_dpbf16ps(c0, 4, 6);                                                                      \
    _tile_loadd(5, a + DEEP * p->lda, a_row);                                                      \
    _tile_dpbf16ps(c1, 5, 6);                                                                      \
    SOFTEN                                                                                         \
    b += DEEP * DEEP, a += DEEP;

#define COLUMNS(c0, c1, other0, other1)                                                            \
    {                                                                                              \
        const unit  *a = p->a;                                                                     \
        const unit  *b = p->b + n * p->next;                                                       \
        STEP(c0, c1)                                                                               \
        if (n > 0) {                                                                               \
            STORE(other0, other1, n - 1)                                                           \
        }                                                                                          \
        if (n + 1 < p->columns) {                                                                  \
            BEGIN(other0, other1, n + 1)                                                           \
        }                                                                                          \
        for (int64_t i = 1; i < p->deep; i++) {                                                    \
            STEP(c0, c1)                                                                           \
        }                                                                                          \
        n++;                                                                                       \
    }

/* The product, while `soft` goes on. */
static void multiply(const product *p, softening *soft)
{
    const int64_t a_row = p->lda * 4, c_row = p->ldc * 4;
    const int64_t rows = soft->rows;
    const float  *low = soft->low;
    const curve   k = curve_of(soft);
    desk *const   d = soft->d;
    int64_t       n = 0, row = soft->row;
    BEGIN(0, 1, 0)
    while (n < p->columns) {
        COLUMNS(0, 1, 2, 3)
        if (n == p->columns)
            break;
        COLUMNS(2, 3, 0, 1)
    }
    if (n % 2) {
        STORE(0, 1, n - 1)
    } else {
        STORE(2, 3, n - 1)
    }
    soft->row = row;
}

/* ---- strips -------------------------------------------------------------------------------- */

/* A strip of queries of a block and a block of keys. */
typedef struct strip {
    int64_t     i, rows;        /* first query, and queries, of the block                     */
    int64_t     j, n;           /* first key and keys                                         */
    const unit *keys, *values;  /* packed                                                     */
    desk       *d;
    int         begun;          /* o holds sums of earlier keys                               */
} strip;

typedef struct strips {
    const job  *w;
    block      *k;
    const unit *packed;
    int64_t     first, end;     /* key blocks                                                 */
    int64_t     count;          /* strips of the block of queries                             */
    int         scaled, touched;        /* touched: scores get a bias, or masks of their own  */
    float       c;              /* what turns scores into powers of two                       */
} strips;

/* Strip x of all: a strip meets CHUNK key blocks, one after the other, while its queries and sums
 * are in the first cache; then the next strip meets the same, which are in the second. */
static strip strip_of(const strips *a, int64_t x)
{
    const xd_attn_plan *p = &a->w->p;
    const int64_t       from = a->first + x / (a->count * CHUNK) * CHUNK;
    const int64_t       blocks = smaller(a->end - from, CHUNK), at = x % (a->count * CHUNK);
    const int64_t       kb = from + at % blocks;
    const unit         *keys = a->packed + kb * (p->kunits + p->vunits);
    strip s = { .i = at / blocks * STRIP, .j = kb * p->keys, .begun = kb > a->first,
                .keys = keys, .values = keys + p->kunits,
                .d = (desk *)(void *)a->k->s + x % 2 };
    s.rows = smaller(a->k->n - s.i, STRIP);
    s.n = smaller(a->k->keys - s.j, p->keys);
    return s;
}

static void score(const strips *a, const strip *s, softening *soft)
{
    const int64_t ldq = a->w->p.ldq;
    const product p = { .a = a->k->q + s->i * ldq, .lda = ldq, .b = s->keys,
                        .next = ldq * LANES, .deep = ldq / DEEP, .columns = vectors(s->n),
                        .c = s->d->s[0], .ldc = LDS };
    multiply(&p, soft);
}

static void sum_values(const strips *a, const strip *s, softening *soft)
{
    const int64_t dp = a->w->p.dp;
    const product p = { .a = s->d->p[0], .lda = LDP, .b = s->values,
                        .next = a->w->p.vunits / dp * LANES, .deep = LDP / DEEP,
                        .columns = dp / LANES, .c = a->k->o + s->i * dp, .ldc = dp,
                        .add = s->begun };
    multiply(&p, soft);
}

/* Turns whatever rows are left. */
static void soften_rest(softening *s)
{
    const curve k = curve_of(s);
    for (; s->row < s->rows; s->row++)
        soften_row(s->d, s->low, s->row, &k);
}

static softening soft_strip(const strips *a, const strip *s)
{
    return (softening){ .d = s->d, .low = a->k->low + s->i, .rows = s->rows, .scale = a->c,
                        .cubic = { CUBIC[0], CUBIC[1], CUBIC[2], CUBIC[3] } };
}

static void set_top(const block *k, int64_t i, float top)
{
    k->top[i] = top;
    k->low[i] = top == -INFINITY ? 0 : CUT - top;
}

/* Scores are there: what comes before their probabilities. Rows without a reference get the first
 * score, or where that is none the largest, which is -infinity as long as they see no key. */
static void prepare(const strips *a, const strip *s)
{
    const block *k = a->k;
    if (!a->touched && s->begun && s->n % TURN == 0)
        return;
    for (int64_t r = 0, i = s->i; r < s->rows; r++, i++) {
        float *row = s->d->s[r];
        if (a->touched || s->n % TURN)
            bias_and_mask(a->w, k, i, row, s->j, s->n, a->scaled, v_zero());
        if (k->top[i] == -INFINITY && (a->touched || !s->begun))
            set_top(k, i, a->c * (*row > -INFINITY ? *row : v_hmax(row_max(row, s->n))));
    }
}

/* Once more the probabilities of row r, which are too high, relative to the largest score. Values
 * of these keys are not yet added to o, and the next scores of this row not yet prepared. */
static void lift(const strips *a, const strip *s, int64_t r)
{
    const int64_t dp = a->w->p.dp, i = s->i + r;
    float *all = a->k->most + i * LANES;
    float  top = v_hmax(row_max(s->d->s[r], s->n)) * a->c;
    float  by = v_first(v_exp2(v_set(a->k->top[i] - top)));
    v_store(all, v_mul(v_load(all), v_set(by)));
    if (s->begun)
        rescale(a->k->o + i * dp, dp, by);
    set_top(a->k, i, top);
    softening again = soft_strip(a, s);
    again.row = r;
    again.rows = r + 1;
    soften_rest(&again);
}

/* Probabilities are there: their sums join those of earlier keys. */
static void settle(const strips *a, const strip *s)
{
    float *all = a->k->most + s->i * LANES;
    vf     most = v_zero();
    for (int64_t r = 0; r < s->rows; r++)
        most = v_max(v_load(s->d->sum[r]), most);
    if (_mm512_cmp_ps_mask(most, v_set(LIFT), _CMP_GT_OQ))
        for (int64_t r = 0; r < s->rows; r++)
            if (_mm512_cmp_ps_mask(v_load(s->d->sum[r]), v_set(LIFT), _CMP_GT_OQ))
                lift(a, s, r);
    for (int64_t r = 0; r < s->rows; r++)
        v_store(all + r * LANES, v_add(v_load(all + r * LANES), v_load(s->d->sum[r])));
}

/* In every turn of the loop: the scores of strip x, the probabilities of the one before, and the
 * values of the one before that. */
static void attend_strips(const strips *a, int64_t all)
{
    strip now, before = { .n = 0 }, first = before;
    for (int64_t x = 0; x < all + 2; x++, first = before, before = now) {
        softening soft = { .rows = 0 };
        fence();
        if (x > 0 && x <= all)
            soft = soft_strip(a, &before);
        now = before;
        if (x < all) {
            now = strip_of(a, x);
            score(a, &now, &soft);
        }
        if (x > 1)
            sum_values(a, &first, &soft);
        soften_rest(&soft);
        fence();
        if (x > 0 && x <= all)
            settle(a, &before);
        if (x < all)
            prepare(a, &now);
    }
}

static void attend_keys(const job *w, block *k, int64_t first, int64_t end, const unit *packed)
{
    strips a = { .w = w, .k = k, .packed = packed, .first = first,
                 .end = end, .scaled = scaled_first(w) };
    a.touched = a.scaled || w->a->bias.p || w->a->window || w->a->causal;
    const float by = v_first(v_exp2(v_set(-CUT)));
    a.count = (k->n + STRIP - 1) / STRIP;
    a.c = a.scaled ? 1 : w->a->scale * log2e;
    for (int64_t i = 0; i < k->n; i++) {
        k->top[i] = -INFINITY;
        v_store(k->most + i * LANES, v_zero());
    }
    xd_tiles_begin();
    if (end > first)
        attend_strips(&a, (end - first) * a.count);
    xd_tiles_end();
    for (int64_t i = 0; i < k->n; i++)
        k->l[i] = v_hadd(v_load(k->most + i * LANES)) * by;
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
