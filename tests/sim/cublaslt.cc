/* cublaslt.cc - a stand-in for libcublasLt.so.13: matrix products, run on the simulated GPU
 *
 * D = alpha op(A) op(B) + beta C, column by column, with a bias and GELU after it; sums in f32
 * (int32 for int8). With XDIT_SIM_NO_PRODUCTS it takes none, and e4m3 from the compute capability
 * 8.9 on (XDIT_SIM_CAPABILITY). An algorithm works with addresses of the alignment alone that the
 * preference named when it was found. Who asks for several algorithms gets up to four, of which
 * number 2 is the fastest; with XDIT_SIM_ALGORITHMS a product prints the number of its own. */
#include "backend/cuda/cublaslt.h"
#include "backend/cuda/kernels/gpu.cuh"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))
API CUresult simgpu_enqueue(CUstream s, std::function<void()> *fn);
API int simgpu_on_device(const void *p, size_t n);
API void simgpu_spend(double ms);

struct desc {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    int ta = XD_LT_OP_N, tb = XD_LT_OP_N;
    int epilogue = XD_LT_EPILOGUE_NONE;
    const void *bias = nullptr;
    cudaDataType_t bias_type = XD_LT_F32;
    const float *scales[2] = { nullptr, nullptr };
    int mode[2] = { 0, 0 };             /* XD_LT_SCALE_OUTER_VECTOR, or 0 */
};
struct layout {
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t ld;
};

API cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
    *h = (cublasLtHandle_t)malloc(8);
    return XD_LT_SUCCESS;
}
API cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
    free(h);
    return XD_LT_SUCCESS;
}
API size_t cublasLtGetVersion() { return 130000; }
API cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t c,
                                            cudaDataType_t s)
{
    desc *x = new desc;
    x->compute = c, x->scale = s;
    *d = (cublasLtMatmulDesc_t)x;
    return XD_LT_SUCCESS;
}
API cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    delete (desc *)d;
    return XD_LT_SUCCESS;
}
API cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d_,
                                                  cublasLtMatmulDescAttributes_t a, const void *v,
                                                  size_t n)
{
    desc *d = (desc *)d_;
    switch (a) {
    case XD_LT_DESC_TRANSA:
        memcpy(&d->ta, v, n);
        break;
    case XD_LT_DESC_TRANSB:
        memcpy(&d->tb, v, n);
        break;
    case XD_LT_DESC_EPILOGUE:
        memcpy(&d->epilogue, v, n);
        break;
    case XD_LT_DESC_BIAS_POINTER:
        memcpy(&d->bias, v, n);
        break;
    case XD_LT_DESC_BIAS_TYPE:
        memcpy(&d->bias_type, v, n);
        break;
    case XD_LT_DESC_SCALE_POINTER_A:
        memcpy(&d->scales[0], v, n);
        break;
    case XD_LT_DESC_SCALE_POINTER_B:
        memcpy(&d->scales[1], v, n);
        break;
    case XD_LT_DESC_SCALE_MODE_A:
        memcpy(&d->mode[0], v, n);
        break;
    case XD_LT_DESC_SCALE_MODE_B:
        memcpy(&d->mode[1], v, n);
        break;
    case XD_LT_DESC_FAST_SUMS:
        break;
    default:
        return XD_LT_NOT_SUPPORTED;
    }
    return XD_LT_SUCCESS;
}
API cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType_t t,
                                              uint64_t r, uint64_t c, int64_t ld)
{
    *l = (cublasLtMatrixLayout_t) new layout { t, r, c, ld };
    return XD_LT_SUCCESS;
}
API cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    delete (layout *)l;
    return XD_LT_SUCCESS;
}
API cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
    uint32_t *each = (uint32_t *)malloc(4 * sizeof *each);
    for (int i = 0; i < 4; i++)
        each[i] = 256;
    *p = (cublasLtMatmulPreference_t)each;
    return XD_LT_SUCCESS;
}
API cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    free(p);
    return XD_LT_SUCCESS;
}
API cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                        cublasLtMatmulPreferenceAttributes_t a,
                                                        const void *v, size_t n)
{
    if (a >= XD_LT_PREF_ALIGNMENT_A && a <= XD_LT_PREF_ALIGNMENT_D)
        memcpy((uint32_t *)p + (a - XD_LT_PREF_ALIGNMENT_A), v, n);
    return XD_LT_SUCCESS;
}

static int capability()
{
    const char *s = getenv("XDIT_SIM_CAPABILITY");
    return s ? atoi(s) : 90;
}

