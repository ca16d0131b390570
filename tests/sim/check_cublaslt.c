/* check_cublaslt.c - our declarations of cuBLASLt against <cublasLt.h>: it compiles where they
 * agree (check_headers.py) */
#include <cublasLt.h>
#include <cuda.h>
#define XD_CUDA_TYPES_GIVEN
#define XD_CUBLASLT_TYPES_GIVEN
#include "backend/cuda/cublaslt.h"

#define SAME(name, args) cublasStatus_t(*const check_##name) args = name;
XD_CUBLASLT_FUNCTIONS(SAME)

#define IS(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
IS(XD_LT_SUCCESS, CUBLAS_STATUS_SUCCESS);
IS(XD_LT_INVALID_VALUE, CUBLAS_STATUS_INVALID_VALUE);
IS(XD_LT_EXECUTION_FAILED, CUBLAS_STATUS_EXECUTION_FAILED);
IS(XD_LT_NOT_SUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED);
IS(XD_LT_F32, CUDA_R_32F);
IS(XD_LT_F16, CUDA_R_16F);
IS(XD_LT_I8, CUDA_R_8I);
IS(XD_LT_I32, CUDA_R_32I);
IS(XD_LT_BF16, CUDA_R_16BF);
IS(XD_LT_F8E4M3, CUDA_R_8F_E4M3);
IS(XD_LT_COMPUTE_F32, CUBLAS_COMPUTE_32F);
IS(XD_LT_COMPUTE_I32, CUBLAS_COMPUTE_32I);
IS(XD_LT_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSA);
IS(XD_LT_DESC_TRANSB, CUBLASLT_MATMUL_DESC_TRANSB);
IS(XD_LT_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE);
IS(XD_LT_DESC_BIAS_POINTER, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
IS(XD_LT_DESC_BIAS_TYPE, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
IS(XD_LT_DESC_SCALE_POINTER_A, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
IS(XD_LT_DESC_SCALE_POINTER_B, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
IS(XD_LT_DESC_FAST_SUMS, CUBLASLT_MATMUL_DESC_FAST_ACCUM);
IS(XD_LT_DESC_SCALE_MODE_A, CUBLASLT_MATMUL_DESC_A_SCALE_MODE);
IS(XD_LT_DESC_SCALE_MODE_B, CUBLASLT_MATMUL_DESC_B_SCALE_MODE);
IS(XD_LT_SCALE_OUTER_VECTOR, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
IS(XD_LT_PREF_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
IS(XD_LT_PREF_ALIGNMENT_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
IS(XD_LT_PREF_ALIGNMENT_B, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
IS(XD_LT_PREF_ALIGNMENT_C, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
IS(XD_LT_PREF_ALIGNMENT_D, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
IS(XD_LT_OP_N, CUBLAS_OP_N);
IS(XD_LT_OP_T, CUBLAS_OP_T);
IS(XD_LT_EPILOGUE_NONE, CUBLASLT_EPILOGUE_DEFAULT);
IS(XD_LT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS);
IS(XD_LT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU);
IS(XD_LT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_GELU_BIAS);

/* The layout of what cublaslt.h declares with members. */
_Static_assert(sizeof(cublasStatus_t) == sizeof(int) && sizeof(cudaDataType_t) == sizeof(int) &&
                   sizeof(cublasComputeType_t) == sizeof(int) &&
                   sizeof(cublasLtMatmulDescAttributes_t) == sizeof(int) &&
                   sizeof(cublasLtMatmulPreferenceAttributes_t) == sizeof(int),
               "an int");
typedef struct ours {
    uint64_t algo[8];
    size_t   work;
    int      state;
    float    waves;
    int      rest[4];
} ours;
_Static_assert(sizeof(cublasLtMatmulHeuristicResult_t) == sizeof(ours) &&
                   sizeof(cublasLtMatmulAlgo_t) == 64,
               "a result");
