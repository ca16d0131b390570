/* attention_cudnn.c - computes large attention by cuDNN, if cuDNN is installed and supports the
 * shape
 *
 * cuDNN is used for 16-bit heads of at most 256 elements without masks, bias or soft cap. If keys
 * and values are in several segments, the segments are first copied to one tensor. */
#include "backend/cuda/cudnn_plans.h"

#include <string.h>

#include "base/minmax.h"

/* cuDNN is used only if the number of queries times the number of keys of a head is at least
 * LEAST_SCORES. For fewer scores the flash kernels are fast enough. */
enum { LEAST_SCORES = 1 << 20 };

/* ---- shapes ------------------------------------------------------------------------------- */

/* Returns 1 if cuDNN may support this attention, provided that all rows are aligned. */
static int is_plain(const xd_attn_args *a)
{
    return a->q.type != XD_F32 && a->q.d[3] <= XD_CUDA_FLASH_MOST && a->q.d[3] % 8 == 0 &&
           !a->bias.p && !(a->softcap > 0) && !a->causal && a->window <= 0 &&
           a->q.d[0] <= ATTENTION_SAMPLES;
}

static int is_large(const xd_attn_args *a, const xd_tensor *q)
{
    return q->d[1] > 0 && q->d[1] * xd_attn_keys(a) >= LEAST_SCORES;
}

/* Writes the strides of tensor t to s. If there is only one sample, the stride between samples has
 * no effect and is replaced by a fixed value, so that equal shapes have equal strides. */
static void strides_of(int64_t s[3], const xd_tensor *t)
{
    for (int i = 0; i < 3; i++)
        s[i] = t->s[i];
    if (t->d[0] == 1)
        s[0] = t->d[1] * t->s[1];
}

/* Returns the keys of all segments (or their values, if `values` is 1) as one tensor. This is the
 * tensor of the only segment, or a tensor at address `to` into which several segments were
 * copied. */
static xd_tensor joined(const xd_attn_args *a, int values, void *to)
{
    const xd_tensor *t = values ? &a->kv[0].v : &a->kv[0].k;
    if (a->nkv == 1)
        return *t;
    xd_tensor x = *t;
    x.p = to, x.d[1] = xd_attn_keys(a);
    x.s[2] = x.d[3], x.s[1] = x.d[2] * x.s[2], x.s[0] = x.d[1] * x.s[1];
    return x;
}

static xd_cudnn_shape shape_of(const xd_attn_args *a, const xd_tensor *q, const xd_tensor *out)
{
    const xd_tensor    k = joined(a, 0, NULL), v = joined(a, 1, NULL);
    xd_cudnn_shape     shape;
    xd_cudnn_attention x;
    memset(&shape, 0, sizeof shape);
    memset(&x, 0, sizeof x);
    x.n = q->d[1], x.m = k.d[1];
    x.B = (int32_t)q->d[0], x.H = (int32_t)q->d[2], x.D = (int32_t)q->d[3];
    x.Hk = (int32_t)xd_attn_heads_kv(a), x.type = (int32_t)q->type;
    x.lengths = a->kv_len != NULL;
    strides_of(x.q, q), strides_of(x.k, &k), strides_of(x.v, &v), strides_of(x.out, out);
    if (a->lse.p) { /* strides of the log-sum-exp tensor of all query rows */
        x.lse[0] = a->lse.s[0], x.lse[1] = a->lse.s[1], x.lse[2] = a->lse.s[2];
        if (x.B == 1)
            x.lse[0] = x.n * x.lse[1];
    }
    shape.op = XD_OP_ATTN;
    memcpy(&shape.of.attention, &x, sizeof x);
    return shape;
}

/* ---- scratch ------------------------------------------------------------------------------ */

typedef struct places { size_t k, v, lengths, end; } places;

static places places_of(const xd_attn_args *a)
{
    places        p = { 0 };
    const size_t  e = xd_dtype_size(a->q.type);
    const int64_t B = a->q.d[0], m = a->nkv > 1 ? B * xd_attn_keys(a) * a->q.d[3] : 0;
    p.v = xd_cuda_after(p.k, m * xd_attn_heads_kv(a), e);
    p.lengths = xd_cuda_after(p.v, m * xd_attn_heads_kv(a), e);
    p.end = xd_cuda_after(p.lengths, a->kv_len ? 2 * B : 0, sizeof(int32_t));
    return p;
}

