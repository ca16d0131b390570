/* cublaslt.h - declares the functions of cuBLASLt (libcublasLt.so.13 or .12) that this backend
 * calls.
 *
 * cuBLASLt is loaded at run time, and its functions are declared here, like those of the driver
 * (driver.h). The test tests/sim/check_cublaslt.c compares the declarations with <cublasLt.h>.
 * Matrices of cuBLASLt are column-major, so its columns are our rows. */
#ifndef XD_BACKEND_CUDA_CUBLASLT_H
#define XD_BACKEND_CUDA_CUBLASLT_H

#include "backend/cuda/driver.h"

#ifndef XD_CUBLASLT_TYPES_GIVEN
typedef int   cublasStatus_t, cublasComputeType_t, cudaDataType_t;
typedef int   cublasLtMatmulDescAttributes_t, cublasLtMatmulPreferenceAttributes_t;
typedef void *cublasLtHandle_t;
typedef struct cublasLtMatmulDesc       *cublasLtMatmulDesc_t;
typedef struct cublasLtMatrixLayout     *cublasLtMatrixLayout_t;
typedef struct cublasLtMatmulPreference *cublasLtMatmulPreference_t;
typedef struct cublasLtMatmulAlgo { uint64_t data[8]; } cublasLtMatmulAlgo_t;
typedef struct cublasLtMatmulHeuristicResult {
    cublasLtMatmulAlgo_t algo;
    size_t               workspaceSize;
    cublasStatus_t       state;
    float                wavesCount;
    int                  reserved[4];
} cublasLtMatmulHeuristicResult_t;
typedef CUstream cudaStream_t;
#endif

/* Constants of cuBLASLt's headers, under names of our own. */
enum {
    XD_LT_SUCCESS = 0,
    XD_LT_INVALID_VALUE = 7,
    XD_LT_EXECUTION_FAILED = 13,
    XD_LT_NOT_SUPPORTED = 15,

    XD_LT_F32 = 0, /* values of cudaDataType_t */
    XD_LT_F16 = 2,
    XD_LT_I8 = 3,
    XD_LT_I32 = 10,
    XD_LT_BF16 = 14,
    XD_LT_F8E4M3 = 28,

    XD_LT_COMPUTE_F32 = 68, /* values of cublasComputeType_t */
    XD_LT_COMPUTE_I32 = 72,

    /* values of cublasLtMatmulDescAttributes_t; each attribute is an int32 */
    XD_LT_DESC_TRANSA = 3,
    XD_LT_DESC_TRANSB = 4,
    XD_LT_DESC_EPILOGUE = 7,
    /* the value of the attribute XD_LT_DESC_BIAS_POINTER is a pointer */
    XD_LT_DESC_BIAS_POINTER = 8,
    XD_LT_DESC_SCALE_POINTER_A = 17, /* the values of the scale attributes are pointers */
    XD_LT_DESC_SCALE_POINTER_B = 18,
    XD_LT_DESC_FAST_SUMS = 25, /* 1 (an int8): e4m3 sums are not promoted to F32 in a GEMM */
    XD_LT_DESC_BIAS_TYPE = 26,
    XD_LT_DESC_SCALE_MODE_A = 31,
    XD_LT_DESC_SCALE_MODE_B = 32,
    /* scale mode for two F32 vectors: one has a scale for each row of the result, the other a scale
     * for each column */
    XD_LT_SCALE_OUTER_VECTOR = 3,
    XD_LT_PREF_WORKSPACE = 1,   /* the value of the attribute XD_LT_PREF_WORKSPACE is a size_t */
    XD_LT_PREF_ALIGNMENT_A = 5, /* alignments of A, B, C and D in bytes, each a uint32 */
    XD_LT_PREF_ALIGNMENT_B = 6,
    XD_LT_PREF_ALIGNMENT_C = 7,
    XD_LT_PREF_ALIGNMENT_D = 8,

    XD_LT_OP_N = 0,
    XD_LT_OP_T = 1,
    XD_LT_EPILOGUE_NONE = 1,
    XD_LT_EPILOGUE_BIAS = 4,
    XD_LT_EPILOGUE_GELU = 32, /* epilogue: GELU in the tanh approximation */
    XD_LT_EPILOGUE_GELU_BIAS = 36,
};

/* Calls the macro X with the symbol and the argument list of each function of cuBLASLt. All
 * functions of cuBLASLt return cublasStatus_t. */
#define XD_CUBLASLT_FUNCTIONS(X)                                                                   \
    X(cublasLtCreate, (cublasLtHandle_t * h))                                                      \
    X(cublasLtDestroy, (cublasLtHandle_t h))                                                       \
    X(cublasLtMatmulDescCreate,                                                                    \
      (cublasLtMatmulDesc_t * d, cublasComputeType_t compute, cudaDataType_t scale))               \
    X(cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t d))                                         \
    X(cublasLtMatmulDescSetAttribute,                                                              \
      (cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t a, const void *value, size_t bytes)) \
    X(cublasLtMatrixLayoutCreate,                                                                  \
      (cublasLtMatrixLayout_t * l, cudaDataType_t t, uint64_t rows, uint64_t cols, int64_t ld))    \
    X(cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t l))                                     \
    X(cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t * p))                            \
    X(cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t p))                             \
    X(cublasLtMatmulPreferenceSetAttribute,                                                        \
      (cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t a, const void *value,    \
       size_t bytes))                                                                              \
    X(cublasLtMatmulAlgoGetHeuristic,                                                              \
      (cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t A,                       \
       cublasLtMatrixLayout_t B, cublasLtMatrixLayout_t C, cublasLtMatrixLayout_t D,               \
       cublasLtMatmulPreference_t p, int want, cublasLtMatmulHeuristicResult_t *found, int *n))    \
    X(cublasLtMatmul,                                                                              \
      (cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha, const void *a,               \
       cublasLtMatrixLayout_t A, const void *b, cublasLtMatrixLayout_t B, const void *beta,        \
       const void *c, cublasLtMatrixLayout_t C, void *out, cublasLtMatrixLayout_t D,               \
       const cublasLtMatmulAlgo_t *algo, void *work, size_t work_bytes, cudaStream_t s))

typedef struct xd_cublaslt {
#define XD_CUBLASLT_FIELD(name, args) cublasStatus_t(*name) args;
    XD_CUBLASLT_FUNCTIONS(XD_CUBLASLT_FIELD)
#undef XD_CUBLASLT_FIELD
} xd_cublaslt;

#endif
