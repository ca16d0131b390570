/* cublaslt.c - computes matrix products by cuBLASLt
 *
 * For each kind of matrix product (types, shape, epilogue and alignments), a table keeps the
 * library's descriptors and the algorithm to use. The algorithm is the one that was fastest in
 * earlier measurements (algorithms.c), or the library's first suggestion if this kind was not
 * measured. The kind does not include the addresses of operands, which are set before each
 * product. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/load.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum {
    /* number of entries of the table of products; the table is cleared when 3/4 of its entries are
     * used */
    KINDS = 512,
    /* number of algorithms that are timed for a kind of matrix product; number of products per
     * timing */
    TIMED = 8,
    REPEATS = 3,
};

/* The kind of a matrix product, which is the key of the table. Products of the same kind use the
 * same algorithm. Kinds are compared byte by byte, so equal kinds must also have equal padding
 * bytes. */
typedef struct kind {
    int64_t  n, I, O, s_in, s_w, s_out;
    int32_t  in_type, out_type, bias_type; /* type of the bias, or -1 without bias */
    int32_t  gelu, turned, scaled;
    uint32_t align[4]; /* alignments of the matrices A, B, C and D */
} kind;

/* A table entry: a kind of matrix product with the library's descriptors. The product is D = A^T B
 * with A = w, B = in and D = out, or D = A B if `turned` is 1. */
typedef struct known {
    kind                   k;
    cublasLtMatmulDesc_t   desc;
    cublasLtMatrixLayout_t A, B, D;
    cublasLtMatmulAlgo_t   algo;
    enum { EMPTY, TAKEN, REFUSED } state;
} known;

struct xd_cuda_products {
    known of[KINDS];
    int   n;
};

xd_status xd_cuda_open_cublaslt(xd_cuda_dev *c, xd_err *e)
{
    size_t    work = XD_CUDA_WORK;
    xd_status s = xd_cuda_load_cublaslt(&c->lt, e);
    if (s != XD_OK)
        return s;
    if (!(c->products = calloc(1, sizeof *c->products)))
        return xd_fail(e, XD_ENOMEM, "no memory for a table of products");
    cublasStatus_t r = c->lt->cublasLtCreate(&c->lt_handle);
    if (r == XD_LT_SUCCESS)
        r = c->lt->cublasLtMatmulPreferenceCreate(&c->lt_preference);
    if (r == XD_LT_SUCCESS)
        r = c->lt->cublasLtMatmulPreferenceSetAttribute(c->lt_preference, XD_LT_PREF_WORKSPACE,
                                                        &work, sizeof work);
    if (r != XD_LT_SUCCESS)
        return xd_fail(e, XD_EDEVICE, "cuBLASLt does not start on %s: status %d", c->dev.name,
                       (int)r);
    xd_cuda_open_algorithms(c);
    return XD_OK;
}

static void forget_kind(const xd_cublaslt *lt, known *q)
{
    if (q->D)
        lt->cublasLtMatrixLayoutDestroy(q->D);
    if (q->B)
        lt->cublasLtMatrixLayoutDestroy(q->B);
    if (q->A)
        lt->cublasLtMatrixLayoutDestroy(q->A);
    if (q->desc)
        lt->cublasLtMatmulDescDestroy(q->desc);
    *q = (known){ .state = EMPTY };
}

static void forget_kinds(xd_cuda_dev *c)
{
    for (int i = 0; i < KINDS; i++)
        forget_kind(c->lt, &c->products->of[i]);
    c->products->n = 0;
}

void xd_cuda_close_cublaslt(xd_cuda_dev *c)
{
    xd_cuda_close_algorithms(c);
    if (c->products)
        forget_kinds(c);
    free(c->products);
    if (c->lt_preference)
        c->lt->cublasLtMatmulPreferenceDestroy(c->lt_preference);
    if (c->lt_handle)
        c->lt->cublasLtDestroy(c->lt_handle);
}

/* ---- kinds of products -------------------------------------------------------------------- */

static int type_of(int t)
{
    if (t == XD_F16 || t == XD_F8E4M3)
        return t == XD_F16 ? XD_LT_F16 : XD_LT_F8E4M3;
    return t == XD_BF16 ? XD_LT_BF16 : t == XD_I8 ? XD_LT_I8 : t == XD_I32 ? XD_LT_I32 : XD_LT_F32;
}

