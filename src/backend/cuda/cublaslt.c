/* cublaslt.c - matrix products by cuBLASLt */
#include "backend/cuda/cuda.h"
#include "backend/cuda/load.h"

xd_status xd_cuda_open_cublaslt(xd_cuda_dev *c, xd_err *e)
{
    size_t    work = XD_CUDA_WORK;
    xd_status s = xd_cuda_load_cublaslt(&c->lt, e);
    if (s != XD_OK)
        return s;
    if (c->lt->cublasLtCreate(&c->lt_handle) != XD_LT_SUCCESS ||
        c->lt->cublasLtMatmulPreferenceCreate(&c->lt_preference) != XD_LT_SUCCESS ||
        c->lt->cublasLtMatmulPreferenceSetAttribute(c->lt_preference, XD_LT_PREF_WORKSPACE, &work,
                                                    sizeof work) != XD_LT_SUCCESS)
        return xd_fail(e, XD_EDEVICE, "cuBLASLt does not start on %s", c->dev.name);
    return XD_OK;
}

void xd_cuda_close_cublaslt(xd_cuda_dev *c)
{
    if (c->lt_preference)
        c->lt->cublasLtMatmulPreferenceDestroy(c->lt_preference);
    if (c->lt_handle)
        c->lt->cublasLtDestroy(c->lt_handle);
}

static int type_of(xd_dtype t)
{
    if (t == XD_F16 || t == XD_F8E4M3)
        return t == XD_F16 ? XD_LT_F16 : XD_LT_F8E4M3;
    return t == XD_BF16 ? XD_LT_BF16 : t == XD_I8 ? XD_LT_I8 : t == XD_I32 ? XD_LT_I32 : XD_LT_F32;
}

static int epilogue_of(const xd_cuda_product *p)
{
    return p->gelu ? p->bias ? XD_LT_EPILOGUE_GELU_BIAS : XD_LT_EPILOGUE_GELU
                   : p->bias ? XD_LT_EPILOGUE_BIAS : XD_LT_EPILOGUE_NONE;
}

/* A product in the library's words: D = A^T B with A = w, B = in, D = out; turned: D = A B. */
typedef struct product {
    cublasLtMatmulDesc_t   desc;
    cublasLtMatrixLayout_t A, B, D;
} product;

static int describe(const xd_cublaslt *lt, product *q, const xd_cuda_product *p)
{
    int     integers = p->in.type == XD_I8;
    int32_t T = XD_LT_OP_T, N = XD_LT_OP_N, f32 = XD_LT_F32, epilogue = epilogue_of(p);
    int64_t n = p->in.d[0], I = p->in.d[1], O = p->out.d[1];
    int     ok = lt->cublasLtMatmulDescCreate(&q->desc,
                                              integers ? XD_LT_COMPUTE_I32 : XD_LT_COMPUTE_F32,
                                              integers ? XD_LT_I32 : XD_LT_F32) == XD_LT_SUCCESS;
#define SET(attribute, value)                                                                      \
    ok = ok && lt->cublasLtMatmulDescSetAttribute(q->desc, attribute, &(value), sizeof(value)) ==  \
                   XD_LT_SUCCESS
    SET(XD_LT_DESC_TRANSA, *(p->turned ? &N : &T));
    SET(XD_LT_DESC_TRANSB, N);
    SET(XD_LT_DESC_EPILOGUE, epilogue);
    if (p->bias) {
        SET(XD_LT_DESC_BIAS_POINTER, p->bias);
        SET(XD_LT_DESC_BIAS_TYPE, f32);
    }
#undef SET
#define LAYOUT(m, type, rows, cols, ld)                                                            \
    ok = ok && lt->cublasLtMatrixLayoutCreate(&q->m, type_of(type), (uint64_t)(rows),              \
                                              (uint64_t)(cols), ld) == XD_LT_SUCCESS
    LAYOUT(A, p->in.type, p->turned ? O : I, p->turned ? I : O, p->s_w);
    LAYOUT(B, p->in.type, I, n, n == 1 ? I : p->in.s[0]);
    LAYOUT(D, p->out.type, O, n, n == 1 ? O : p->out.s[0]);
#undef LAYOUT
    return ok;
}

static void undo(const xd_cublaslt *lt, product *q)
{
    if (q->D)
        lt->cublasLtMatrixLayoutDestroy(q->D);
    if (q->B)
        lt->cublasLtMatrixLayoutDestroy(q->B);
    if (q->A)
        lt->cublasLtMatrixLayoutDestroy(q->A);
    if (q->desc)
        lt->cublasLtMatmulDescDestroy(q->desc);
}

/* The largest power of two, at most 256, of which the address is a multiple. */
static uint32_t alignment_of(const void *p)
{
    uint32_t n = 256;
    while ((uintptr_t)p % n)
        n /= 2;
    return n;
}

/* Without these the library takes addresses for multiples of 256. */
static int set_alignments(const xd_cuda_dev *c, const xd_cuda_product *p)
{
    static const int attribute[] = { XD_LT_PREF_ALIGNMENT_A, XD_LT_PREF_ALIGNMENT_B,
                                     XD_LT_PREF_ALIGNMENT_C, XD_LT_PREF_ALIGNMENT_D };
    const void *const place[] = { p->w, p->in.p, p->out.p, p->out.p };
    int               ok = 1;
    for (int i = 0; i < 4; i++) {
        const uint32_t n = alignment_of(place[i]);
        ok = ok && c->lt->cublasLtMatmulPreferenceSetAttribute(
                       c->lt_preference, attribute[i], &n, sizeof n) == XD_LT_SUCCESS;
    }
    return ok;
}

int xd_cuda_multiply(xd_cuda_dev *c, const xd_cuda_product *p)
{
    const xd_cublaslt              *lt = c->lt;
    product                         q = { 0 };
    cublasLtMatmulHeuristicResult_t found;
    union { float f; int32_t i; }   one = { .f = 1 }, zero = { .i = 0 };
    int                             n = 0, ok = 0;
    if (p->in.type == XD_I8)
        one.i = 1;
    c->cu->cuCtxSetCurrent(c->context);
    if (describe(lt, &q, p) && set_alignments(c, p) &&
        lt->cublasLtMatmulAlgoGetHeuristic(c->lt_handle, q.desc, q.A, q.B, q.D, q.D,
                                           c->lt_preference, 1, &found, &n) == XD_LT_SUCCESS &&
        n > 0)
        ok = lt->cublasLtMatmul(c->lt_handle, q.desc, &one, p->w, q.A, p->in.p, q.B, &zero,
                                p->out.p, q.D, p->out.p, q.D, &found.algo,
                                (void *)(uintptr_t)c->work, XD_CUDA_WORK,
                                c->stream) == XD_LT_SUCCESS;
    undo(lt, &q);
    return ok;
}