/* What the library takes: 8 bits are TN alone and aligned; a bias has the type of D; scales of rows
 * are those of e4m3 on Hopper. */
static int checked(const desc *d, const layout *A, const layout *B, const layout *C,
                   const layout *D)
{
    if (getenv("XDIT_SIM_NO_PRODUCTS"))
        return 0;
    for (const layout *l : { A, B, C, D })
        if (!l->rows || !l->cols || (uint64_t)l->ld < l->rows)
            return 0;
    int ta = d->ta == XD_LT_OP_T, tb = d->tb == XD_LT_OP_T;
    uint64_t m = ta ? A->cols : A->rows, k = ta ? A->rows : A->cols;
    uint64_t n = tb ? B->rows : B->cols, kb = tb ? B->cols : B->rows;
    if (A->type == XD_LT_I8 &&
        (!ta || tb || A->ld % 16 || B->ld % 16 || k % 16 || m % 4 || D->type != XD_LT_I32))
        return 0;
    if (A->type == XD_LT_F8E4M3 &&
        (capability() < 89 || !ta || tb || A->ld % 16 || B->ld % 16 || k % 16 || m % 16 ||
         (D->type != XD_LT_F32 && D->type != XD_LT_BF16 && D->type != XD_LT_F16)))
        return 0;
    if ((d->epilogue == XD_LT_EPILOGUE_BIAS || d->epilogue == XD_LT_EPILOGUE_GELU_BIAS) &&
        (!d->bias || d->bias_type != D->type))
        return 0;
    if (d->mode[0] != d->mode[1] || (d->mode[0] && (A->type != XD_LT_F8E4M3 || !d->scales[0] ||
                                                    !d->scales[1] || capability() != 90)))
        return 0;
    return A->type == B->type && D->rows == m && D->cols == n && k == kb && C->type == D->type;
}
API cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t A, cublasLtMatrixLayout_t B,
    cublasLtMatrixLayout_t C, cublasLtMatrixLayout_t D, cublasLtMatmulPreference_t p, int want,
    cublasLtMatmulHeuristicResult_t *r, int *n)
{
    *n = 0;
    if (want < 1 || !checked((desc *)d, (layout *)A, (layout *)B, (layout *)C, (layout *)D))
        return XD_LT_NOT_SUPPORTED;
    for (*n = 0; *n < (want < 4 ? want : 4); ++*n) {
        memset(&r[*n], 0, sizeof *r);
        r[*n].workspaceSize = 1 << 20;
        for (int i = 0; i < 4; i++)
            r[*n].algo.data[i] = ((uint32_t *)p)[i];
        r[*n].algo.data[4] = (uint64_t)*n;
        r[*n].algo.data[5] = want > 1 && *n != 2;
    }
    return XD_LT_SUCCESS;
}

