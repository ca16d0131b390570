/* flash.h - the blocked attention itself, compiled once for every instruction set.
 *
 * Dao et al. 2022 (FlashAttention), for a CPU: for a block of queries, scores against a block
 * of keys, their exponentials relative to the largest score so far, and the weighted sum of
 * values, which is rescaled whenever a larger score turns up; so scores never leave the cache.
 * All exponentials are powers of two (log2 e is part of the scale).
 *
 * Who includes this file has defined:
 *   LANES, PAIRS       floats of a vector; 1 when a unit is two bf16
 *   unit, vf, vu       a packed element, a vector of floats, a vector of units
 *   v_zero v_set v_load v_store v_add v_mul v_max v_fma v_exp2 v_hmax v_hadd
 *   v_first(x)         its first float
 *   v_units(p) v_put_units(p, x) v_no_units()          vectors of units
 *   v_spread(p) v_dot(acc, x, y)                       of the products
 *   get_units(row, type, u, D)   LANES units of a row from unit u on, zeros from D elements on
 *   get_values(r0, r1, type, c, D)       LANES columns of a value row (or two, interleaved)
 *   transpose(v[LANES])          the LANES x LANES units of v
 *   put_probs(row, j, x)         LANES probabilities from j on, as units of the row
 *   put_out(p, type, x, n)       the first n floats of x, converted
 *   QROWS, SCORE_TILES[], SCORE_WIDTH    score tiles by width in vectors, all QROWS tall
 *   SUM_TILES[], SUM_ROWS[], sum_width(left)   tiles of the value product and which to take
 * and wraps flash_scratch and flash_attn under its own names. */
#ifndef XD_BACKEND_CPU_ATTN_FLASH_H
#define XD_BACKEND_CPU_ATTN_FLASH_H

#include <math.h>
#include <string.h>

#include "backend/cpu/attn/plan.h"
#include "base/par.h"

enum {
    LDS = XD_ATTN_LDS,
    KCHUNK = 160,               /* units of a score product at a time: its panel stays in L1   */
};

static const float log2e = 1.44269504088896341f;

typedef struct job {
    const xd_attn_args *a;
    xd_attn_plan        p;
    char               *threads, *packed;
    int64_t             first, count;   /* of the pairs of this group                         */
} job;

/* ---- packing ------------------------------------------------------------------------------- */

/* Keys j0 .. of `rows`, `nv` vectors wide, become [unit][key]. */
static void pack_keys(const job *w, const char **rows, int64_t n, int64_t nv, unit *to)
{
    const xd_attn_plan *p = &w->p;
    for (int64_t g = 0; g < nv; g++)
        for (int64_t u = 0; u < p->du; u += LANES) {
            vu      v[LANES];
            int64_t left = p->du - u < LANES ? p->du - u : LANES;
            for (int64_t j = 0; j < LANES; j++)
                v[j] = g * LANES + j < n
                           ? get_units(rows[g * LANES + j], w->a->q.type, u, p->D)
                           : v_no_units();
            transpose(v);
            for (int64_t k = 0; k < left; k++)
                v_put_units(to + ((u + k) * nv + g) * LANES, v[k]);
        }
}

/* Columns c .. of all n value rows become [unit of keys][column]. */
static void pack_values(const job *w, const char **rows, int64_t n, int64_t c, int64_t nv,
                        unit *to)
{
    const xd_attn_plan *p = &w->p;
    for (int64_t j = 0; j < n; j += 1 + PAIRS)
        for (int64_t g = 0; g < nv; g++, to += LANES)
            v_put_units(to, get_values(rows[j], PAIRS && j + 1 < n ? rows[j + 1] : NULL,
                                       w->a->q.type, c + g * LANES, p->D));
}

