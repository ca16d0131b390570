/* ops_lib.c - what oneDNN takes for the work of an op, called directly */
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/onednn.h"
#include "base/pages.h"
#include "ops.h"

enum { MOST = 3, HELD = 24 };

typedef struct lib { /* up to three primitives one after the other */
    xd_dev  *dev;
    xd_dnn  *dnn;
    xd_prim *prim[MOST];
    void    *tmp[MOST];
    int      n;
    struct {
        void  *p;
        size_t bytes;
    } held[HELD];
    int nheld;
} lib;

/* Memory with small numbers in it, in whatever type is read from it: 0x3c3c is 0.0115 as bf16
 * and f32. */
static void *memory(lib *l, size_t bytes)
{
    void *p = l->nheld < HELD ? xd_pages_map(bytes + 64, -1) : NULL;
    if (!p)
        return NULL;
    memset(p, 0x3c, bytes);
    l->held[l->nheld].p = p;
    l->held[l->nheld++].bytes = bytes + 64;
    return p;
}

/* Takes the pd, with memory for its scratch; NULL when it is none. */
static xd_prim *take(lib *l, dnnl_primitive_desc_t pd)
{
    xd_prim *p = pd && l->n < MOST ? xd_prim_new(pd) : NULL;
    if (!p)
        return NULL;
    l->prim[l->n] = p;
    l->tmp[l->n++] = p->scratch ? memory(l, p->scratch) : NULL;
    return p;
}

/* An argument in memory of its own, or at `at`. */
static void *give(lib *l, xd_prim *p, int arg, dnnl_query_t what, int index, void *at)
{
    xd_md_ref m = xd_pd_md(p->pd, what, index);
    if (!at && m)
        at = memory(l, xd_md_bytes(m));
    xd_prim_arg(l->dnn, p, arg, what, index, at);
    return at;
}

static xd_status run(void *ctx)
{
    lib      *l = ctx;
    xd_status s = l->n ? XD_OK : XD_EUNSUPPORTED;
    for (int i = 0; i < l->n && s == XD_OK; i++)
        s = xd_prim_run(l->dnn, l->prim[i], l->tmp[i]);
    return s;
}

static void gemm(lib *l, const xd_gemm *a)
{
    int64_t  M = a->in.d[0], N = a->w->out, K = a->w->in;
    xd_dtype t = a->in.type;
    xd_post  post = { a->act, a->gate.p ? N : 0, a->residual.p != NULL };
    xd_md    src, w, bias, dst;
    if (xd_is_quantized(a->w->type) || xd_md_tag(&src, 2, (int64_t[]){ M, K }, t, dnnl_ab) ||
        xd_md_tag(&w, 2, (int64_t[]){ K, N }, t, dnnl_format_tag_any) ||
        xd_md_tag(&bias, 2, (int64_t[]){ 1, N }, XD_F32, dnnl_ab) ||
        xd_md_tag(&dst, 2, (int64_t[]){ M, N }, a->out.type, dnnl_ab))
        return;
    xd_prim *p = take(l, xd_pd_matmul(l->dnn, xd_md_as_ref(&src), xd_md_as_ref(&w),
                                      xd_md_as_ref(&bias), xd_md_as_ref(&dst), &post));
    xd_md_free(&src), xd_md_free(&w), xd_md_free(&bias), xd_md_free(&dst);
    if (!p)
        return;
    give(l, p, DNNL_ARG_SRC, dnnl_query_src_md, 0, NULL);
    give(l, p, DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, NULL);
    give(l, p, DNNL_ARG_BIAS, dnnl_query_weights_md, 1, NULL);
    give(l, p, DNNL_ARG_DST, dnnl_query_dst_md, 0, NULL);
    if (post.gate)
        xd_prim_post(l->dnn, p, DNNL_ARG_ATTR_MULTIPLE_POST_OP(a->act != XD_NONE) | DNNL_ARG_SRC_1,
                     N, memory(l, (size_t)N * sizeof(float)));
}

