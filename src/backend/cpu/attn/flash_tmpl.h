/* flash_tmpl.h - computes attention block by block, in a file that is compiled once per instruction
 * set.
 *
 * Attention is computed by the algorithm FlashAttention (Dao et al. 2022), here for a CPU. For a
 * block of queries and a block of keys, the scores are computed first, then the exponentials of the
 * scores relative to the largest score so far, and then the weighted sums of the values. The
 * weighted sums are rescaled when a much larger score appears in a later block of keys. Because
 * scores are computed block by block, they stay in the cache. All exponentials are powers of two
 * (log2 e is part of the scale). flash_tmpl.h has the code that all instruction sets share:
 * packing, bias and masks, loops over blocks, and output. The matrix multiplications of attention
 * are in vector_tmpl.h and amx.c. The header plan.h explains the words unit, step and block.
 *
 * The including file defines these macros, types and functions:
 *   LANES              floats in a vector
 *   PAIRS              1 when a 32-bit unit is two bf16
 *   TILES              1 for AMX tile registers; packed keys and values are then padded with zeros
 *   QUADS              1 when a 32-bit unit of queries and keys is four int8
 *   STEP_KEYS          keys of a step: scores that become probabilities together, an even number of
 *                      vectors
 *   unit, vf, vu       a packed 32-bit unit, a vector of floats, a vector of units
 *   v_zero v_set v_load v_store v_add v_mul v_max v_fma v_exp2 v_hmax v_hadd
 *   v_first(x)         returns the first float of vector x
 *   v_keep(x, n)       returns the first n floats of vector x, with -infinity after them
 *   v_put_units(p, x)  stores a vector of units
 *   get_units(row, type, u, D)   returns LANES units of a row from unit u on, with zeros from
 *                                element D on
 *   get_values(r0, r1, type, c, D)       returns LANES columns of a value row (or of two rows,
 *                                        interleaved)
 *   transpose(v[LANES])          transposes LANES x LANES units
 *   put_out(p, type, x, n)       stores the first n floats of x, converted to `type`
 *   QROWS, SCORE_WIDTH queries of a score tile; vectors of keys in a score tile
 * The including file also defines measure_keys, place_keys, load_queries, left_out (floats_tmpl.h),
 * place_values and attend_keys, and wraps flash_scratch and flash_attn under its own names. */
#ifndef XD_BACKEND_CPU_ATTN_FLASH_TMPL_H
#define XD_BACKEND_CPU_ATTN_FLASH_TMPL_H

#include <math.h>
#include <string.h>

#include "backend/cpu/attn/plan.h"
#include "base/minmax.h"
#include "base/par.h"

enum {
    LINE = 64, /* number of bytes in a cache line */
    MOST_KEYS = QUADS ? XD_ATTN_INT_KEYS : XD_ATTN_KEYS,
};

static const float log2e = 1.44269504088896341f;

typedef struct job {
    const xd_attn_args *a;
    xd_attn_plan        p;
    char               *threads, *packed;
    /* number of the group's first (batch, key head) pair; number of pairs in the group */
    int64_t             first, count;
    /* number of work items that pack one key block of all (batch, key head) pairs of the group */
    int64_t             lots;
} job;

/* ---- packing ------------------------------------------------------------------------------ */

/* Returns the number of steps (of STEP_KEYS keys) for n keys. */
static int64_t step_count(int64_t n)
{
    return (n + STEP_KEYS - 1) / STEP_KEYS;
}

/* If WHOLE_STEPS is 1, the packed values are padded with zeros to a multiple of STEP_KEYS keys. */
enum { WHOLE_STEPS = TILES || QUADS };

/* Returns the number of the key whose value is in the low half of the packed 32-bit unit u. With
 * bf16 values, the high half of the unit holds the value of another key. If WHOLE_STEPS is 0, the
 * high half of a unit belongs to the next key. If WHOLE_STEPS is 1, the high half of a unit belongs
 * to the key 16 positions later within a group of 32 keys. With 16 positions between the keys of a
 * unit, two vectors of probabilities become 32-bit units without a shuffle across lanes. */
