/* amx_tile.h - products by tile registers, see amx_block.h. Who includes this has defined TILE_DOT,
 * the product of tiles, and either TILED_IN_PLACE, where weights are packed as amx_block.h says, or
 * near_strips: where `strips` of them from `strip` on, of chunk [k, k + ks), lie so.
 *
 * While tiles are multiplied there is time for much else: the rows of the next step are copied, what is
 * needed later is asked for, and the sums of the block before get their epilogue (finish.h). */
#ifndef XD_BACKEND_CPU_GEMM_AMX_TILE_H
#define XD_BACKEND_CPU_GEMM_AMX_TILE_H

#include "backend/cpu/amx.h"
#include "backend/cpu/gemm/amx_block.h"
#include "backend/cpu/gemm/finish.h"
#include "base/par.h"

#ifdef TILED_IN_PLACE
static const char *near_strips(const xd_tiled *t, int64_t strip, int64_t strips, int64_t k, int64_t ks,
                               char *place)
{
    (void)strips;
    (void)place;
    return t->of.w + (k * t->strips + strip * ks) * XD_PAIR_BYTES;
}
#endif

/* Memory that is asked for some lines at a time. */
typedef struct ahead { const char *p; int64_t stride, lines; } ahead;

/* Sums that wait for their epilogue: rows [r0, r0 + n), columns from c0 on; row `done` is next. */
typedef struct late { const float *sums; int64_t r0, c0, n, done; } late;

/* 32 rows by 32 columns of a chunk. */
typedef struct block {
    const char *a;              /* the rows as tiles                                          */
    const char *b;
    float      *from, *to;      /* sums so far, or NULL; of now                               */
    int64_t     ks, r0, c0, n;  /* steps; rows and columns of the output                      */
    const char *rows;           /* copied to `near` first, or NULL; `left` bytes each         */
    char       *near;
    int64_t     left;
    ahead       weights, input; /* of each step, lines of the next chunk, and of the next rows  */
    const float *soon;          /* the sums that wait for the next block                      */
    int         last;           /* the output follows                                         */
} block;

/* ---- beside the tiles ---------------------------------------------------------------------- */

/* Step k of n rows: up to 64 bytes each, zeros behind their ends and behind the last row. */
FINISH_INLINE void copy_step(const xd_tiled *t, const block *b, int64_t k)
{
    const int64_t   left = b->left - k * XD_STEP_BYTES;
    const __mmask64 m = left >= 64 ? ~0ull : (1ull << left) - 1;
    const char     *from = b->rows + k * XD_STEP_BYTES;
    char           *to = b->near + k * XD_PAIR_BYTES;
    int64_t         i = 0;
    for (; i < b->n; i++)
        _mm512_store_si512(to + i * XD_STEP_BYTES, _mm512_maskz_loadu_epi8(m, from + i * t->of.ldi));
    for (; i < XD_SIDE; i++)
        _mm512_store_si512(to + i * XD_STEP_BYTES, _mm512_setzero_si512());
}

FINISH_INLINE void ask(const ahead *a, int64_t k)
{
    for (int64_t i = 0; i < a->lines; i++)
        _mm_prefetch(a->p + k * XD_STEP_BYTES + i * a->stride, _MM_HINT_T1);
}

/* The output's and the residual's lines of row i of a block. */
FINISH_INLINE void ask_output(const xd_tiled *t, const block *b, int64_t i)
{
    const xd_gemm *a = t->of.a;
    const int64_t  end = t->of.N - b->c0 < XD_SIDE ? t->of.N - b->c0 : XD_SIDE;
    if (i >= b->n)
        return;
    _mm_prefetch(place_of(&a->out, b->r0 + i, b->c0), _MM_HINT_T0);
    _mm_prefetch(place_of(&a->out, b->r0 + i, b->c0 + end - 1), _MM_HINT_T0);
    if (!a->residual.p || a->residual.p == a->out.p)
        return;
    _mm_prefetch(place_of(&a->residual, b->r0 + i, b->c0), _MM_HINT_T0);
    _mm_prefetch(place_of(&a->residual, b->r0 + i, b->c0 + end - 1), _MM_HINT_T0);
}

FINISH_INLINE void late_row(const xd_product *p, late *l, xd_act act)
{
    const int64_t i = l->done, r = l->r0 + i;
    if (i >= l->n)
        return;
    l->done++;
    for (int64_t j = 0, c = l->c0; j < 2 && c < p->N; j++, c += 16) {
        const finish_cols k = columns_at(p, c);
        const float      *sum = l->sums + (i / 16 * 2 + j) * 256 + i % 16 * 16;
        finish_vector(p, sum, p->row ? p->row + r : NULL, &k, place_of(&p->a->out, r, c),
                      p->a->residual.p ? place_of(&p->a->residual, r, c) : NULL, act);
    }
}

/* ---- tiles --------------------------------------------------------------------------------- */

