/* cudnn.h - declares the functions of cuDNN's backend API (libcudnn.so.9) that this backend calls.
 *
 * cuDNN is loaded at run time and its functions are declared here, like those of the driver
 * (driver.h). The test tests/sim/check_cudnn.c compares the declarations with <cudnn.h>. */
#ifndef XD_BACKEND_CUDA_CUDNN_H
#define XD_BACKEND_CUDA_CUDNN_H

#include "backend/cuda/driver.h"

#ifndef XD_CUDNN_TYPES_GIVEN
typedef int                  cudnnStatus_t, cudnnBackendDescriptorType_t;
typedef int                  cudnnBackendAttributeName_t, cudnnBackendAttributeType_t;
typedef struct cudnnContext *cudnnHandle_t;
typedef void                *cudnnBackendDescriptor_t;
#endif

/* Constants of cuDNN's headers, under names of our own. */
enum {
    XD_DNN_SUCCESS = 0,
    XD_DNN_BAD_PARAM = 2000,
    XD_DNN_NOT_SUPPORTED = 3000,
    XD_DNN_EXECUTION_FAILED = 5000,

    XD_DNN_F32 = 0, /* values of cudnnDataType_t */
    XD_DNN_F16 = 2,
    XD_DNN_I32 = 4,
    XD_DNN_BF16 = 9,
    XD_DNN_HEURISTIC = 3, /* value of cudnnBackendHeurMode_t for mode A, a fast heuristic */

    /* value of cudnnConvolutionMode_t for filters that are not mirrored */
    XD_DNN_CROSS_CORRELATION = 1,
    XD_DNN_ADD = 0, /* cudnnPointwiseMode_t */

    XD_DNN_POINTWISE = 0, /* values of cudnnBackendDescriptorType_t */
    XD_DNN_CONV = 1,
    XD_DNN_ENGINE_CONFIG = 3,
    XD_DNN_HEURISTICS = 4,
    XD_DNN_PLAN = 5,
    XD_DNN_CONV_OP = 10,
    XD_DNN_POINTWISE_OP = 13,
    XD_DNN_GRAPH = 15,
    XD_DNN_POINTERS = 16,
    XD_DNN_TENSOR = 17,
    XD_DNN_DEVICE = 38,
    XD_DNN_SDPA = 41,

    XD_DNN_TYPE_DATA_TYPE = 1, /* values of cudnnBackendAttributeType_t */
    XD_DNN_TYPE_BOOLEAN = 2,
    XD_DNN_TYPE_INT64 = 3,
    XD_DNN_TYPE_FLOAT = 4,
    XD_DNN_TYPE_POINTER = 6,
    XD_DNN_TYPE_CONV_MODE = 7,
    XD_DNN_TYPE_HEURISTIC = 8,
    XD_DNN_TYPE_POINTWISE_MODE = 14,
    XD_DNN_TYPE_DESCRIPTOR = 15,
    XD_DNN_TYPE_INT32 = 23,
    XD_DNN_TYPE_CHAR = 24,