static unit *packed_block(const job *w, int64_t pair, int64_t kb)
{
    const xd_attn_plan *p = &w->p;
    return (unit *)(void *)(w->packed + (size_t)pair * p->pair_bytes) +
           kb * (p->kunits + p->vunits);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t vectors(int64_t n)
{
    return (n + LANES - 1) / LANES;
}

static void pack_block(const job *w, int64_t pair, int64_t kb)
{
    const xd_attn_plan *p = &w->p;
    const char         *k[XD_ATTN_KEYS], *v[XD_ATTN_KEYS];
    int64_t b = (w->first + pair) / p->Hk, h = (w->first + pair) % p->Hk;
    int64_t j0 = kb * p->keys, n = smaller(xd_attn_len(w->a, b, p->m) - j0, p->keys);
    unit   *to = packed_block(w, pair, kb);
    if (n <= 0)
        return;
    xd_attn_rows(w->a, b, h, j0, n, k, v);
    for (int64_t j = 0; j < n; j += SCORE_WIDTH * LANES)
        pack_keys(w, k + j, n - j, smaller(vectors(n - j), SCORE_WIDTH), to + j * p->du);
    to += p->kunits;
    for (int64_t c = 0, nv; c < p->dp; c += nv * LANES) {
        nv = sum_width((p->dp - c) / LANES);
        pack_values(w, v, n, c, nv, to + c * (p->vunits / p->dp));
    }
}

static void pack_job(void *ctx, int64_t begin, int64_t end, int thread)
{
    const job *w = ctx;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        pack_block(w, i / w->p.kblocks, i % w->p.kblocks);
}

/* ---- one block of queries ------------------------------------------------------------------ */

typedef struct block {
    int64_t b, h, i0, n;        /* batch, query head, first query, queries                    */
    int64_t keys;               /* that this batch may see                                    */
    unit   *q;                  /* [n][ldq]                                                   */
    float  *s;                  /* [n][LDS] scores, then probabilities                        */
    float  *o;                  /* [n][dp] sums of values                                     */
    float  *top, *l;            /* [n] largest score so far, in powers of two; sum            */
    int     begun;              /* o holds sums of earlier key blocks                         */
} block;

static void load_queries(const job *w, const block *k)
{
    const xd_tensor *q = &w->a->q;
    int64_t          rows = (k->n + QROWS - 1) / QROWS * QROWS;
    for (int64_t i = 0; i < k->n; i++) {
        const char *row = (const char *)q->p + (k->b * q->s[0] + (k->i0 + i) * q->s[1] +
                                                k->h * q->s[2]) *
                                                   (int64_t)xd_dtype_size(q->type);
        for (int64_t u = 0; u < w->p.du; u += LANES)
            v_put_units(k->q + i * w->p.ldq + u, get_units(row, q->type, u, w->p.D));
    }
    memset(k->q + k->n * w->p.ldq, 0, (size_t)((rows - k->n) * w->p.ldq) * 4);
}

/* Tiles are taller than the block's last rows: what they read there is zero. */
static void clear(const block *k)
{
    if (k->n % 12)
        memset(k->s + k->n * LDS, 0, (size_t)(12 * LDS) * sizeof(float));
    for (int64_t i = 0; i < k->n; i++) {
        k->top[i] = -INFINITY;
        k->l[i] = 0;
    }
}

static void scores(const job *w, const block *k, int64_t n, const unit *keys)
{
    const xd_attn_plan *p = &w->p;
    for (int64_t j = 0; j < n; j += SCORE_WIDTH * LANES) {
        int64_t  nv = smaller(vectors(n - j), SCORE_WIDTH);
        tile_fn *tile = SCORE_TILES[nv];
        for (int64_t u = 0; u < p->du; u += KCHUNK)
            for (int64_t i = 0; i < k->n; i += QROWS)
                tile(smaller(p->du - u, KCHUNK), k->q + i * p->ldq + u, p->ldq,
                     keys + j * p->du + u * nv * LANES, k->s + i * LDS + j, LDS, u > 0);
    }
}

static void sums(const job *w, const block *k, int64_t n, const unit *values)
{
    const xd_attn_plan *p = &w->p;
    for (int64_t c = 0, nv; c < p->dp; c += nv * LANES) {
        nv = sum_width((p->dp - c) / LANES);
        for (int64_t i = 0; i < k->n; i += SUM_ROWS[nv])
            SUM_TILES[nv](PAIRS ? (n + 1) / 2 : n, (const unit *)(const void *)(k->s + i * LDS),
                          LDS, values + c * (p->vunits / p->dp), k->o + i * p->dp + c, p->dp,
                          k->begun);
    }
}

/* s = c s + bias log2(e): scores in powers of two. */
static void scale_and_bias(const job *w, const block *k, int64_t i, int64_t j0, int64_t n)
{
    const xd_tensor *t = &w->a->bias;
    const float      c = w->a->scale * log2e;
    float            row[XD_ATTN_KEYS], *s = k->s + i * LDS;
    for (int64_t j = 0; j < n; j++)
        row[j] = 0;
    if (t->p) {
        const float *bias = (const float *)t->p + k->h * t->s[0] + (k->i0 + i) * t->s[1];
        for (int64_t j = 0; j < n; j++)
            row[j] = bias[(j0 + j) * t->s[2]] * log2e;
    }
    for (int64_t j = 0; j < n; j++)
        s[j] = s[j] * c + row[j];
}

/* Scores outside [lo, hi) of the block's n keys count as -infinity, and so does the padding. */
static void mask(float *s, int64_t lo, int64_t hi, int64_t n)
{
    for (int64_t j = 0; j < lo; j++)
        s[j] = -INFINITY;
    for (int64_t j = hi; j < vectors(n) * LANES; j++)
        s[j] = -INFINITY;
}

static void rescale(float *o, int64_t n, float by)
{
    const vf f = v_set(by);
    for (int64_t c = 0; c < n; c += LANES)
        v_store(o + c, v_mul(f, v_load(o + c)));
}

static float row_max(const float *s, int64_t n)
{
    vf m0 = v_load(s), m1 = m0;
    for (int64_t j = LANES; j + LANES < n; j += 2 * LANES) {
        m0 = v_max(m0, v_load(s + j));
        m1 = v_max(m1, v_load(s + j + LANES));
    }
    if (vectors(n) % 2 == 0)
        m1 = v_max(m1, v_load(s + (vectors(n) - 1) * LANES));
    return v_hmax(v_max(m0, m1));
}

/* The row's maximum joins the largest so far; sum and output row follow it. */
static void lift(const job *w, const block *k, int64_t i, int64_t n, float c)
{
    float top = row_max(k->s + i * LDS, n) * c;
    if (top <= k->top[i])               /* not so when it is not a number                     */
        return;
    if (k->top[i] > -INFINITY) {        /* else sums are still zero, or not there              */
        float by = v_first(v_exp2(v_set(k->top[i] - top)));
        k->l[i] *= by;
        rescale(k->o + i * w->p.dp, w->p.dp, by);
    }
    k->top[i] = top;
}

/* The row's scores become 2^(c s - top). Without a maximum all are -infinity, and become 0, or
 * not numbers, which the vector maximum may overlook, and stay so. */
static void soften(const block *k, int64_t i, int64_t n, float c)
{
    float   *s = k->s + i * LDS;
    const vf vc = v_set(c), vt = v_set(k->top[i] == -INFINITY ? 0 : -k->top[i]);
    vf       sum = v_zero();
    for (int64_t j = 0; j < n; j += LANES) {
        const vf x = v_exp2(v_fma(v_load(s + j), vc, vt));
        sum = v_add(sum, x);
        put_probs(s, j, x);
    }
    k->l[i] += v_hadd(sum);
}

static void bias_and_mask(const job *w, const block *k, int64_t i, int64_t j0, int64_t n,
                          int scaled)
{
    int64_t lo = 0, hi = n;
    if (w->a->window || w->a->causal) {
        xd_attn_range(w->a, k->i0 + i, k->keys, &lo, &hi);
        lo = lo < j0 ? 0 : smaller(lo - j0, n);
        hi = hi < j0 ? 0 : smaller(hi - j0, n);
    }
    if (scaled)
        scale_and_bias(w, k, i, j0, n);
    if (lo > 0 || hi < n || n % LANES)
        mask(k->s + i * LDS, lo, hi, n);
}

/* A few rows at a time, so that the maxima of one do not wait for the exponentials of another,
 * and both find the scores in L1. */
static void one_key_block(const job *w, block *k, int64_t kb, const unit *keys)
{
    int64_t j0 = kb * w->p.keys, n = smaller(k->keys - j0, w->p.keys);
    float   c = w->a->scale * log2e;
    int     scaled = w->a->bias.p || !(c > 0);  /* the maximum is taken after scaling          */
    scores(w, k, n, keys);
    for (int64_t g = 0; g < k->n; g += QROWS) {
        int64_t end = smaller(g + QROWS, k->n);
        for (int64_t i = g; i < end; i++) {
            bias_and_mask(w, k, i, j0, n, scaled);
            lift(w, k, i, n, scaled ? 1 : c);
        }
        for (int64_t i = g; i < end; i++)
            soften(k, i, n, scaled ? 1 : c);
    }
    sums(w, k, n, keys + w->p.kunits);
    k->begun = 1;
}

static void finish(const job *w, const block *k)
{
    const xd_tensor *o = &w->a->out, *e = &w->a->lse;
    int64_t          D = w->p.D;
    for (int64_t i = 0; i < k->n; i++) {
        float l = k->l[i];
        vf    r = v_set(l != 0 ? 1 / l : 0);
        char *row = (char *)o->p + (k->b * o->s[0] + (k->i0 + i) * o->s[1] + k->h * o->s[2]) *
                                       (int64_t)xd_dtype_size(o->type);
        for (int64_t c = 0; c < D; c += LANES)
            put_out(row + c * (int64_t)xd_dtype_size(o->type), o->type,
                    k->begun ? v_mul(r, v_load(k->o + i * w->p.dp + c)) : v_zero(),
                    smaller(D - c, LANES));
        if (e->p)
            ((float *)e->p)[k->b * e->s[0] + (k->i0 + i) * e->s[1] + k->h * e->s[2]] =
                l != 0 ? (float)(((double)k->top[i] + log2((double)l)) * 0.693147180559945309)
                       : -INFINITY;
    }
}

static void attend(const job *w, int64_t item, int thread)
{
    const xd_attn_plan *p = &w->p;
    char   *mine = w->threads + (size_t)thread * p->thread_bytes;
    int64_t pair = item / (p->rep * p->blocks), lo, hi, none;
    block   k = { .q = (unit *)(void *)(mine + p->q), .s = (float *)(void *)(mine + p->s),
                  .o = (float *)(void *)(mine + p->o), .top = (float *)(void *)(mine + p->ml) };
    k.l = k.top + XD_ATTN_ROWS;
    k.b = (w->first + pair) / p->Hk;
    k.h = (w->first + pair) % p->Hk * p->rep + item / p->blocks % p->rep;
    k.i0 = item % p->blocks * p->rows;
    k.n = smaller(p->n - k.i0, p->rows);
    k.keys = xd_attn_len(w->a, k.b, p->m);
    load_queries(w, &k);
    clear(&k);
    xd_attn_range(w->a, k.i0, k.keys, &lo, &none);
    xd_attn_range(w->a, k.i0 + k.n - 1, k.keys, &none, &hi);
    for (int64_t kb = lo / p->keys; kb * p->keys < hi; kb++)
        one_key_block(w, &k, kb, packed_block(w, pair, kb));
    finish(w, &k);
}

static void attend_job(void *ctx, int64_t begin, int64_t end, int thread)
{
    for (int64_t i = begin; i < end; i++)
        attend(ctx, i, thread);
}

/* ---- the call ------------------------------------------------------------------------------- */

static size_t flash_scratch(const xd_attn_args *a, int threads)
{
    return xd_attn_bytes(a, threads, LANES, PAIRS);
}

static xd_status flash_attn(const xd_attn_args *a, void *tmp)
{
    job       w = { .a = a, .threads = tmp };
    int       threads = xd_par_threads();
    xd_status st = xd_attn_check(a);
    if (st != XD_OK)
        return st;
    xd_attn_cut(&w.p, a, threads, LANES, PAIRS);
    w.packed = w.threads + w.p.thread_bytes * (size_t)threads;
    for (; w.first < w.p.B * w.p.Hk && w.p.blocks; w.first += w.p.group) {
        w.count = smaller(w.p.group, w.p.B * w.p.Hk - w.first);
        xd_par_deal(w.count * w.p.kblocks, pack_job, &w);
        xd_par_deal(w.count * w.p.rep * w.p.blocks, attend_job, &w);
    }
    return XD_OK;
}

#endif