/* Returns the largest power of two, at most 64, that divides the address. 64 is the alignment of
 * all arenas. */
static uint32_t alignment_of(const void *p)
{
    uint32_t n = 64;
    while ((uintptr_t)p % n)
        n /= 2;
    return n;
}

static kind kind_of(const xd_cuda_product *p)
{
    const uint32_t out = alignment_of(p->out.p);
    kind           k;
    memset(&k, 0, sizeof k);
    k.n = p->in.d[0], k.I = p->in.d[1], k.O = p->out.d[1];
    k.s_in = k.n == 1 ? k.I : p->in.s[0];
    k.s_out = k.n == 1 ? k.O : p->out.s[0];
    k.s_w = p->s_w;
    k.in_type = (int32_t)p->in.type, k.out_type = (int32_t)p->out.type;
    k.bias_type = p->bias ? (int32_t)p->bias_type : -1;
    k.gelu = p->gelu, k.turned = p->turned, k.scaled = p->sx != NULL;
    k.align[0] = alignment_of(p->w), k.align[1] = alignment_of(p->in.p);
    k.align[2] = k.align[3] = out;
    return k;
}

static int epilogue_of(const kind *k)
{
    return k->gelu             ? k->bias_type >= 0 ? XD_LT_EPILOGUE_GELU_BIAS : XD_LT_EPILOGUE_GELU
           : k->bias_type >= 0 ? XD_LT_EPILOGUE_BIAS
                               : XD_LT_EPILOGUE_NONE;
}

/* Creates the library's descriptors for the kind of matrix product in table entry q. */
static cublasStatus_t describe(const xd_cublaslt *lt, known *q)
{
    const kind    *k = &q->k;
    int            integers = k->in_type == XD_I8;
    int32_t        transposed = k->turned ? XD_LT_OP_N : XD_LT_OP_T, plain = XD_LT_OP_N;
    int32_t        epilogue = epilogue_of(k), bias = type_of(k->bias_type);
    int32_t        vectors = XD_LT_SCALE_OUTER_VECTOR;
    int8_t         fast = 1;
    cublasStatus_t r =
        lt->cublasLtMatmulDescCreate(&q->desc, integers ? XD_LT_COMPUTE_I32 : XD_LT_COMPUTE_F32,
                                     integers ? XD_LT_I32 : XD_LT_F32);
#define SET(attribute, value)                                                                      \
    if (r == XD_LT_SUCCESS)                                                                        \
    r = lt->cublasLtMatmulDescSetAttribute(q->desc, attribute, &(value), sizeof(value))
    SET(XD_LT_DESC_TRANSA, transposed);
    SET(XD_LT_DESC_TRANSB, plain);
    SET(XD_LT_DESC_EPILOGUE, epilogue);
    if (k->bias_type >= 0)
        SET(XD_LT_DESC_BIAS_TYPE, bias);
    if (k->in_type == XD_F8E4M3)
        SET(XD_LT_DESC_FAST_SUMS, fast);
    if (k->scaled) {
        SET(XD_LT_DESC_SCALE_MODE_A, vectors);
        SET(XD_LT_DESC_SCALE_MODE_B, vectors);
    }
#undef SET
#define LAYOUT(m, type, rows, cols, ld)                                                            \
    if (r == XD_LT_SUCCESS)                                                                        \
    r = lt->cublasLtMatrixLayoutCreate(&q->m, type_of(type), (uint64_t)(rows), (uint64_t)(cols), ld)
    LAYOUT(A, k->in_type, k->turned ? k->O : k->I, k->turned ? k->I : k->O, k->s_w);
    LAYOUT(B, k->in_type, k->I, k->n, k->s_in);
    LAYOUT(D, k->out_type, k->O, k->n, k->s_out);
#undef LAYOUT
    return r;
}

/* Sets the pointers of product p (such as bias and scales) that are attributes of the library's
 * matmul descriptor. */