static int64_t key_of_unit(int64_t u)
{
    if (WHOLE_STEPS)
        return u / 16 * 32 + u % 16;
    return PAIRS ? 2 * u : u;
}

/* Returns the number of 32-bit units that hold the probabilities of n keys. */
static int64_t unit_count(int64_t n)
{
    return WHOLE_STEPS ? step_count(n) * STEP_KEYS / 2 : PAIRS ? (n + 1) / 2 : n;
}

/* Packs columns of n rows of values: nv vectors of columns, from column c on. The layout is
 * [unit][column], where a unit is 32 bits: the value of one key as a float, or of two keys as
 * bf16. */
static void pack_values(const job *w, const char **rows, int64_t n, int64_t c, int64_t nv, unit *to)
{
    const xd_attn_plan *p = &w->p;
    for (int64_t u = 0; u < unit_count(n); u++) {
        const int64_t j = key_of_unit(u), next = j + (WHOLE_STEPS ? 16 : 1);
        if (j >= n) {
            memset(to, 0, (size_t)(nv * LANES) * sizeof *to);
            to += nv * LANES;
            continue;
        }
        for (int64_t g = 0; g < nv; g++, to += LANES)
            v_put_units(to, get_values(rows[j], PAIRS && next < n ? rows[next] : NULL, w->a->q.type,
                                       c + g * LANES, p->D));
    }
}

static unit *packed_pair(const job *w, int64_t pair)
{
    return (unit *)(void *)(w->packed + (size_t)pair * w->p.pair_bytes);
}

/* Computes statistics over all keys of a group of (batch, key head) pairs before the keys are
 * packed. Only int8.c computes statistics of keys (their mean); in other files the function
 * measure_keys does nothing. */
static void measure_keys(job *w);

/* Packs n keys of a (batch, key head) pair, which form key block kb, in the layout that the
 * multiplications read. The packed block of keys is stored in the memory of this (batch, key head)
 * pair, which begins at `pair`. The array v holds the addresses of the values of the n keys, so
 * that place_keys can prefetch the values. */
static void place_keys(const job *w, const char **k, const char **v, int64_t n, int64_t kb,
                       unit *pair);

/* Packs n rows of values of a (batch, key head) pair, which belong to key block kb, in the layout
 * that the multiplications read. The packed block of values is stored in the memory of this (batch,
 * key head) pair, which begins at `pair`. */
static void place_values(const job *w, const char **rows, int64_t n, int64_t kb, unit *pair);

/* Prefetches a row of keys or values into the L2 cache. The hardware prefetcher does not predict
 * the next row of a head, because the rows of a head are far apart in memory. */
static inline void prefetch_row(const char *row, size_t bytes)
{
    for (size_t c = 0; c < bytes; c += LINE)
        __builtin_prefetch(row + c, 0, 2);
    if (bytes)
        __builtin_prefetch(row + bytes - 1, 0, 2);
}

static void prefetch_rows(const char **rows, int64_t from, int64_t to, size_t bytes)
{
    for (int64_t i = from; i < to; i++)
        prefetch_row(rows[i], bytes);
}

static void pack_block(const job *w, int64_t pair, int64_t kb)
{
    const xd_attn_plan *p = &w->p;
    const char         *k[MOST_KEYS], *v[MOST_KEYS];
    int64_t             b = (w->first + pair) / p->Hk, h = (w->first + pair) % p->Hk;
    int64_t             j0 = kb * p->keys, n = xd_min(xd_attn_len(w->a, b, p->m) - j0, p->keys);
    unit               *all = packed_pair(w, pair);
    if (n <= 0)
        return;
    xd_attn_rows(w->a, b, h, j0, n, k, v);
    place_keys(w, k, v, n, kb, all);
    place_values(w, v, n, kb, all);
}

