/* merge.c - joins attentions over two sets of keys by their log-sum-exps.
 *
 * With w = exp(lse - max) and pw = exp(plse - max): o = (w o + pw po) / (w + pw). A side that
 * saw no keys (lse = -inf) leaves the other as it is, bit for bit, and is not even read. */
#include "backend/cpu/attn/attn.h"

#include <math.h>

#include "base/par.h"

static void join_row(float *o, const void *po, xd_dtype type, int64_t n, float wo, float wp)
{
    const float    *pf = po;
    const uint16_t *pb = po;
    if (type == XD_F32 && wo > 0)
        for (int64_t i = 0; i < n; i++)
            o[i] = wo * o[i] + wp * pf[i];
    else if (type == XD_F32)
        for (int64_t i = 0; i < n; i++)
            o[i] = wp * pf[i];
    else
        for (int64_t i = 0; i < n; i++)
            o[i] = (wo > 0 ? wo * o[i] : 0) + wp * xd_bf16_f32(pb[i]);
}

static void join(const xd_merge *a, int64_t b, int64_t i, int64_t h)
{
    const xd_tensor *o = &a->o, *p = &a->po, *l = &a->lse, *q = &a->plse;
    float *lse = (float *)l->p + b * l->s[0] + i * l->s[1] + h * l->s[2];
    float  plse = ((const float *)q->p)[b * q->s[0] + i * q->s[1] + h * q->s[2]];
    if (plse == -INFINITY)
        return;
    float      *to = (float *)o->p + b * o->s[0] + i * o->s[1] + h * o->s[2];
    const char *from = (const char *)p->p + (b * p->s[0] + i * p->s[1] + h * p->s[2]) *
                                                (int64_t)xd_dtype_size(p->type);
    if (*lse == -INFINITY) {
        join_row(to, from, p->type, o->d[3], 0, 1);
        *lse = plse;
        return;
    }
    double top = *lse > plse ? *lse : plse;
    double w = exp(*lse - top), pw = exp(plse - top);
    join_row(to, from, p->type, o->d[3], (float)(w / (w + pw)), (float)(pw / (w + pw)));
    *lse = (float)(top + log(w + pw));
}

static void join_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const xd_merge *a = ctx;
    int64_t         n = a->o.d[1], H = a->o.d[2];
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        join(a, r / H / n, r / H % n, r % H);
}

xd_status xd_merge_cpu(const xd_merge *a)
{
    xd_merge m = *a;
    if (m.o.type != XD_F32 || m.lse.type != XD_F32 || m.plse.type != XD_F32)
        return XD_EUNSUPPORTED;
    if (m.po.type != XD_F32 && m.po.type != XD_BF16)
        return XD_EUNSUPPORTED;
    for (int i = 0; i < 4; i++)
        if (m.o.d[i] != m.po.d[i] ||
            (i < 3 && (m.o.d[i] != m.lse.d[i] || m.o.d[i] != m.plse.d[i])))
            return XD_EINVAL;
    if (m.o.d[3] > 1 && (m.o.s[3] != 1 || m.po.s[3] != 1))
        return XD_EINVAL;
    xd_par_for(m.o.d[0] * m.o.d[1] * m.o.d[2], join_rows, &m);
    return XD_OK;
}