static void conv(lib *l, const xd_conv *a)
{
    const xd_weight  *w = a->w;
    int               nd = w->nk + 2, first = 3 - w->nk;
    int64_t           s[5] = { 1, w->in }, k[5] = { w->out, w->in }, o[5] = { 1, w->out };
    xd_conv_geometry  g = { { 0 }, { 0 }, { 0 } };
    dnnl_format_tag_t tag = w->nk == 3 ? dnnl_ndhwc : dnnl_nhwc;
    xd_md             src, wei, bias, dst;
    for (int i = 0; i < w->nk; i++) {
        s[2 + i] = a->in.d[first + i];
        o[2 + i] = a->out.d[first + i];
        k[2 + i] = w->kernel[first + i];
        g.stride[i] = a->stride[first + i];
        g.lo[i] = a->lo[first + i];
        g.hi[i] = a->hi[first + i];
    }
    if (xd_md_tag(&src, nd, s, a->in.type, tag) || xd_md_tag(&dst, nd, o, a->out.type, tag) ||
        xd_md_tag(&wei, nd, k, a->in.type, dnnl_format_tag_any) ||
        xd_md_tag(&bias, 1, &w->out, XD_F32, dnnl_a))
        return;
    xd_post  post = { .sum = a->residual.p != NULL };
    xd_prim *p = take(l, xd_pd_conv(l->dnn, xd_md_as_ref(&src), xd_md_as_ref(&wei),
                                    xd_md_as_ref(&bias), xd_md_as_ref(&dst), &g, &post));
    xd_md_free(&src), xd_md_free(&wei), xd_md_free(&bias), xd_md_free(&dst);
    if (!p)
        return;
    give(l, p, DNNL_ARG_SRC, dnnl_query_src_md, 0, NULL);
    give(l, p, DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, NULL);
    give(l, p, DNNL_ARG_BIAS, dnnl_query_weights_md, 1, NULL);
    give(l, p, DNNL_ARG_DST, dnnl_query_dst_md, 0, NULL);
}

/* ---- what dnn.h has no door for, in both versions ------------------------------------------- */

static dnnl_primitive_desc_t softmax_pd(dnnl_engine_t engine, xd_md_ref m, int axis)
{
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_attr_t attr = xd_dnn_attr(NULL);
    if (!attr)
        return NULL;
#if DNNL_VERSION_MAJOR >= 3
    if (dnnl_softmax_forward_primitive_desc_create(&pd, engine, dnnl_forward_inference,
                                                   dnnl_softmax_accurate, m, m, axis,
                                                   attr) != dnnl_success)
        pd = NULL;
#else
    dnnl_softmax_desc_t d;
    if (dnnl_softmax_forward_desc_init(&d, dnnl_forward_inference, m, axis) != dnnl_success ||
        dnnl_primitive_desc_create(&pd, &d, attr, engine, NULL) != dnnl_success)
        pd = NULL;
#endif
    dnnl_primitive_attr_destroy(attr);
    return pd;
}

static dnnl_primitive_desc_t norm_pd(dnnl_engine_t engine, xd_md_ref m, float eps)
{
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_attr_t attr = xd_dnn_attr(NULL);
    if (!attr)
        return NULL;
#if DNNL_VERSION_MAJOR >= 3
    if (dnnl_layer_normalization_forward_primitive_desc_create(
            &pd, engine, dnnl_forward_inference, m, m, NULL, eps, 0, attr) != dnnl_success)
        pd = NULL;
#else
    dnnl_layer_normalization_desc_t d;
    if (dnnl_layer_normalization_forward_desc_init(&d, dnnl_forward_inference, m, NULL, eps, 0) !=
            dnnl_success ||
        dnnl_primitive_desc_create(&pd, &d, attr, engine, NULL) != dnnl_success)
        pd = NULL;
#endif
    dnnl_primitive_attr_destroy(attr);
    return pd;
}