static cublasStatus_t set_pointers(const xd_cublaslt *lt, const known *q, const xd_cuda_product *p)
{
    const struct {
        int         attribute;
        const void *p;
    } each[] = {
        { XD_LT_DESC_BIAS_POINTER, p->bias },
        { XD_LT_DESC_SCALE_POINTER_A, p->sw },
        { XD_LT_DESC_SCALE_POINTER_B, p->sx },
    };
    cublasStatus_t r = XD_LT_SUCCESS;
    for (size_t i = 0; i < sizeof each / sizeof *each && r == XD_LT_SUCCESS; i++)
        if (each[i].p)
            r = lt->cublasLtMatmulDescSetAttribute(q->desc, each[i].attribute, &each[i].p,
                                                   sizeof each[i].p);
    return r;
}

/* Tells the library the alignments of the operands. If the alignments were not set, the library
 * would assume that the operands' addresses are multiples of 256. */
static cublasStatus_t set_alignments(const xd_cuda_dev *c, const kind *k)
{
    static const int attribute[] = { XD_LT_PREF_ALIGNMENT_A, XD_LT_PREF_ALIGNMENT_B,
                                     XD_LT_PREF_ALIGNMENT_C, XD_LT_PREF_ALIGNMENT_D };
    cublasStatus_t   r = XD_LT_SUCCESS;
    for (int i = 0; i < 4 && r == XD_LT_SUCCESS; i++)
        r = c->lt->cublasLtMatmulPreferenceSetAttribute(c->lt_preference, attribute[i],
                                                        &k->align[i], sizeof k->align[i]);
    return r;
}

/* Marks a kind of matrix product as unsupported, so that the library is not called for this kind
 * again. */
static void refuse(known *q, const char *when, cublasStatus_t r)
{
    const kind *k = &q->k;
    q->state = REFUSED;
    xd_log(XD_LOG_DEBUG,
           "cuBLASLt refuses %s (status %d): %s [%lld,%lld] x [%lld,%lld]%s to %s%s%s"
           "%s%s; xdit's own kernels compute a part",
           when, (int)r, xd_dtype_name((xd_dtype)k->in_type), (long long)k->n, (long long)k->I,
           (long long)(k->turned ? k->I : k->O), (long long)(k->turned ? k->O : k->I),
           k->turned ? "" : "^T", xd_dtype_name((xd_dtype)k->out_type),
           k->bias_type >= 0 ? ", bias in " : "",
           k->bias_type >= 0 ? xd_dtype_name((xd_dtype)k->bias_type) : "", k->gelu ? ", GELU" : "",
           k->scaled ? ", scales of rows" : "");
}

static cublasStatus_t run_product(xd_cuda_dev *c, const known *q, const xd_cuda_product *p,
                                  const cublasLtMatmulAlgo_t *algo)
{
    union {
        float   f;
        int32_t i;
    } one = { .f = 1 }, zero = { .i = 0 };
    if (p->in.type == XD_I8)
        one.i = 1;
    return c->lt->cublasLtMatmul(c->lt_handle, q->desc, &one, p->w, q->A, p->in.p, q->B, &zero,
                                 p->out.p, q->D, p->out.p, q->D, algo, (void *)(uintptr_t)c->work,
                                 XD_CUDA_WORK, c->stream);
}

/* Returns the seconds that one matrix product takes with an algorithm, or 0 if the product failed
 * or its time is unknown. */
static double time_algorithm(xd_cuda_dev *c, const xd_cuda_timing *t, const known *q,
                             const xd_cuda_product *p, const cublasLtMatmulAlgo_t *algo)
{
    /* the first product only warms up the GPU */
    int ok = run_product(c, q, p, algo) == XD_LT_SUCCESS;
    ok = ok && c->cu->cuEventRecord(t->begin, c->stream) == XD_CU_SUCCESS;
    for (int i = 0; i < REPEATS && ok; i++)
        ok = run_product(c, q, p, algo) == XD_LT_SUCCESS;
    ok = ok && c->cu->cuEventRecord(t->end, c->stream) == XD_CU_SUCCESS;
    return ok ? xd_cuda_timed(c, t) / REPEATS : 0;
}

/* Returns the index of the fastest of n algorithms, or 0 if no other algorithm is at least 2 %
 * faster than the first. */
