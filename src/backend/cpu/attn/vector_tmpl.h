/* vector_tmpl.h - computes the matrix multiplications of flash_tmpl.h in vector registers.
 *
 * In addition to the requirements of flash_tmpl.h, the including file defines:
 *   v_units(p)         loads a vector of units (plan.h)
 *   v_spread(p)        broadcasts a unit to all lanes of a vector
 *   v_dot(acc, x, y)   adds the products of two vectors of units to acc
 *   put_probs(to, x, y)          stores 2 LANES probabilities as units
 *   SCORE_TILES[][]    score tiles by width in vectors, all QROWS tall
 *   SUM_TILES[][], SUM_ROWS[]    tiles of the value sums by width in vectors, and their rows; with
 *                      index [1], the last vector of a tile is half a vector
 *   LDS                floats from one row of scores to the next
 *   sum_width(left)    returns the vectors of a value tile when `left` vectors remain
 *   HALVES             1 when half a vector is half the work; needs vh, vuh and v_.._half
 *   SOFT_TILES[][], SOFT_ROWS[]  value tiles that also run the softmax of other rows */
#ifndef XD_BACKEND_CPU_ATTN_VECTOR_TMPL_H
#define XD_BACKEND_CPU_ATTN_VECTOR_TMPL_H

#include "backend/cpu/attn/floats_tmpl.h"
#include "backend/cpu/attn/values_tmpl.h"

/* ---- bias and masks ----------------------------------------------------------------------- */

/* Adds the bias to the scores of a row and returns the new maximum. A score s becomes s + bias /
 * scale or, if `scaled` is 1, scale log2(e) s + log2(e) bias. `scaled` is 1 if the bias cannot be
 * divided by the scale, or if probabilities stay f32. */
static vf add_bias(const job *w, const block *k, int64_t i, float *s, int64_t j0, int64_t n,
                   int scaled)
{
    const xd_tensor *t = &w->a->bias;
    const float     *bias =
        t->p ? (const float *)t->p + k->h * t->s[0] + (k->i0 + i) * t->s[1] + j0 * t->s[2] : NULL;
    const vf e = v_set(scaled ? log2e : 1 / w->a->scale);
    const vf c = v_set(scaled ? w->a->scale * log2e : 1);
    vf       top = v_set(-INFINITY);
    int64_t  j = 0;
    for (; bias && t->s[2] == 1 && j + LANES <= n; j += LANES) {
        const vf x = scaled ? v_add(v_mul(v_load(s + j), c), v_mul(v_load(bias + j), e))
                            : v_fma(v_load(bias + j), e, v_load(s + j));
        top = v_max(x, top);
        v_store(s + j, x);
    }
    for (; j < n; j += LANES) {
        float   b[LANES] = { 0 };
        int64_t left = xd_min(n - j, LANES);
        for (int64_t x = 0; bias && x < left; x++)
            b[x] = bias[(j + x) * t->s[2]];
        const vf x = scaled ? v_add(v_mul(v_load(s + j), c), v_mul(v_load(b), e))
                            : v_fma(v_load(b), e, v_load(s + j));
        top = v_max(v_keep(x, left), top);
        v_store(s + j, x);
    }
    return top;
}

/* Applies the soft cap to the raw scores of n keys: each score s becomes (softcap / scale)
 * tanh(scale s / softcap). tanh is computed by the C library, for one score at a time. */
static void cap_scores(const job *w, float *s, int64_t n)
{
    const float in = w->a->scale / w->a->softcap, out = in != 0 ? 1 / in : 0;
    for (int64_t j = 0; j < n; j++)
        s[j] = out * tanhf(in * s[j]);
}

/* Returns the maxima, in each lane, of the scores of n keys. */
static vf vector_max(const float *s, int64_t n)
{
    vf top = v_set(-INFINITY);
    for (int64_t j = 0; j < n; j += LANES)
        top = v_max(v_keep(v_load(s + j), xd_min(n - j, LANES)), top);
    return top;
}

static vf row_max(const float *s, int64_t n)
{
    vf m0 = v_load(s), m1 = m0;
    for (int64_t j = 0; j < step_count(n) * STEP_KEYS; j += 2 * LANES) {
        m0 = v_max(m0, v_load(s + j));
        m1 = v_max(m1, v_load(s + j + LANES));
    }
    return v_max(m0, m1);
}

/* Applies bias and mask for row i to the scores s of the n keys from j0 on. `most` holds the maxima
 * of the scores in each lane. Returns the maxima, in each lane, of the changed scores. */
static vf bias_and_mask(const job *w, const block *k, int64_t i, float *s, int64_t j0, int64_t n,
                        int scaled, vf most)
{
    if (w->a->softcap > 0) {
        cap_scores(w, s, n);
        most = vector_max(s, n);
    }
    if (scaled || w->a->bias.p)
        most = add_bias(w, k, i, s, j0, n, scaled);
    return mask_hidden(w, k, i, s, j0, n) ? row_max(s, n) : most;
}

