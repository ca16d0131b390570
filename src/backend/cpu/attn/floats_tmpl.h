/* floats_tmpl.h - packs queries and keys for flash_tmpl.h as floats or pairs of bf16, and masks
 * float scores.
 *
 * The including file defines the macros, types and functions that flash_tmpl.h requires. */
#ifndef XD_BACKEND_CPU_ATTN_FLOATS_TMPL_H
#define XD_BACKEND_CPU_ATTN_FLOATS_TMPL_H

#include "backend/cpu/attn/flash_tmpl.h"

static int64_t vector_count(int64_t n)
{
    return (n + LANES - 1) / LANES;
}

/* Packs n keys, whose addresses are in the array `rows`. The layout of packed keys is [unit][key],
 * where a unit is 32 bits of a key. The number of keys is padded to `nv` vectors by copies of the
 * last key, whose scores do not change the maximum of a row. */
static void pack_keys(const job *w, const char **rows, int64_t n, int64_t nv, unit *to)
{
    const xd_attn_plan *p = &w->p;
    for (int64_t g = 0; g < nv; g++)
        for (int64_t u = 0; u < p->kdu; u += LANES) {
            vu      v[LANES];
            int64_t left = xd_min(p->kdu - u, LANES);
            for (int64_t j = 0; j < LANES; j++)
                v[j] = get_units(rows[xd_min(g * LANES + j, n - 1)], w->a->q.type, u, p->D);
            transpose(v);
            for (int64_t k = 0; k < left; k++)
                v_put_units(to + ((u + k) * nv + g) * LANES, v[k]);
        }
}

static void measure_keys(job *w)
{
    (void)w;
}

static double left_out(const job *w, const block *k, int64_t i)
{
    (void)w, (void)k, (void)i;
    return 0;
}

static void place_keys(const job *w, const char **k, const char **v, int64_t n, int64_t kb,
                       unit *pair)
{
    const xd_attn_plan *p = &w->p;
    unit               *to = pair + kb * p->knext;
    size_t              bytes = (size_t)p->D * xd_dtype_size(w->a->q.type);
    prefetch_rows(k, 0, xd_min(n, SCORE_WIDTH * LANES), bytes);
    for (int64_t j = 0, next = SCORE_WIDTH * LANES; j < n; j = next, next += SCORE_WIDTH * LANES) {
        prefetch_rows(k, xd_min(n, next), xd_min(n, next + SCORE_WIDTH * LANES), bytes);
        prefetch_rows(v, j, xd_min(n, next), bytes);
        pack_keys(w, k + j, n - j, xd_min(vector_count(n - j), SCORE_WIDTH), to + j * p->kdu);
    }
}

static void load_queries(const job *w, const block *k)
{
    const xd_attn_plan *p = &w->p;
    int64_t             rows = (k->n + QROWS - 1) / QROWS * QROWS;
    for (int64_t i = 0; i < k->n; i++) {
        const char *row = k->in[i];
        for (int64_t u = 0; u < p->du; u += LANES)
            v_put_units(k->q + i * p->ldq + u, get_units(row, w->a->q.type, u, p->D));
    }
    memset(k->q + k->n * p->ldq, 0, (size_t)((rows - k->n) * p->ldq) * 4);
}

/* Replaces some scores of a block of n keys by -infinity: the scores of keys outside [lo, hi), and
 * the scores that pad the last step of STEP_KEYS keys. */
static void mask_range(float *s, int64_t lo, int64_t hi, int64_t n)
{
    for (int64_t j = 0; j < lo; j++)
        s[j] = -INFINITY;
    for (int64_t j = hi / LANES * LANES; j < step_count(n) * STEP_KEYS; j += LANES)
        v_store(s + j, v_keep(v_load(s + j), hi - j));
}

/* Masks the scores s of row i for the n keys from j0 on: scores hidden by the window or the causal
 * mask become -infinity. Returns 1 if a score of row i is masked. */
static int mask_hidden(const job *w, const block *k, int64_t i, float *s, int64_t j0, int64_t n)
{
    int64_t lo = 0, hi = n;
    if (w->a->window || w->a->causal) {
        xd_attn_range(w->a, k->i0 + i, k->keys, &lo, &hi);
        lo = lo < j0 ? 0 : xd_min(lo - j0, n);
        hi = hi < j0 ? 0 : xd_min(hi - j0, n);
    }
    if (lo > 0 || hi < n || n % STEP_KEYS)
        mask_range(s, lo, hi, n);
    return lo > 0 || hi < n;
}

#endif
