/* plain.c - computes attention in plain C, as the reference for the vector versions
 *
 * Each query row is processed separately: the function computes the row's scores with all keys, the
 * softmax of the scores, and the weighted sum of the values. The code is neither blocked nor
 * fast. */
#include "backend/cpu/attn/attn.h"

#include <math.h>
#include <string.h>

#include "backend/cpu/attn/plan.h"
#include "base/par.h"

typedef struct job {
    const xd_attn_args *a;
    float              *scores; /* scores of one query against m keys, [threads][m] */
    int64_t             m, rep;
    /* for int8 scores: the mean [D], the scales [m] and the quantized elements [m,D] of the keys of
     * each (batch, key head) pair */
    float              *means, *scales;
    int8_t             *ints;
} job;

static float get_element(const char *row, xd_dtype t, int64_t i)
{
    float    f;
    uint16_t h;
    if (t == XD_F32) {
        memcpy(&f, row + 4 * i, 4);
        return f;
    }
    memcpy(&h, row + 2 * i, 2);
    return xd_bf16_f32(h);
}

static float dot(const char *x, const char *y, xd_dtype t, int64_t n)
{
    float s = 0;
    for (int64_t i = 0; i < n; i++)
        s += get_element(x, t, i) * get_element(y, t, i);
    return s;
}

/* ---- integers ----------------------------------------------------------------------------- */

/* Quantizes a query or key row to int8, after `mean` is subtracted unless `mean` is NULL. Returns
 * the scale of the row. */
static float quantize(const char *row, const float *mean, xd_dtype t, int64_t n, int8_t *to)
{
    float most = 0;
    for (int64_t c = 0; c < n; c++) {
        const float x = fabsf(get_element(row, t, c) - (mean ? mean[c] : 0));
        most = x > most || isnan(x) ? x : most;
    }
    const float by = most > 1e-30f && isfinite(most) ? 127 / most : 0;
    for (int64_t c = 0; c < n; c++)
        to[c] = by > 0 ? (int8_t)rintf((get_element(row, t, c) - (mean ? mean[c] : 0)) * by) : 0;
    return by > 0 || !isfinite(most) ? most / 127 : 0;
}

static void quantize_keys(void *ctx, int64_t begin, int64_t end, int thread)
{
    const job          *w = ctx;
    const xd_attn_args *a = w->a;
    const int64_t       D = a->q.d[3], Hk = a->q.d[2] / w->rep;
    (void)thread;
    for (int64_t p = begin; p < end; p++) {
        const int64_t n = xd_attn_len(a, p / Hk, w->m);
        float        *mean = w->means + p * D;
        const char   *k, *v;
        memset(mean, 0, (size_t)D * sizeof *mean);
        for (int64_t j = 0; j < n; j++) {
            xd_attn_rows(a, p / Hk, p % Hk, j, 1, &k, &v);
            for (int64_t c = 0; c < D; c++)
                mean[c] += get_element(k, a->q.type, c) / (float)n;
        }
        for (int64_t j = 0; j < n; j++) {
            xd_attn_rows(a, p / Hk, p % Hk, j, 1, &k, &v);
            w->scales[p * w->m + j] = quantize(k, mean, a->q.type, D, w->ints + (p * w->m + j) * D);
        }
    }
}

/* Returns the score of the query q and key j of the (batch, key head) pair p. The integers of the
 * query have the scale sq. */
static float int_score(const job *w, const int8_t *q, float sq, int64_t p, int64_t j)
{
    const int64_t D = w->a->q.d[3];
    const int8_t *k = w->ints + (p * w->m + j) * D;
    int32_t       sum = 0;
    for (int64_t c = 0; c < D; c++)
        sum += q[c] * k[c];
    return w->a->scale * (float)sum * sq * w->scales[p * w->m + j];
}

/* Returns the dot product of the query and the mean of the keys. The int8 scores do not include
 * this product, which is the same for all keys of the (batch, key head) pair p. */
static double mean_score(const job *w, const char *q, int64_t p)
{
    double sum = 0;
    for (int64_t c = 0; w->ints && c < w->a->q.d[3]; c++)
        sum += (double)(get_element(q, w->a->q.type, c) * w->means[p * w->a->q.d[3] + c]);
    return sum * (double)w->a->scale;
}

/* ---- rows --------------------------------------------------------------------------------- */

