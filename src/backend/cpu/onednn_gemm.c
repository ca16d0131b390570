/* onednn_gemm.c - computes GEMMs by oneDNN's matmul
 *
 * The packed layout of a weight is the layout that matmul prefers for PIN_ROWS input rows, also if
 * a GEMM has another number of rows. Bias, activation, gate and residual are post-operations of
 * oneDNN's matmul. If oneDNN does not support the post-operations or the output's strides, or has
 * only slow reference code for them, the matmul writes plain sums to scratch. Our own epilogue in
 * kernels.c then computes the output. An input with unsupported strides is copied to scratch. */
#include "backend/cpu/onednn.h"

#include "base/par.h"

enum {
    PIN_ROWS = 256,
    MOST_ROWS = 1 << 17, /* maximum rows per call of oneDNN, so that all sizes are below 2^31 */
};

static dnnl_primitive_desc_t weight_layout(xd_dnn *d, const xd_weight *w)
{
    xd_md                 s, any, o;
    dnnl_primitive_desc_t pd = NULL;
    if (xd_md_tag(&s, 2, (int64_t[]){ PIN_ROWS, w->in }, w->type, dnnl_ab))
        return NULL;
    if (xd_md_tag(&o, 2, (int64_t[]){ PIN_ROWS, w->out }, w->type, dnnl_ab) == XD_OK) {
        if (xd_md_tag(&any, 2, (int64_t[]){ w->in, w->out }, w->type, dnnl_format_tag_any) ==
            XD_OK) {
            pd =
                xd_pd_matmul(d, xd_md_as_ref(&s), xd_md_as_ref(&any), NULL, xd_md_as_ref(&o), NULL);
            xd_md_free(&any);
        }
        xd_md_free(&o);
    }
    xd_md_free(&s);
    return pd;
}

xd_status xd_gemm_weight_md(xd_dnn *d, const xd_weight *w, xd_md *plain, xd_md *packed)
{
    dnnl_primitive_desc_t pd = weight_layout(d, w);
    xd_status             s = XD_EUNSUPPORTED;
    if (!pd)
        return s;
    s = xd_md_tag(plain, 2, (int64_t[]){ w->in, w->out }, w->type, dnnl_ba);
    if (s == XD_OK) {
        s = xd_md_clone(packed, xd_pd_md(pd, dnnl_query_weights_md, 0));
        if (s)
            xd_md_free(plain);
    }
    dnnl_primitive_desc_destroy(pd);
    return s;
}

/* A description of how oneDNN computes a GEMM. */
typedef struct plan {
    const xd_gemm *a;
    int            own;   /* 1: the matmul writes sums to scratch, for our own epilogue */
    int            dense; /* 1: the input is copied to scratch */
    xd_post        post;
    int            bias;
    int64_t        ldi, ldo;
    xd_dtype       to;
} plan;

static int64_t row_stride(const xd_tensor *t)
{
    return t->d[0] > 1 ? t->s[0] : t->d[1];
}

static plan plan_of(const xd_gemm *a, int own, int dense)
{
    plan p = { .a = a, .own = own, .dense = dense };
    p.ldi = dense ? a->w->in : row_stride(&a->in);
    p.ldo = own ? a->w->out : row_stride(&a->out);
    p.to = own ? XD_F32 : a->out.type;
    if (!own) {
        p.post = (xd_post){ a->act, a->gate.p ? a->w->out : 0, a->residual.p != NULL };
        p.bias = a->bias.p != NULL;
    }
    return p;
}

static dnnl_primitive_desc_t describe(xd_dnn *d, const plan *p)
{
    const xd_gemm        *a = p->a;
    xd_md                 src, dst, bias;
    xd_prim              *w = xd_weight_prim(d, a->w);
    dnnl_primitive_desc_t pd = NULL;
    int64_t               M = a->in.d[0], N = a->w->out, K = a->w->in;
    if (!w)
        return NULL;
    xd_status s0 =
        xd_md_strided(&src, 2, (int64_t[]){ M, K }, a->in.type, (int64_t[]){ p->ldi, 1 });
    xd_status s1 = xd_md_strided(&dst, 2, (int64_t[]){ M, N }, p->to, (int64_t[]){ p->ldo, 1 });
    xd_status s2 = xd_md_tag(&bias, 2, (int64_t[]){ 1, N }, XD_F32, dnnl_ab);
    if (!s0 && !s1 && !s2)
        pd = xd_pd_matmul(d, xd_md_as_ref(&src), xd_weight_packed(w),
                          p->bias ? xd_md_as_ref(&bias) : NULL, xd_md_as_ref(&dst), &p->post);
    if (!s0)
        xd_md_free(&src);
    if (!s1)
        xd_md_free(&dst);
    if (!s2)
        xd_md_free(&bias);
    return pd;
}

static xd_prim *prim_of(xd_dnn *d, const plan *p)
{
    const xd_gemm *a = p->a;
    int64_t        key[XD_PRIM_KEY] = {
        'g',   xd_par_threads(), a->in.d[0],  a->w->out,    a->w->in,    p->ldi, p->ldo, a->in.type,
        p->to, p->bias,          p->post.act, p->post.gate, p->post.sum,
    };
    xd_prim *found = xd_prim_find(d, key);
    return found ? found : xd_prim_add(d, key, describe(d, p));
}