FINISH_INLINE void load_sums(const float *c)
{
    if (!c) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        return;
    }
    _tile_loadd(0, c, 64);
    _tile_loadd(1, c + 256, 64);
    _tile_loadd(2, c + 512, 64);
    _tile_loadd(3, c + 768, 64);
}

/* Weights are not to push the rows out of the first cache. */
FINISH_INLINE void step_of_tiles(const char *a, const char *b, int more)
{
    _tile_stream_loadd(6, b, 64);
    _tile_loadd(4, a, 64);
    TILE_DOT(0, 4, 6);
    _tile_stream_loadd(7, b + 1024, 64);
    TILE_DOT(1, 4, 7);
    if (!more)
        return;
    _tile_loadd(5, a + 1024, 64);
    TILE_DOT(2, 5, 6);
    TILE_DOT(3, 5, 7);
}

/* Of an epilogue that waits, two rows a step at least are done in each. */
FINISH_INLINE void block_as(const xd_tiled *t, const block *b, late *l, xd_act act)
{
    const int64_t per = (XD_SIDE + b->ks - 1) / b->ks;
    load_sums(b->from);
    if (b->rows)
        copy_step(t, b, 0);
    for (int64_t k = 0; k < b->ks; k++) {
        if (b->rows && k + 1 < b->ks)
            copy_step(t, b, k + 1);
        step_of_tiles(b->a + k * XD_PAIR_BYTES, b->b + k * XD_PAIR_BYTES, b->n > 16);
        ask(&b->weights, k * b->weights.lines);
        ask(&b->input, k);
        if (b->soon)
            for (int64_t i = 0; i < 4; i++)
                _mm_prefetch((const char *)b->soon + (k * 4 + i) % 64 * 64, _MM_HINT_T0);
        for (int64_t i = 0; i < per && b->last; i++)
            ask_output(t, b, k * per + i);
        for (int64_t i = 0; i < per; i++)
            late_row(&t->of, l, act);
    }
    _tile_stored(0, b->to, 64);
    _tile_stored(1, b->to + 256, 64);
    if (b->n <= 16)
        return;
    _tile_stored(2, b->to + 512, 64);
    _tile_stored(3, b->to + 768, 64);
}

#define ALL_ACTS(X) X(XD_NONE) X(XD_GELU_TANH) X(XD_GELU_ERF) X(XD_SILU) X(XD_RELU) X(XD_GELU_QUICK)
#define BLOCK_WITH(act)                                                                            \
    static void block_##act(const xd_tiled *t, const block *b, late *l) { block_as(t, b, l, act); } \
    static void finish_##act(const xd_tiled *t, late *l)                                           \
    {                                                                                              \
        while (l->done < l->n)                                                                     \
            late_row(&t->of, l, act);                                                              \
    }
ALL_ACTS(BLOCK_WITH)

typedef struct block_fns {
    void (*block)(const xd_tiled *t, const block *b, late *l);
    void (*finish)(const xd_tiled *t, late *l);
} block_fns;