static void pack_job(void *ctx, int64_t begin, int64_t end, int thread)
{
    const job *w = ctx;
    (void)thread;
    const int64_t pairs = w->count / w->lots;
    for (int64_t i = begin; i < end; i++)
        for (int64_t x = 0; x < pairs; x++)
            pack_block(w, i % w->lots * pairs + x, i / w->lots);
}

/* ---- one block of queries ----------------------------------------------------------------- */

typedef struct block {
    /* sample, query head, first query and number of queries of the block */
    int64_t     b, h, i0, n;
    int64_t     keys; /* number of keys of the sample to which the queries may attend */
    unit       *q;    /* [n][ldq] packed queries, in 32-bit units */
    float      *s; /* [n][LDS] scores, then probabilities; with AMX tiles, the workspace of amx.c */
    float      *o; /* [n][dp] accumulators of the weighted sums of values */
    /* [n][LANES] for each row and each vector lane, the largest score in this key block. With AMX
     * tiles, the array lane_max holds the sums of all probabilities instead. */
    float      *lane_max;
    /* [n][LANES] for each row and each vector lane, the sum of the probabilities in this key block.
     * With AMX tiles, the array `sum` holds instead the number that is added to each row's scaled
     * scores. */
    float      *sum;
    float      *l; /* [n] the sums of the probabilities of earlier key blocks */
    /* [n] `top` is the reference score of each row, as an exponent of two; all probabilities of the
     * row are computed relative to this reference score. The array `low` is -top, or 0 where `top`
     * is -infinity. */
    float      *top, *low;
    int         begun;                 /* 1: `o` holds sums over earlier key blocks */
    const char *in[XD_ATTN_TILE_ROWS]; /* addresses of the rows of queries */
    /* addresses of the query rows of the next block; for the last block, addresses of any valid
     * rows */
    const char *next[XD_ATTN_TILE_ROWS];
    char       *out[XD_ATTN_TILE_ROWS]; /* addresses of the output rows */
} block;

/* Prefetches output row i of the block, and a query row of the next block of queries. The next
 * block of queries usually belongs to the head of the current block. */
static inline void prefetch_next_block(const block *k, int64_t i, size_t out_bytes, size_t bytes)
{
    for (size_t c = 0; c < out_bytes; c += LINE)
        __builtin_prefetch(k->out[i] + c, 1, 2);
    prefetch_row(k->next[i], bytes);
}

static void find_rows(const job *w, block *k)
{
    const int64_t i = k->i0 + w->p.rows, left = i < w->p.n ? xd_min(w->p.n - i, k->n) : 0;
    xd_attn_queries(w->a, k->b, k->h, k->i0, k->n, k->in, k->out);
    xd_attn_queries(w->a, k->b, k->h, i, left, k->next, NULL);
    for (int64_t r = left; r < k->n; r++)
        k->next[r] = k->in[r];
}

/* Packs the queries of block k into k->q. */
static void load_queries(const job *w, const block *k);

static void put_row(const xd_attn_plan *p, char *row, xd_dtype type, const float *from, float by)
{
    const vf      r = v_set(by);
    const int64_t size = type == XD_F32 ? 4 : 2;
    int64_t       c = 0;
    for (; c + LANES <= p->D; c += LANES)
        put_out(row + c * size, type, v_mul(r, v_load(from + c)), LANES);
    if (c < p->D)
        put_out(row + c * size, type, v_mul(r, v_load(from + c)), p->D - c);
}

/* Returns the part of row i's scores that is the same for all keys and that the multiplications
 * omit: in int8.c, the dot product of the query and the mean of the keys; in other files, 0. */
static double left_out(const job *w, const block *k, int64_t i);