static size_t size_of(cudaDataType_t t)
{
    return t == XD_LT_F32 || t == XD_LT_I32 ? 4 : t == XD_LT_I8 || t == XD_LT_F8E4M3 ? 1 : 2;
}
static float from_e4m3(unsigned u)
{
    const int m = u & 7, e = u >> 3 & 15;
    const float v = (u & 127) == 127 ? NAN : e ? ldexpf(8 + m, e - 10) : ldexpf(m, -9);
    return u & 128 ? -v : v;
}
static float number(const void *p, size_t i, cudaDataType_t t)
{
    uint32_t u;
    float f;
    switch (t) {
    case XD_LT_F32:
        return ((const float *)p)[i];
    case XD_LT_F16:
        return gpu_from_f16(((const uint16_t *)p)[i]);
    case XD_LT_BF16:
        u = (uint32_t)((const uint16_t *)p)[i] << 16;
        memcpy(&f, &u, 4);
        return f;
    case XD_LT_F8E4M3:
        return from_e4m3(((const uint8_t *)p)[i]);
    default:
        return ((const int8_t *)p)[i];
    }
}
static void store(void *p, size_t i, cudaDataType_t t, float f)
{
    uint32_t u;
    if (t == XD_LT_F32) {
        ((float *)p)[i] = f;
        return;
    }
    if (t == XD_LT_F16) {
        ((uint16_t *)p)[i] = gpu_to_f16(f);
        return;
    }
    memcpy(&u, &f, 4);
    ((uint16_t *)p)[i] = f != f ? 0x7fff : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

struct call {
    desc d;
    layout A, B, C, D;
    float alpha, beta;
    const void *a, *b, *c;
    void *out;
};
static void product(const call &x)
{
    size_t m = x.D.rows, n = x.D.cols, k = x.d.ta == XD_LT_OP_N ? x.A.cols : x.A.rows;
    std::vector<float> A(m * k), row(k);
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < k; j++)
            A[i * k + j] =
                number(x.a, x.d.ta == XD_LT_OP_N ? j * (size_t)x.A.ld + i : i * (size_t)x.A.ld + j,
                       x.A.type);
    for (size_t c = 0; c < n; c++) {
        for (size_t j = 0; j < k; j++)
            row[j] =
                number(x.b, x.d.tb == XD_LT_OP_N ? c * (size_t)x.B.ld + j : j * (size_t)x.B.ld + c,
                       x.B.type);
        for (size_t i = 0; i < m; i++) {
            size_t o = c * (size_t)x.D.ld + i;
            if (x.D.type == XD_LT_I32) {
                int32_t s = 0;
                for (size_t j = 0; j < k; j++)
                    s += (int32_t)A[i * k + j] * (int32_t)row[j];
                ((int32_t *)x.out)[o] = s;
                continue;
            }
            float s[16] = { 0 }, v = 0;
            size_t j = 0;
            for (; j + 16 <= k; j += 16)
                for (size_t q = 0; q < 16; q++)
                    s[q] += A[i * k + j + q] * row[j + q];
            for (; j < k; j++)
                v += A[i * k + j] * row[j];
            for (float q : s)
                v += q;
            v = x.alpha * v;
            if (x.d.mode[0])
                v *= x.d.scales[0][i] * x.d.scales[1][c];
            if (x.beta != 0)
                v += x.beta * number(x.c, c * (size_t)x.C.ld + i, x.C.type);
            if (x.d.epilogue == XD_LT_EPILOGUE_BIAS || x.d.epilogue == XD_LT_EPILOGUE_GELU_BIAS)
                v += number(x.d.bias, i, x.d.bias_type);
            if (x.d.epilogue == XD_LT_EPILOGUE_GELU_BIAS || x.d.epilogue == XD_LT_EPILOGUE_GELU)
                v = 0.5f * v * (1 + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
            store(x.out, o, x.D.type, v);
        }
    }
}

API cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t d, const void *alpha,
                                  const void *a, cublasLtMatrixLayout_t A, const void *b,
                                  cublasLtMatrixLayout_t B, const void *beta, const void *c,
                                  cublasLtMatrixLayout_t C, void *out, cublasLtMatrixLayout_t D,
                                  const cublasLtMatmulAlgo_t *algo, void *work, size_t bytes,
                                  cudaStream_t s)
{
    call x = { *(desc *)d, *(layout *)A, *(layout *)B, *(layout *)C, *(layout *)D, 1, 0, a, b,
               c,          out };
    if (!checked(&x.d, &x.A, &x.B, &x.C, &x.D) || (bytes && !simgpu_on_device(work, bytes)))
        return XD_LT_INVALID_VALUE;
    if (x.d.scale == XD_LT_I32)
        x.alpha = (float)*(const int32_t *)alpha, x.beta = (float)*(const int32_t *)beta;
    else
        x.alpha = *(const float *)alpha, x.beta = *(const float *)beta;
    if (!simgpu_on_device(a, ((x.A.cols - 1) * (uint64_t)x.A.ld + x.A.rows) * size_of(x.A.type)) ||
        !simgpu_on_device(b, ((x.B.cols - 1) * (uint64_t)x.B.ld + x.B.rows) * size_of(x.B.type)) ||
        !simgpu_on_device(out, ((x.D.cols - 1) * (uint64_t)x.D.ld + x.D.rows) * size_of(x.D.type)))
        return XD_LT_INVALID_VALUE;
    const void *place[] = { a, b, c, out };
    for (int i = 0; i < 4; i++)
        if ((uintptr_t)place[i] % algo->data[i])
            return XD_LT_INVALID_VALUE;
    if (x.A.type != XD_LT_F32 && ((uintptr_t)a % 16 || (uintptr_t)b % 16))
        return XD_LT_NOT_SUPPORTED;
    if (getenv("XDIT_SIM_ALGORITHMS"))
        fprintf(stderr, "algorithm %d\n", (int)algo->data[4]);
    const int slow = (int)algo->data[5];
    std::function<void()> fn = [x, slow] {
        product(x);
        simgpu_spend(slow ? 1e5 : 0);
    };
    return simgpu_enqueue((CUstream)s, &fn) == XD_CU_SUCCESS ? XD_LT_SUCCESS
                                                             : XD_LT_EXECUTION_FAILED;
}