static block_fns fns_of(xd_act act)
{
    switch (act) {
#define FNS_CASE(act)                                                                              \
    case act: return (block_fns){ block_##act, finish_##act };
    ALL_ACTS(FNS_CASE)
    default: return (block_fns){ block_XD_NONE, finish_XD_NONE };
    }
}

/* ---- a block of rows and a group of columns ------------------------------------------------ */

typedef struct piece {
    const xd_tiled *t;
    block_fns       fn;
    int64_t         r0, rows, s0, strips;
    char           *near_rows, *expanded;
    float          *waiting;
    float           sums[2][XD_SUMS] __attribute__((aligned(64)));     /* in turn              */
    int             turn;
    late            late;
} piece;

static int64_t chunk_steps(const xd_tiled *t, int64_t k)
{
    return t->steps - k < t->deep ? t->steps - k : t->deep;
}

/* Rows from r on, from step k on, as they lie before they are near. */
static const char *rows_at(const xd_tiled *t, int64_t r, int64_t k)
{
    return t->ready ? t->of.in + (r * t->steps + k * XD_SIDE) * XD_STEP_BYTES
                    : t->of.in + r * t->of.ldi + k * XD_STEP_BYTES;
}

/* What strip j of the group asks for of the 32 rows that come after those from r on. */
static ahead next_rows(const piece *p, int64_t r, int64_t k, int64_t j)
{
    const xd_tiled *t = p->t;
    int64_t         from = j * XD_SIDE / p->strips, to = (j + 1) * XD_SIDE / p->strips, stride;
    r += XD_SIDE;
    if (r >= p->r0 + p->rows) {
        r = p->r0;
        k += t->deep;
    }
    if (k >= t->steps)
        return (ahead){ 0 };
    stride = t->ready ? chunk_steps(t, k) * XD_STEP_BYTES : t->of.ldi;
    to = t->ready || to < t->of.M - r ? to : t->of.M - r;
    return to > from ? (ahead){ rows_at(t, r, k) + from * stride, stride, to - from } : (ahead){ 0 };
}

/* A part of `next`, lines of weights, that falls to strip j at the rows from r on. */
static ahead next_weights(const piece *p, const ahead *next, int64_t r, int64_t j, int64_t ks)
{
    int64_t blocks = (p->rows + XD_SIDE - 1) / XD_SIDE * p->strips;
    int64_t at = (r - p->r0) / XD_SIDE * p->strips + j;
    int64_t from = next->lines * at / blocks, to = next->lines * (at + 1) / blocks;
    return (ahead){ next->p + from * 64, 64, (to - from + ks - 1) / ks };
}

/* 32 rows against all strips of a chunk. */
static void run_rows(piece *p, int64_t r, int64_t k, const char *weights, const ahead *next)
{
    const xd_tiled *t = p->t;
    const int64_t   ks = chunk_steps(t, k), left = p->r0 + p->rows - r;
    const int       last = k + ks == t->steps;
    for (int64_t j = 0; j < p->strips; j++) {
        float *c = p->waiting ? p->waiting + ((r - p->r0) * p->strips + j * XD_SIDE) * XD_SIDE : NULL;
        float *own = p->sums[p->turn ^= 1];
        block  b = { .a = p->near_rows, .near = p->near_rows, .b = weights + j * ks * XD_PAIR_BYTES, .from = k ? c : NULL,
                     .to = last ? own : c, .ks = ks, .r0 = r, .c0 = (p->s0 + j) * XD_SIDE,
                     .n = left < XD_SIDE ? left : XD_SIDE, .left = t->row_bytes - k * XD_STEP_BYTES,
                     .input = next_rows(p, r, k, j), .soon = c ? c + XD_SUMS : NULL, .last = last };
        if (next->p)
            b.weights = next_weights(p, next, r, j, ks);
        if (t->ready)
            b.a = rows_at(t, r, k);
        else if (j == 0)
            b.rows = rows_at(t, r, k);
        p->fn.block(t, &b, &p->late);
        if (last) {
            p->fn.finish(t, &p->late);
            p->late = (late){ own, r, b.c0, b.n, 0 };
        }
    }
}

/* Threads that work at the same time have the same weights as far as there are blocks of rows. */
static void place_piece(piece *p, const xd_tiled *t, int64_t i)
{
    int64_t r0 = i % t->blocks * t->rows, s0 = i / t->blocks * t->group;
    p->t = t;
    p->r0 = r0;
    p->rows = t->of.M - r0 < t->rows ? t->of.M - r0 : t->rows;
    p->s0 = s0;
    p->strips = t->strips - s0 < t->group ? t->strips - s0 : t->group;
}

/* The weights after those of step k: the next chunk's, or the first of what this thread will take. */
static ahead weights_after(const piece *p, int64_t k, int64_t i)
{
    const xd_tiled *t = p->t;
#ifdef TILED_IN_PLACE
    piece other = *p;
    k += t->deep;
    if (k >= t->steps) {
        k = 0;
        i += xd_par_threads();
        if (i >= t->blocks * t->groups)
            return (ahead){ 0 };
        place_piece(&other, t, i);
        if (other.s0 == p->s0 && t->steps <= t->deep)
            return (ahead){ 0 };
    }
    const int64_t ks = chunk_steps(t, k);
    return (ahead){ near_strips(t, other.s0, other.strips, k, ks, NULL), 64, other.strips * ks * 32 };
#else
    (void)t;
    (void)k;
    (void)i;
    return (ahead){ 0 };
#endif
}

static void run_piece(void *ctx, int64_t begin, int64_t end, int thread)
{
    const xd_tiled *t = ctx;
    piece           p;
    p.fn = fns_of(t->of.a->act);
    p.near_rows = t->of.tmp + (size_t)thread * t->tmp_bytes;
    p.waiting = t->sum_bytes ? (float *)(void *)(p.near_rows + t->near_bytes) : NULL;
    p.expanded = p.near_rows + t->near_bytes + t->sum_bytes;
    p.turn = 0;
    p.late = (late){ 0 };
    xd_tiles_begin();
    for (int64_t i = begin; i < end; i++) {
        place_piece(&p, t, i);
        for (int64_t k = 0; k < t->steps; k += t->deep) {
            const char *w = near_strips(t, p.s0, p.strips, k, chunk_steps(t, k), p.expanded);
            const ahead next = weights_after(&p, k, i);
            for (int64_t r = p.r0; r < p.r0 + p.rows; r += XD_SIDE)
                run_rows(&p, r, k, w, &next);
        }
        p.fn.finish(t, &p.late);
    }
    xd_tiles_end();
}

static void tiled_run(xd_tiled *t)
{
    xd_par_deal(t->blocks * t->groups, run_piece, t);
}

#endif