    XD_DNN_POINTWISE_KIND = 0, /* values of cudnnBackendAttributeName_t */
    XD_DNN_POINTWISE_TYPE = 1,
    XD_DNN_CONV_TYPE = 100,
    XD_DNN_CONV_MODE = 101,
    XD_DNN_CONV_DILATIONS = 102,
    XD_DNN_CONV_STRIDES = 103,
    XD_DNN_CONV_PAD_AFTER = 104,
    XD_DNN_CONV_PAD_BEFORE = 105,
    XD_DNN_CONV_AXES = 106,
    XD_DNN_HEURISTICS_MODE = 200,
    XD_DNN_HEURISTICS_GRAPH = 201,
    XD_DNN_HEURISTICS_RESULTS = 202,
    XD_DNN_HEURISTICS_DEVICE = 204,
    XD_DNN_PLAN_CONFIG = 401,
    XD_DNN_PLAN_WORKSPACE = 402,
    XD_DNN_PLAN_JSON = 405,
    XD_DNN_PLAN_DEVICE = 407,
    XD_DNN_CONV_OP_ALPHA = 700,
    XD_DNN_CONV_OP_BETA = 701,
    XD_DNN_CONV_OP_CONV = 702,
    XD_DNN_CONV_OP_W = 703,
    XD_DNN_CONV_OP_X = 704,
    XD_DNN_CONV_OP_Y = 705,
    XD_DNN_POINTWISE_OP_KIND = 750,
    XD_DNN_POINTWISE_OP_X = 751,
    XD_DNN_POINTWISE_OP_B = 752,
    XD_DNN_POINTWISE_OP_Y = 753,
    XD_DNN_GRAPH_OPS = 801,
    XD_DNN_TENSOR_ALIGNMENT = 900,
    XD_DNN_TENSOR_TYPE = 901,
    XD_DNN_TENSOR_DIMENSIONS = 902,
    XD_DNN_TENSOR_STRIDES = 903,
    XD_DNN_TENSOR_ID = 906,
    XD_DNN_TENSOR_VIRTUAL = 907,
    XD_DNN_TENSOR_BY_VALUE = 908,
    XD_DNN_POINTERS_IDS = 1000,
    XD_DNN_POINTERS_EACH = 1001,
    XD_DNN_POINTERS_WORKSPACE = 1003,
    XD_DNN_DEVICE_ID = 2700,
    XD_DNN_DEVICE_JSON = 2702,
    XD_DNN_SDPA_Q = 2800,
    XD_DNN_SDPA_K = 2801,
    XD_DNN_SDPA_V = 2802,
    XD_DNN_SDPA_OUT = 2803,
    XD_DNN_SDPA_LSE = 2804,
    XD_DNN_SDPA_SCALE = 2805,
    /* attributes for two tensors: the number of valid queries of each sample, and the number of
     * valid keys of each sample */
    XD_DNN_SDPA_QUERIES = 2809,
    XD_DNN_SDPA_KEYS = 2810,
};

/* Calls the macro X with the return type, the symbol and the argument list of each function of
 * cuDNN. */
#define XD_CUDNN_FUNCTIONS(X)                                                                      \
    X(size_t, cudnnGetVersion, (void))                                                             \
    X(void, cudnnGetLastErrorString, (char *text, size_t size))                                    \
    X(cudnnStatus_t, cudnnCreate, (cudnnHandle_t * h))                                             \
    X(cudnnStatus_t, cudnnDestroy, (cudnnHandle_t h))                                              \
    X(cudnnStatus_t, cudnnSetStream, (cudnnHandle_t h, CUstream s))                                \
    X(cudnnStatus_t, cudnnBackendCreateDescriptor,                                                 \
      (cudnnBackendDescriptorType_t t, cudnnBackendDescriptor_t *d))                               \
    X(cudnnStatus_t, cudnnBackendDestroyDescriptor, (cudnnBackendDescriptor_t d))                  \
    X(cudnnStatus_t, cudnnBackendFinalize, (cudnnBackendDescriptor_t d))                           \
    X(cudnnStatus_t, cudnnBackendSetAttribute,                                                     \
      (cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,                               \
       cudnnBackendAttributeType_t type, int64_t n, const void *values))                           \
    X(cudnnStatus_t, cudnnBackendGetAttribute,                                                     \
      (cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,                               \
       cudnnBackendAttributeType_t type, int64_t most, int64_t *n, void *values))                  \
    X(cudnnStatus_t, cudnnBackendExecute,                                                          \
      (cudnnHandle_t h, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pointers))

typedef struct xd_cudnn {
#define XD_CUDNN_FIELD(ret, name, args) ret(*name) args;
    XD_CUDNN_FUNCTIONS(XD_CUDNN_FIELD)
#undef XD_CUDNN_FIELD
} xd_cudnn;

#endif
