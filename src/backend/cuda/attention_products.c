/* attention_products.c - computes attention of wide heads by matrix products of cuBLASLt: first the
 * scores, then their softmax, then the weighted sums of the values
 *
 * This implementation is for 16-bit heads that are too wide for the flash kernels, as in
 * autoencoders. Masks, bias and soft cap are not supported. One band of query rows is processed at
 * a time. The scores of a band are computed in F32, and the softmax of the scores is stored in the
 * type of the queries. If keys and values are in several segments, the segments are first copied to
 * one tensor, so that results do not depend on the split. */
#include "backend/cuda/cuda.h"

#include "base/minmax.h"

enum { BAND_BYTES = 64 << 20, FEWEST = 64 };

/* Byte offsets of the buffers that attention by matrix products uses in its scratch memory. */
typedef struct places {
    int64_t m, rows; /* number of keys; number of query rows in a band */
    int64_t ld;      /* elements between rows of scores, and between rows of their softmax */
    size_t  k, v, scores, weights, end;
} places;

static places places_of(const xd_attn_args *a)
{
    places p = { 0 };
    size_t e = xd_dtype_size(a->q.type);
    p.m = xd_attn_keys(a);
    p.ld = xd_round_up(xd_max(p.m, 1), 8);
    const int64_t fit = BAND_BYTES / (p.ld * (int64_t)(sizeof(float) + e));
    p.rows = xd_max(xd_min(xd_max(fit, FEWEST), a->q.d[1]), 1);
    p.v = xd_cuda_after(p.k, a->nkv > 1 ? p.m * a->q.d[3] : 0, e);
    p.scores = xd_cuda_after(p.v, a->nkv > 1 ? p.m * a->q.d[3] : 0, e);
    p.weights = xd_cuda_after(p.scores, p.rows * p.ld, sizeof(float));
    p.end = xd_cuda_after(p.weights, p.rows * p.ld, e);
    return p;
}

/* Returns 1 if this file can compute the attention. This function does not check that all rows are
 * aligned. */
static int is_wide(const xd_attn_args *a)
{
    return a->q.type != XD_F32 && a->q.d[3] > XD_CUDA_FLASH_MOST && a->q.d[3] % 8 == 0 &&
           !a->bias.p && !(a->softcap > 0) && !a->causal && a->window <= 0 && !a->kv_len;
}

size_t xd_cuda_attention_products_scratch(const xd_attn_args *a)
{
    return is_wide(a) ? places_of(a).end : 0;
}

/* Returns the rows of head h of sample b as a view [n,D]. */
static xd_tensor head_of(const xd_tensor *t, int64_t b, int64_t h)
{
    xd_tensor x = xd_view2(t->p, t->type, t->d[1], t->d[3]);
    x.p = (char *)t->p + (b * t->s[0] + h * t->s[2]) * (int64_t)xd_dtype_size(t->type);
    x.s[0] = t->s[1];
    return x;
}

/* Sets *x to the keys of a head, or to the values of the head if `values` is 1. The result is a
 * view of the only segment, or a copy of all segments at address `to`. */
static xd_status gather_rows(xd_cuda_dev *c, const xd_attn_args *a, int values, int64_t b,
                             int64_t h, int64_t m, char *to, xd_tensor *x)
{
    int64_t   row = 0;
    xd_status s = XD_OK;
    for (int i = 0; i < a->nkv; i++) {
        xd_tensor from = head_of(values ? &a->kv[i].v : &a->kv[i].k, b, h);
        if (a->nkv == 1) {
            *x = from;
            return XD_OK;
        }
        *x = xd_view2(to, from.type, m, from.d[1]);
        xd_tensor part = xd_rows(*x, row, from.d[0]);
        row += from.d[0];
        if (s == XD_OK && from.d[0])
            s = xd_cuda_copy_view(c, &part, &from);
    }
    return s;
}

/* Computes the softmax of n rows of scores. `lse` points to the log-sum-exp of the first row, or is
 * NULL. */
static xd_status launch_softmax(xd_cuda_dev *c, const xd_attn_args *a, const places *p, char *tmp,
                                int64_t n, float *lse)
{
    softmax_args b = {
        .weights = tmp + p->weights,
        .scores = (const float *)(void *)(tmp + p->scores),
        .lse = lse,
        .m = p->m,
        .ld = p->ld,
        .s_lse = a->lse.p ? a->lse.s[1] : 0,
        .scale = a->scale,
        .type = (int)a->q.type,
    };
    return xd_cuda_launch(c, XD_K_softmax, n, 1, 128, 64, &b);
}

typedef struct head {
    xd_tensor q, k, v, out;
    float    *lse;
} head;

/* Computes the attention of one head. Returns 0 if cuBLASLt does not support one of the matrix
 * products. */
static int run_head(xd_cuda_dev *c, const xd_attn_args *a, const places *p, char *tmp,
                    const head *h, xd_status *s)
{
    for (int64_t i = 0; i < h->q.d[0] && *s == XD_OK; i += p->rows) {
        const int64_t n = xd_min(p->rows, h->q.d[0] - i);
        xd_tensor     scores = xd_view2(tmp + p->scores, XD_F32, n, p->m),
                      weights = xd_view2(tmp + p->weights, h->q.type, n, p->m);
        scores.s[0] = weights.s[0] = p->ld;
        xd_cuda_product first = {
            .out = scores, .in = xd_rows(h->q, i, n), .w = h->k.p, .s_w = h->k.s[0]
        };
        xd_cuda_product second = {
            .out = xd_rows(h->out, i, n), .in = weights, .w = h->v.p, .s_w = h->v.s[0], .turned = 1
        };
        if (!xd_cuda_multiply(c, &first))
            return 0;
        *s = launch_softmax(c, a, p, tmp, n, h->lse ? h->lse + i * a->lse.s[1] : NULL);
        if (*s == XD_OK && !xd_cuda_multiply(c, &second))
            return 0;
    }
    return 1;
}

int xd_cuda_attention_products(xd_cuda_dev *c, const xd_attn_args *a, const xd_tensor *q,
                               const xd_tensor *out, int64_t row, char *tmp, xd_status *s)
{
    if (!is_wide(a)) /* most attention calls return here */
        return 0;
    const places p = places_of(a);
    if (!p.m || (out->type != q->type && out->type != XD_F32) ||
        !xd_cuda_attention_aligned(a, q, out))
        return 0;
    const int64_t H = q->d[2], Hk = xd_attn_heads_kv(a);
    for (int64_t i = 0; i < q->d[0] * H && *s == XD_OK; i++) {
        const int64_t b = i / H, k = i % H;
        head          h = { .q = head_of(q, b, k), .out = head_of(out, b, k) };
        if (a->lse.p)
            h.lse = (float *)a->lse.p + b * a->lse.s[0] + row * a->lse.s[1] + k * a->lse.s[2];
        *s = gather_rows(c, a, 0, b, k * Hk / H, p.m, tmp + p.k, &h.k);
        if (*s == XD_OK)
            *s = gather_rows(c, a, 1, b, k * Hk / H, p.m, tmp + p.v, &h.v);
        if (*s == XD_OK && !run_head(c, a, &p, tmp, &h, s))
            return 0;
    }
    return 1;
}