static void store_rows(const job *w, const block *k)
{
    const xd_tensor *e = &w->a->lse;
    if (!k->begun)
        memset(k->o, 0, (size_t)(k->n * w->p.dp) * sizeof *k->o);
    for (int64_t i = 0; i < k->n; i++) {
        float l = k->l[i];
        put_row(&w->p, k->out[i], w->a->out.type, k->o + i * w->p.dp, l != 0 ? 1 / l : 0);
        if (e->p)
            ((float *)e->p)[k->b * e->s[0] + (k->i0 + i) * e->s[1] + k->h * e->s[2]] =
                l != 0 ? (float)(((double)k->top[i] + log2((double)l)) * 0.693147180559945309 +
                                 left_out(w, k, i))
                       : -INFINITY;
    }
}

/* Processes key blocks `first` to `end` for the queries of block k: updates the accumulators, sums
 * and reference scores (fields o, l and top of k), and prefetches the output rows and the queries
 * of the next block. `packed` holds the packed keys and values of the block's (batch, key head)
 * pair. */
static void attend_keys(const job *w, block *k, int64_t first, int64_t end, const unit *packed);

static void attend_item(const job *w, int64_t item, int thread)
{
    const xd_attn_plan *p = &w->p;
    char               *mine = w->threads + (size_t)thread * p->thread_bytes;
    int64_t             pair = item / (p->rep * p->blocks), lo, hi, none;
    block               k = { .q = (unit *)(void *)(mine + p->q),
                              .s = (float *)(void *)(mine + p->s),
                              .o = (float *)(void *)(mine + p->o),
                              .sum = (float *)(void *)(mine + p->ml) };
    k.lane_max = k.sum + p->max_rows * LANES;
    k.top = k.lane_max + p->max_rows * LANES;
    k.low = k.top + p->max_rows;
    k.l = k.low + p->max_rows;
    k.b = (w->first + pair) / p->Hk;
    k.h = (w->first + pair) % p->Hk * p->rep + item / p->blocks % p->rep;
    k.i0 = item % p->blocks * p->rows;
    k.n = xd_min(p->n - k.i0, p->rows);
    k.keys = xd_attn_len(w->a, k.b, p->m);
    find_rows(w, &k);
    load_queries(w, &k);
    xd_attn_range(w->a, k.i0, k.keys, &lo, &none);
    xd_attn_range(w->a, k.i0 + k.n - 1, k.keys, &none, &hi);
    attend_keys(w, &k, lo / p->keys, (hi + p->keys - 1) / p->keys, packed_pair(w, pair));
    store_rows(w, &k);
}

static void attend_job(void *ctx, int64_t begin, int64_t end, int thread)
{
    for (int64_t i = begin; i < end; i++)
        attend_item(ctx, i, thread);
}

/* ---- the call ----------------------------------------------------------------------------- */

static const xd_attn_form form = { LANES, PAIRS, TILES, QUADS };

static size_t flash_scratch(const xd_attn_args *a, int threads)
{
    return xd_attn_bytes(a, threads, &form);
}

static xd_status flash_attn(const xd_attn_args *a, void *tmp)
{
    job       w = { .a = a, .threads = tmp };
    int       threads = xd_par_threads();
    xd_status st = xd_attn_check(a, XD_TYPES_F32_BF16);
    if (st != XD_OK)
        return st;
    xd_attn_cut(&w.p, a, threads, &form);
    w.packed = w.threads + w.p.thread_bytes * (size_t)threads;
    for (; w.first < w.p.B * w.p.Hk && w.p.blocks; w.first += w.p.group) {
        w.count = xd_min(w.p.group, w.p.B * w.p.Hk - w.first);
        w.lots = w.p.kblocks < 4 * threads ? w.count : 1;
        measure_keys(&w);
        xd_par_dynamic(w.lots * w.p.kblocks, pack_job, &w);
        xd_par_dynamic(w.count * w.p.rep * w.p.blocks, attend_job, &w);
    }
    return XD_OK;
}

#endif