static void norm(lib *l, const xd_norm *a)
{
    xd_md m;
    if (a->rms || xd_md_tag(&m, 2, a->in.d, a->out.type, dnnl_ab))
        return;
    xd_prim *p = take(l, norm_pd(l->dnn->engine, xd_md_as_ref(&m), a->eps));
    xd_md_free(&m);
    if (!p)
        return;
    give(l, p, DNNL_ARG_SRC, dnnl_query_src_md, 0, NULL);
    give(l, p, DNNL_ARG_DST, dnnl_query_dst_md, 0, NULL);
}

/* [H,n,D] by [H,D,m] to [H,n,m], and the like: heads are matrices of their own. */
static xd_prim *product(lib *l, xd_dtype t, const int64_t a[3], const int64_t b[3],
                        dnnl_format_tag_t order)
{
    xd_md   src, w, dst;
    int64_t o[3] = { a[0], a[1], b[2] };
    if (xd_md_tag(&src, 3, a, t, dnnl_abc) || xd_md_tag(&w, 3, b, t, order) ||
        xd_md_tag(&dst, 3, o, t, dnnl_abc))
        return NULL;
    xd_prim *p = take(l, xd_pd_matmul(l->dnn, xd_md_as_ref(&src), xd_md_as_ref(&w), NULL,
                                      xd_md_as_ref(&dst), NULL));
    xd_md_free(&src), xd_md_free(&w), xd_md_free(&dst);
    return p;
}

static void attention(lib *l, const xd_attn_args *a)
{
    int64_t  H = a->q.d[2], n = a->q.d[1], D = a->q.d[3], m = a->kv[0].k.d[1];
    xd_md    scores;
    xd_prim *p = product(l, a->q.type, (int64_t[]){ H, n, D }, (int64_t[]){ H, D, m }, dnnl_acb);
    if (!p || xd_md_tag(&scores, 3, (int64_t[]){ H, n, m }, a->q.type, dnnl_abc))
        return;
    give(l, p, DNNL_ARG_SRC, dnnl_query_src_md, 0, NULL);
    give(l, p, DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, NULL);
    void    *s = give(l, p, DNNL_ARG_DST, dnnl_query_dst_md, 0, NULL);
    xd_prim *soft = take(l, softmax_pd(l->dnn->engine, xd_md_as_ref(&scores), 2));
    xd_md_free(&scores);
    xd_prim *v = product(l, a->q.type, (int64_t[]){ H, n, m }, (int64_t[]){ H, m, D }, dnnl_abc);
    if (!soft || !v) {
        l->n = 0;
        return;
    }
    give(l, soft, DNNL_ARG_SRC, dnnl_query_src_md, 0, s);
    give(l, soft, DNNL_ARG_DST, dnnl_query_dst_md, 0, s);
    give(l, v, DNNL_ARG_SRC, dnnl_query_src_md, 0, s);
    give(l, v, DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, NULL);
    give(l, v, DNNL_ARG_DST, dnnl_query_dst_md, 0, NULL);
}

double lib_seconds(xd_dev *dev, xd_op op, const args *a, double budget)
{
    xd_cpu_dev *c = dev->priv;
    lib         l = { .dev = dev, .dnn = c->dnn };
    double      s = 0;
    if (!l.dnn)
        return 0;
    switch (op) {
    case XD_OP_GEMM: gemm(&l, &a->gemm); break;
    case XD_OP_CONV: conv(&l, &a->conv); break;
    case XD_OP_NORM: norm(&l, &a->norm); break;
    case XD_OP_ATTN: attention(&l, &a->attn); break;
    default: break;
    }
    if (l.n)
        s = median_seconds(run, &l, budget);
    for (int i = 0; i < MOST; i++)
        xd_prim_free(l.prim[i]);
    for (int i = 0; i < l.nheld; i++)
        xd_pages_unmap(l.held[i].p, l.held[i].bytes);
    return s;
}