static int is_optimized(const xd_prim *p)
{
    return p && p->pd && xd_prim_impl(p)[0] != 'r';
}

/* Returns 1 if oneDNN must not write to the output directly, because oneDNN 3.7 ignores the stride
 * of results with one column. */
static int needs_own(const xd_gemm *a)
{
    return a->w->out == 1 && row_stride(&a->out) != 1;
}

/* Returns the cheapest plan of the GEMM that does not use oneDNN's slow reference code. If all
 * plans use that code, returns one of them. */
static xd_prim *choose_prim(xd_dnn *d, const xd_gemm *a, plan *p)
{
    xd_prim *q = NULL;
    int      strided = row_stride(&a->in) != a->w->in;
    for (int own = needs_own(a); own < 2; own++)
        for (int dense = 0; dense <= strided; dense++) {
            *p = plan_of(a, own, dense);
            q = prim_of(d, p);
            if (is_optimized(q))
                return q;
        }
    return q;
}

static size_t rounded_bytes(int64_t n, size_t size)
{
    return ((size_t)n * size + 63) / 64 * 64;
}

static size_t gemm_bytes(const plan *p)
{
    return p->own ? rounded_bytes(p->a->out.d[0] * p->a->w->out, sizeof(float)) : 0;
}

static size_t input_bytes(const plan *p)
{
    return p->dense ? rounded_bytes(xd_count(p->a->in), xd_dtype_size(p->a->in.type)) : 0;
}

static xd_gemm rows_of(const xd_gemm *a, int64_t r0, int64_t n)
{
    xd_gemm b = *a;
    b.out = xd_rows(a->out, r0, n);
    b.in = xd_rows(a->in, r0, n);
    if (a->residual.p)
        b.residual = xd_rows(a->residual, r0, n);
    return b;
}

size_t xd_dnn_gemm_scratch(xd_dnn *d, const xd_gemm *a)
{
    int64_t M = a->out.d[0], sizes[2] = { M < MOST_ROWS ? M : MOST_ROWS, M % MOST_ROWS };
    size_t  most = 0;
    xd_dnn_enter(d);
    for (int i = 0; i < (M > MOST_ROWS ? 2 : 1); i++) {
        if (sizes[i] == 0)
            continue;
        xd_gemm  b = rows_of(a, 0, sizes[i]);
        plan     p;
        xd_prim *q = choose_prim(d, &b, &p);
        size_t   need = gemm_bytes(&p) + input_bytes(&p) + (q ? q->scratch : 0);
        most = need > most ? need : most;
    }
    return most;
}

/* Copies the residual to the output unless both are the same tensor, because the matmul adds the
 * previous contents of the output. */
static void residual_first(xd_dnn *d, const xd_gemm *a)
{
    if (a->residual.p == a->out.p && a->residual.s[0] == a->out.s[0] &&
        a->residual.type == a->out.type)
        return;
    d->k->copy(&(xd_copy){ a->out, a->residual });
}

typedef struct deferred {
    const xd_kernels *k;
    const xd_gemm    *a;
    const float      *acc;
} deferred;

static void finish_deferred_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const deferred *l = ctx;
    int64_t         N = l->a->out.d[1];
    (void)thread;
    l->k->epilogue(l->a, l->acc + begin * N, N, begin, end - begin, 0, N);
}

static xd_status gemm_part(xd_dnn *d, const xd_gemm *a, char *tmp)
{
    plan     p;
    xd_prim *q = choose_prim(d, a, &p);
    if (!q || !q->pd)
        return q ? XD_EUNSUPPORTED : XD_ENOMEM;
    if (!p.own && a->residual.p)
        residual_first(d, a);
    xd_tensor in = a->in;
    char     *rest = tmp + gemm_bytes(&p);
    if (p.dense) {
        in = xd_view2(rest, in.type, in.d[0], in.d[1]);
        d->k->copy(&(xd_copy){ in, a->in });
        rest += input_bytes(&p);
    }
    xd_prim_arg(d, q, DNNL_ARG_SRC, dnnl_query_src_md, 0, in.p);
    xd_prim_arg(d, q, DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, a->w->p);
    xd_prim_arg(d, q, DNNL_ARG_DST, dnnl_query_dst_md, 0, p.own ? (void *)tmp : a->out.p);
    if (p.bias)
        xd_prim_arg(d, q, DNNL_ARG_BIAS, dnnl_query_weights_md, 1, a->bias.p);
    if (p.post.gate)
        xd_prim_post(d, q, DNNL_ARG_ATTR_MULTIPLE_POST_OP(a->act != XD_NONE) | DNNL_ARG_SRC_1,
                     p.post.gate, a->gate.p);
    xd_status s = xd_prim_run(d, q, rest);
    if (s == XD_OK && p.own) {
        deferred l = { d->k, a, (const float *)(const void *)tmp };
        xd_par_for(a->out.d[0], finish_deferred_rows, &l);
    }
    return s;
}

xd_status xd_dnn_gemm(xd_dnn *d, const xd_gemm *a, void *tmp)
{
    xd_status s = XD_OK;
    int64_t   M = a->out.d[0];
    xd_dnn_enter(d);
    for (int64_t r = 0; r < M && s == XD_OK; r += MOST_ROWS) {
        xd_gemm b = rows_of(a, r, M - r < MOST_ROWS ? M - r : MOST_ROWS);
        s = gemm_part(d, &b, tmp);
    }
    return s;
}