size_t xd_cuda_attention_cudnn_scratch(xd_cuda_dev *c, const xd_attn_args *a)
{
    struct xd_cuda_cudnn *x = NULL;
    const xd_qo           all = { a->q, a->out };
    int                   taken = 0; /* number of those pieces of queries that cuDNN computes */
    if (!is_plain(a) || !a->nkv)
        return 0;
    for (int i = 0; i < xd_max(a->nparts, 1); i++) {
        const xd_qo *p = a->nparts ? &a->part[i] : &all;
        if (!is_large(a, &p->q) || p->out.type != p->q.type)
            continue;
        if (c && !(x = xd_cuda_cudnn_for(c, XD_OP_ATTN)))
            return 0;
        taken++;
        if (!x)
            continue;
        const xd_cudnn_shape shape = shape_of(a, &p->q, &p->out);
        xd_cudnn_expect(x, &shape);
    }
    return taken ? places_of(a).end : 0;
}

/* ---- calls -------------------------------------------------------------------------------- */

static xd_status gather(xd_cuda_dev *c, const xd_attn_args *a, int values, const xd_tensor *to)
{
    xd_status s = XD_OK;
    int64_t   row = 0;
    for (int i = 0; i < a->nkv && a->nkv > 1 && s == XD_OK; i++) {
        const xd_tensor *from = values ? &a->kv[i].v : &a->kv[i].k;
        xd_tensor        part = *to;
        part.p = (char *)to->p + row * to->s[1] * (int64_t)xd_dtype_size(to->type);
        part.d[1] = from->d[1];
        row += from->d[1];
        if (from->d[1])
            s = xd_cuda_copy_view(c, &part, from);
    }
    return s;
}

/* Copies the keys of all segments to one tensor, and the values of all segments to another tensor,
 * before the first piece of the queries is computed. */
static xd_status join_keys(xd_cuda_dev *c, const xd_attn_args *a, xd_cuda_keys *keys)
{
    const places p = places_of(a);
    if (keys->k.p)
        return XD_OK;
    keys->k = joined(a, 0, keys->tmp + p.k), keys->v = joined(a, 1, keys->tmp + p.v);
    xd_status s = gather(c, a, 0, &keys->k);
    return s == XD_OK ? gather(c, a, 1, &keys->v) : s;
}

/* Writes to device memory the number of queries of each sample, then the number of valid keys of
 * each sample. */
static xd_status write_lengths(xd_cuda_dev *c, const xd_attn_args *a, int64_t n, int64_t m,
                               int32_t *to)
{
    lengths_args b = { .to = to, .n = 2 * a->q.d[0] };
    for (int64_t i = 0; i < b.n / 2; i++) {
        b.value[i] = (int32_t)n;
        b.value[b.n / 2 + i] = (int32_t)xd_min(a->kv_len[i], m);
    }
    return xd_cuda_launch_each(c, XD_K_lengths, b.n, &b);
}

static int has_keys(const xd_attn_args *a)
{
    int all = 1;
    for (int i = 0; i < a->q.d[0] && a->kv_len; i++)
        all = all && a->kv_len[i] > 0;
    return all;
}

/* Writes the addresses of the operands of attention by a plan for `shape` to *o. */
static xd_status find_operands(xd_cuda_dev *c, const xd_attn_args *a, const xd_cudnn_shape *shape,
                               int64_t row, xd_cuda_keys *keys, xd_cudnn_operands *o)
{
    const xd_cudnn_attention *x = &shape->of.attention;
    int32_t                  *lengths = (int32_t *)(void *)(keys->tmp + places_of(a).lengths);
    xd_status                 s = join_keys(c, a, keys);
    o->k = keys->k.p, o->v = keys->v.p;
    if (s == XD_OK && a->kv_len) {
        s = write_lengths(c, a, x->n, x->m, lengths);
        o->queries = lengths, o->keys = lengths + x->B;
    }
    if (a->lse.p)
        o->lse = (float *)a->lse.p + row * a->lse.s[1];
    return s;
}

int xd_cuda_attention_cudnn(xd_cuda_dev *c, const xd_attn_args *a, const xd_tensor *q,
                            const xd_tensor *out, int64_t row, xd_cuda_keys *keys, xd_status *s)
{
    struct xd_cuda_cudnn *x;
    if (!is_plain(a) || !a->nkv || !is_large(a, q) || out->type != q->type ||
        !xd_cuda_attention_aligned(a, q, out) || !has_keys(a) ||
        !(x = xd_cuda_cudnn_for(c, XD_OP_ATTN)))
        return 0;
    const xd_cudnn_shape shape = shape_of(a, q, out);
    xd_cudnn_known      *plan = xd_cudnn_wait(x, &shape);
    xd_cudnn_operands    o = { .q = q->p, .out = out->p, .scale = a->scale };
    if (!plan)
        return 0;
    *s = find_operands(c, a, &shape, row, keys, &o);
    return *s != XD_OK || xd_cudnn_run(x, plan, &o, "attention of cuDNN", s);
}