/* Computes the scores of a query with keys [lo, hi) and returns the maximum score. */
static float scores_of(const job *w, int64_t b, int64_t i, int64_t h, int64_t lo, int64_t hi,
                       float *s)
{
    const xd_attn_args *a = w->a;
    const xd_tensor    *q = &a->q, *bias = &a->bias;
    const char         *qr;
    float               top = -INFINITY, sq = 0;
    int8_t              iq[XD_ATTN_MAXD];
    xd_attn_queries(a, b, h, i, 1, &qr, NULL);
    if (w->ints)
        sq = quantize(qr, NULL, q->type, q->d[3], iq);
    for (int64_t j = lo; j < hi; j++) {
        const char *k, *v;
        xd_attn_rows(a, b, h / w->rep, j, 1, &k, &v);
        s[j] = w->ints ? int_score(w, iq, sq, (b * q->d[2] + h) / w->rep, j)
                       : a->scale * dot(qr, k, q->type, q->d[3]);
        if (a->softcap > 0)
            s[j] = a->softcap * tanhf(s[j] / a->softcap);
        if (bias->p)
            s[j] += ((const float *)bias->p)[h * bias->s[0] + i * bias->s[1] + j * bias->s[2]];
        top = s[j] > top || isnan(s[j]) ? s[j] : top;
    }
    return top;
}

static void store_element(void *row, xd_dtype type, int64_t at, float v)
{
    if (type == XD_F32)
        ((float *)row)[at] = v;
    else
        ((uint16_t *)row)[at] = xd_f32_bf16(v);
}

/* Computes the weighted sum of the values, out = sum over j in [lo, hi) of s[j] v[j] / l, a few
 * columns at a time. */
static void sum_weighted_values(const job *w, int64_t b, int64_t i, int64_t h, int64_t lo,
                                int64_t hi, const float *s, float l)
{
    const xd_attn_args *a = w->a;
    const xd_tensor    *o = &a->out;
    float               sum[XD_ATTN_MAXD] = { 0 };
    for (int64_t j = lo; j < hi; j++) {
        const char *k, *v;
        if (s[j] == 0)
            continue;
        xd_attn_rows(a, b, h / w->rep, j, 1, &k, &v);
        for (int64_t c = 0; c < o->d[3]; c++)
            sum[c] += s[j] * get_element(v, a->q.type, c);
    }
    char *row;
    xd_attn_queries(a, b, h, i, 1, NULL, &row);
    for (int64_t c = 0; c < o->d[3]; c++)
        store_element(row, o->type, c, l != 0 ? sum[c] / l : 0);
}

static void attend_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const job          *w = ctx;
    const xd_attn_args *a = w->a;
    float              *s = w->scores + w->m * thread;
    int64_t             n = a->q.d[1], H = a->q.d[2];
    for (int64_t r = begin; r < end; r++) {
        int64_t b = r / n / H, h = r / n % H, i = r % n, lo, hi;
        double  l = 0;
        xd_attn_range(a, i, xd_attn_len(a, b, w->m), &lo, &hi);
        float top = scores_of(w, b, i, h, lo, hi, s);
        for (int64_t j = lo; j < hi; j++) {
            s[j] = top == -INFINITY ? 0 : expf(s[j] - top);
            l += s[j];
        }
        sum_weighted_values(w, b, i, h, lo, hi, s, (float)l);
        if (!a->lse.p)
            continue;
        const char *q;
        xd_attn_queries(a, b, h, i, 1, &q, NULL);
        ((float *)a->lse.p)[b * a->lse.s[0] + i * a->lse.s[1] + h * a->lse.s[2]] =
            l != 0 ? (float)(top + log(l) + mean_score(w, q, (b * a->q.d[2] + h) / w->rep))
                   : -INFINITY;
    }
}

/* Returns the number of floats of scratch for int8 keys: their means, scales and integers. */
static int64_t int8_floats(const xd_attn_args *a)
{
    const int64_t pairs = a->q.d[0] * xd_attn_heads_kv(a), D = a->q.d[3], m = xd_attn_keys(a);
    return xd_attn_in_int8(a) ? pairs * (D + m) + (pairs * m * D + 3) / 4 : 0;
}

size_t xd_attn_scratch_c(const xd_attn_args *a, int threads)
{
    if (xd_attn_check(a, XD_TYPES_F32_BF16) != XD_OK)
        return 0;
    return (size_t)(xd_attn_keys(a) * threads + int8_floats(a)) * sizeof(float);
}

xd_status xd_attn_c(const xd_attn_args *a, void *tmp)
{
    xd_status st = xd_attn_check(a, XD_TYPES_F32_BF16);
    if (st != XD_OK)
        return st;
    job w = { .a = a, .scores = tmp, .m = xd_attn_keys(a) };
    w.rep = a->q.d[2] ? a->q.d[2] / xd_attn_heads_kv(a) : 1;
    if (int8_floats(a)) {
        const int64_t pairs = a->q.d[0] * xd_attn_heads_kv(a);
        w.means = w.scores + w.m * xd_par_threads();
        w.scales = w.means + pairs * a->q.d[3];
        w.ints = (int8_t *)(w.scales + pairs * w.m);
        xd_par_for(pairs, quantize_keys, &w);
    }
    xd_par_for(a->q.d[0] * a->q.d[1] * a->q.d[2], attend_rows, &w);
    return XD_OK;
}