/* Returns 1 if scores are scaled before their maximum is computed. */
static int scaled_first(const job *w)
{
    return !(w->a->scale * log2e > 1e-20f) || (w->a->bias.p && !PAIRS);
}

enum {
    /* number of 32-bit units of queries and keys that are multiplied at a time, so that the panel
     * of keys stays in the L1 cache */
    KCHUNK = 128,
    /* largest exponent of two by which the maximum score of a row may exceed the row's reference
     * score before the accumulators are rescaled */
    LIFT = PAIRS ? 8 : 0,
};

static void compute_scores(const job *w, const block *k, int64_t n, const unit *keys)
{
    const xd_attn_plan *p = &w->p;
    /* Unused memory after the row maxima of a block of queries, to which register tiles write the
     * maxima of incomplete sums. */
    float              *none = k->lane_max + XD_ATTN_ROWS * LANES;
    for (int64_t i = 0; i < k->n; i++)
        v_store(k->lane_max + i * LANES, v_set(-INFINITY));
    for (int64_t j = 0; j < n; j += SCORE_WIDTH * LANES) {
        int64_t   nv = xd_min(vector_count(n - j), SCORE_WIDTH);
        score_fn *tile = SCORE_TILES[half_left(n, j, nv)][nv];
        for (int64_t u = 0; u < p->du; u += KCHUNK)
            for (int64_t i = 0; i < k->n; i += QROWS)
                tile(xd_min(p->du - u, KCHUNK), k->q + i * p->ldq + u, p->ldq,
                     keys + j * p->du + u * nv * LANES, k->s + i * LDS + j,
                     u + KCHUNK < p->du ? none : k->lane_max + i * LANES, u > 0);
    }
}

/* Sets the reference score of row i to the row's largest score, or keeps the earlier reference
 * score if it is lower by at most LIFT. Because of the margin LIFT, accumulators are seldom
 * rescaled; probabilities of up to 2^LIFT cause no loss of accuracy. */
static void set_reference(const job *w, const block *k, int64_t i, float c)
{
    float top = v_hmax(v_load(k->lane_max + i * LANES)) * c;
    if (top > k->top[i] + (float)LIFT) { /* if `top` is NaN, the comparison is false */
        /* if the reference score is -infinity, the accumulators are zero or unset */
        if (k->top[i] > -INFINITY) {
            float by = v_first(v_exp2(v_set(k->top[i] - top)));
            k->l[i] *= by;
            scale_row(k->o + i * w->p.dp, w->p.dp, by);
        }
        k->top[i] = top;
    }
    k->low[i] = k->top[i] == -INFINITY ? 0 : -k->top[i];
    v_store(k->sum + i * LANES, v_zero());
}

/* Returns the softmax state of up to `height` rows of scores, beginning with row i. */
static softmax_state soft_rows(const block *k, int64_t i, int64_t height, int64_t n, float c)
{
    softmax_state s = { .row = k->s + i * LDS,
                        .low = k->low + i,
                        .sum = k->sum + i * LANES,
                        .scale = c,
                        .width = step_count(n) * STEP_KEYS };
    int64_t       rows = xd_min(k->n - i, height);
    s.left = rows > 0 ? rows * step_count(n) : 0;
    return s;
}

static void attend_key_block(const job *w, block *k, int64_t kb, const unit *keys)
{
    int64_t j0 = kb * w->p.keys, n = xd_min(k->keys - j0, w->p.keys);
    float   c = w->a->scale * log2e;
    int     scaled = scaled_first(w);
    compute_scores(w, k, n, keys);
    for (int64_t i = 0; i < k->n; i++) {
        float   *most = k->lane_max + i * LANES;
        const vf x = bias_and_mask(w, k, i, k->s + i * LDS, j0, n, scaled, v_load(most));
        v_store(most, x);
        set_reference(w, k, i, scaled ? 1 : c);
    }
    softmax_and_sum(w, k, n, keys + w->p.kunits, scaled ? 1 : c);
    for (int64_t i = 0; i < k->n; i++)
        k->l[i] += v_hadd(v_load(k->sum + i * LANES));
    k->begun = 1;
}

static void attend_keys(const job *w, block *k, int64_t first, int64_t end, const unit *packed)
{
    const size_t out = (size_t)w->p.D * xd_dtype_size(w->a->out.type);
    init_block(w, k);
    for (int64_t i = 0; i < k->n; i++)
        prefetch_next_block(k, i, out, (size_t)w->p.D * xd_dtype_size(w->a->q.type));
    for (int64_t kb = first; kb < end; kb++)
        attend_key_block(w, k, kb, packed + kb * w->p.knext);
}

#endif