static int find_fastest(xd_cuda_dev *c, const known *q, const xd_cuda_product *p,
                        const cublasLtMatmulHeuristicResult_t *found, int n)
{
    xd_cuda_timing t = { 0 };
    double         first = 0, best = 0;
    int            at = 0;
    if (xd_cuda_open_timing(c, &t))
        for (int i = 0; i < n; i++) {
            const double s = time_algorithm(c, &t, q, p, &found[i].algo);
            first = i == 0 ? s : first;
            if (s > 0 && (!(best > 0) || s < best))
                best = s, at = i;
        }
    xd_cuda_close_timing(c, &t);
    return first > 0 && best > 0.98 * first ? 0 : at;
}

static void name_kind(const kind *k, char name[160])
{
    snprintf(name, 160,
             "%" PRId64 "x%" PRId64 "x%" PRId64 "/%" PRId64 "/%" PRId64 "/%" PRId64
             ",%d,%d,%d,%d,%d,%d,%u,%u,%u",
             k->n, k->I, k->O, k->s_in, k->s_w, k->s_out, k->in_type, k->out_type, k->bias_type,
             k->gelu, k->turned, k->scaled, k->align[0], k->align[1], k->align[2]);
}

/* Chooses an algorithm for products of the same kind as p. */
static void learn(xd_cuda_dev *c, known *q, const xd_cuda_product *p)
{
    cublasLtMatmulHeuristicResult_t found[TIMED];
    char                            name[160];
    const int                       times = xd_cuda_times_algorithms(c);
    int                             n = 0;
    cublasStatus_t                  r = describe(c->lt, q);
    name_kind(&q->k, name);
    if (r == XD_LT_SUCCESS && xd_cuda_kept_algorithm(c, name, &q->algo)) {
        q->state = TAKEN;
        return;
    }
    if (r == XD_LT_SUCCESS)
        r = set_pointers(c->lt, q, p);
    if (r == XD_LT_SUCCESS)
        r = set_alignments(c, &q->k);
    if (r == XD_LT_SUCCESS)
        r = c->lt->cublasLtMatmulAlgoGetHeuristic(c->lt_handle, q->desc, q->A, q->B, q->D, q->D,
                                                  c->lt_preference, times ? TIMED : 1, found, &n);
    if (r != XD_LT_SUCCESS || n < 1) {
        refuse(q, "a product", r);
        return;
    }
    q->algo = found[times ? find_fastest(c, q, p, found, n) : 0].algo;
    q->state = TAKEN;
    if (times)
        xd_cuda_keep_algorithm(c, name, &q->algo);
}

/* Returns the table entry for the kind of the matrix product p. If the table has no entry for the
 * kind, an entry is created. */
static known *find_kind(xd_cuda_dev *c, const xd_cuda_product *p)
{
    struct xd_cuda_products *all = c->products;
    const kind               k = kind_of(p);
    const unsigned char     *bytes = (const unsigned char *)&k;
    uint64_t                 h = 14695981039346656037u;
    for (size_t i = 0; i < sizeof k; i++)
        h = (h ^ bytes[i]) * 1099511628211u;
    if (all->n >= KINDS * 3 / 4)
        forget_kinds(c);
    known *q = &all->of[h % KINDS];
    while (q->state != EMPTY && memcmp(&q->k, &k, sizeof k) != 0)
        q = q == &all->of[KINDS - 1] ? all->of : q + 1;
    if (q->state == EMPTY) {
        q->k = k;
        learn(c, q, p);
        all->n++;
    }
    return q;
}

int xd_cuda_multiply(xd_cuda_dev *c, const xd_cuda_product *p)
{
    c->cu->cuCtxSetCurrent(c->context);
    known *q = find_kind(c, p);
    if (q->state == REFUSED)
        return 0;
    cublasStatus_t r = set_pointers(c->lt, q, p);
    if (r == XD_LT_SUCCESS)
        r = run_product(c, q, p, &q->algo);
    if (r != XD_LT_SUCCESS)
        refuse(q, "to run a product", r);
    else if (c->waits)
        xd_cuda_check("a product of cuBLASLt", c->cu->cuStreamSynchronize(c->stream));
    return r == XD_LT_SUCCESS;
}
