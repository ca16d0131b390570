/* values_tmpl.h - computes the weighted sums of values of flash_tmpl.h in vector registers, for
 * scores of any type.
 *
 * In addition to the requirements of flash_tmpl.h, the including file defines:
 *   v_units v_spread v_dot       as in vector_tmpl.h
 *   LDS                units from one row of probabilities to the next
 *   SUM_TILES[][], SUM_ROWS[], SOFT_TILES[][], SOFT_ROWS[], sum_width, HALVES (vector_tmpl.h)
 *   softmax_state softmax_next   scores of a few rows that become probabilities step by step */
#ifndef XD_BACKEND_CPU_ATTN_VALUES_TMPL_H
#define XD_BACKEND_CPU_ATTN_VALUES_TMPL_H

#include "backend/cpu/attn/flash_tmpl.h"

/* Returns the softmax state of up to `height` rows of scores from row i on, for n keys. */
static softmax_state soft_rows(const block *k, int64_t i, int64_t height, int64_t n, float c);

static void scale_row(float *o, int64_t n, float by)
{
    const vf f = v_set(by);
    for (int64_t c = 0; c < n; c += LANES)
        v_store(o + c, v_mul(f, v_load(o + c)));
}

static void place_values(const job *w, const char **rows, int64_t n, int64_t kb, unit *pair)
{
    const xd_attn_plan *p = &w->p;
    unit               *to = pair + kb * p->knext + p->kunits;
    for (int64_t c = 0, nv; c < p->dp; c += nv * LANES) {
        nv = sum_width((p->dp - c) / LANES);
        pack_values(w, rows, n, c, nv, to + c * (p->vunits / p->dp));
    }
}

/* Initializes the accumulators and the reference scores of a block of queries. The last register
 * tile may read up to 12 rows of scores after the block's last row, so these rows are set to
 * zero. */
static void init_block(const job *w, const block *k)
{
    if (k->n % 12)
        memset(k->s + k->n * LDS, 0, (size_t)(12 * LDS) * sizeof(float));
    for (int64_t i = 0; i < k->n; i++) {
        k->top[i] = -INFINITY;
        k->l[i] = 0;
        /* a tile may leave half of the last vector of a row unwritten */
        v_store(k->o + (i + 1) * w->p.dp - LANES, v_zero());
    }
}

/* Returns 1 if the elements from `at` to n fill at most half of the last one of nv vectors. */
static int half_left(int64_t n, int64_t at, int64_t nv)
{
    return HALVES && nv > 1 && n - at <= nv * LANES - LANES / 2;
}

static void softmax(softmax_state *s)
{
    while (s->left > 0)
        softmax_next(s);
}

/* Turns each score s into the probability 2^(c s - top), where top is the row's reference score,
 * and computes the sum of the values weighted by the probabilities. In a row whose maximum is
 * -infinity, a score that is -infinity becomes 0, and a NaN, which the vector maximum may ignore,
 * stays NaN. While the first columns of the value sums of some rows are computed, the softmax of
 * the next rows runs as well. */
static void softmax_and_sum(const job *w, const block *k, int64_t n, const unit *values, float c)
{
    const xd_attn_plan *p = &w->p;
    int64_t             nv = sum_width(p->dp / LANES), units = unit_count(n), high = SOFT_ROWS[nv];
    soft_fn            *tile = SOFT_TILES[half_left(p->D, 0, nv)][nv];
    softmax_state       s = soft_rows(k, 0, high, n, c);
    softmax(&s);
    for (int64_t i = 0; i < k->n; i += high) {
        s = soft_rows(k, i + high, high, n, c);
        tile(units, (const unit *)(const void *)(k->s + i * LDS), values, k->o + i * p->dp, p->dp,
             k->begun, &s);
        softmax(&s);
    }
    for (int64_t col = nv * LANES; col < p->dp; col += nv * LANES) {
        nv = sum_width((p->dp - col) / LANES);
        sum_fn *sum = SUM_TILES[half_left(p->D, col, nv)][nv];
        for (int64_t i = 0; i < k->n; i += SUM_ROWS[nv])
            sum(units, (const unit *)(const void *)(k->s + i * LDS),
                values + col * (p->vunits / p->dp), k->o + i * p->dp + col, p->dp, k->begun);
    }
}

#endif
