/* driver.h - declares the functions of the CUDA driver (libcuda.so.1) that this backend calls.
 *
 * The driver is loaded when a CUDA device is first requested, so one build runs on machines with
 * and without a CUDA driver. The driver's functions are declared here, so a build needs no CUDA
 * header. If <cuda.h> is installed, the test tests/sim/check_driver.c compares the declarations of
 * driver.h with those of <cuda.h>; for this, the test defines XD_CUDA_TYPES_GIVEN and includes
 * <cuda.h> first.
 *
 * If XDIT_CUDA_DIR is set, the CUDA libraries are loaded only from this directory. Tests use
 * XDIT_CUDA_DIR to load stand-ins for the libraries. */
#ifndef XD_BACKEND_CUDA_DRIVER_H
#define XD_BACKEND_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#ifndef XD_CUDA_TYPES_GIVEN
typedef int                    CUresult, CUdevice, CUdevice_attribute, CUfunction_attribute;
typedef int                    CUstreamCaptureMode;
typedef unsigned long long     CUdeviceptr;
typedef struct CUctx_st       *CUcontext;
typedef struct CUmod_st       *CUmodule;
typedef struct CUfunc_st      *CUfunction;
typedef struct CUstream_st    *CUstream;
typedef struct CUevent_st     *CUevent;
typedef struct CUgraph_st     *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUipcMemHandle { char reserved[64]; } CUipcMemHandle;
typedef struct CUipcEventHandle { char reserved[64]; } CUipcEventHandle;
typedef struct CUuuid { char bytes[16]; } CUuuid;
#endif

/* Constants of <cuda.h>, under names of our own. */
enum {
    XD_CU_SUCCESS = 0,
    XD_CU_INVALID_VALUE = 1,
    XD_CU_OUT_OF_MEMORY = 2,
    XD_CU_NOT_INITIALIZED = 3,
    XD_CU_NO_DEVICE = 100,
    XD_CU_INVALID_DEVICE = 101,
    XD_CU_INVALID_IMAGE = 200,
    XD_CU_INVALID_CONTEXT = 201,
    XD_CU_NO_BINARY_FOR_GPU = 209,
    XD_CU_FILE_NOT_FOUND = 301,
    XD_CU_INVALID_HANDLE = 400,
    XD_CU_NOT_FOUND = 500,
    XD_CU_NOT_READY = 600,
    XD_CU_ALREADY_REGISTERED = 712,
    XD_CU_NOT_REGISTERED = 713,
    XD_CU_LAUNCH_FAILED = 719,
    XD_CU_CAPTURE_REFUSED = 900,
    XD_CU_CAPTURE_LOST = 901,

    XD_CU_MULTIPROCESSORS = 16, /* value of CUdevice_attribute */
    XD_CU_CAPABILITY_MAJOR = 75,
    XD_CU_CAPABILITY_MINOR = 76,
    XD_CU_SHARED_MEMORY_OPTIN = 97,
    XD_CU_FUNCTION_SHARED_MEMORY = 8, /* value of CUfunction_attribute */
    XD_CU_STREAM_NON_BLOCKING = 1,
    XD_CU_EVENT_DEFAULT = 0,
    XD_CU_EVENT_DISABLE_TIMING = 2,
    XD_CU_EVENT_INTERPROCESS = 4,
    XD_CU_IPC_PEER_ACCESS = 1,      /* value of CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS */
    XD_CU_CAPTURE_THREAD_LOCAL = 1, /* value of CUstreamCaptureMode */
};

/* Calls the macro X with the symbol and the argument list of each function of the driver. All
 * functions of the driver return CUresult. */
#define XD_CUDA_FUNCTIONS(X)                                                                       \
    X(cuInit, (unsigned flags))                                                                    \
    X(cuDriverGetVersion, (int *version))                                                          \
    X(cuGetErrorName, (CUresult r, const char **name))                                             \
    X(cuGetErrorString, (CUresult r, const char **text))                                           \
    X(cuDeviceGetCount, (int *n))                                                                  \
    X(cuDeviceGet, (CUdevice * d, int ordinal))                                                    \
    X(cuDeviceGetName, (char *name, int size, CUdevice d))                                         \
    X(cuDeviceGetUuid_v2, (CUuuid * id, CUdevice d))                                               \
    X(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice d))                                            \
    X(cuDeviceGetAttribute, (int *value, CUdevice_attribute a, CUdevice d))                        \
    X(cuDevicePrimaryCtxRetain, (CUcontext * c, CUdevice d))                                       \
    X(cuDevicePrimaryCtxRelease_v2, (CUdevice d))                                                  \
    X(cuCtxSetCurrent, (CUcontext c))                                                              \
    X(cuMemGetInfo_v2, (size_t *available, size_t *total))                                         \
    X(cuMemAlloc_v2, (CUdeviceptr * p, size_t bytes))                                              \
    X(cuMemFree_v2, (CUdeviceptr p))                                                               \
    X(cuMemHostAlloc, (void **p, size_t bytes, unsigned flags))                                    \
    X(cuMemFreeHost, (void *p))                                                                    \
    X(cuMemHostRegister_v2, (void *p, size_t bytes, unsigned flags))                               \
    X(cuMemHostUnregister, (void *p))                                                              \
    X(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream s))          \
    X(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream s))                \
    X(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s))          \
    X(cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t n, CUstream s))                \
    X(cuDeviceCanAccessPeer, (int *can, CUdevice d, CUdevice peer))                                \
    X(cuStreamCreateWithPriority, (CUstream * s, unsigned flags, int priority))                    \
    X(cuStreamDestroy_v2, (CUstream s))                                                            \
    X(cuStreamSynchronize, (CUstream s))                                                           \
    X(cuStreamWaitEvent, (CUstream s, CUevent e, unsigned flags))                                  \
    X(cuEventCreate, (CUevent * e, unsigned flags))                                                \
    X(cuEventDestroy_v2, (CUevent e))                                                              \
    X(cuEventRecord, (CUevent e, CUstream s))                                                      \
    X(cuEventQuery, (CUevent e))                                                                   \
    X(cuEventSynchronize, (CUevent e))                                                             \
    X(cuEventElapsedTime, (float *ms, CUevent from, CUevent to))                                   \
    X(cuIpcGetMemHandle, (CUipcMemHandle * h, CUdeviceptr p))                                      \
    X(cuIpcOpenMemHandle_v2, (CUdeviceptr * p, CUipcMemHandle h, unsigned flags))                  \
    X(cuIpcCloseMemHandle, (CUdeviceptr p))                                                        \
    X(cuIpcGetEventHandle, (CUipcEventHandle * h, CUevent e))                                      \
    X(cuIpcOpenEventHandle, (CUevent * e, CUipcEventHandle h))                                     \
    X(cuStreamBeginCapture_v2, (CUstream s, CUstreamCaptureMode mode))                             \
    X(cuStreamEndCapture, (CUstream s, CUgraph * g))                                               \
    X(cuGraphInstantiateWithFlags, (CUgraphExec * x, CUgraph g, unsigned long long flags))         \
    X(cuGraphLaunch, (CUgraphExec x, CUstream s))                                                  \
    X(cuGraphExecDestroy, (CUgraphExec x))                                                         \
    X(cuGraphDestroy, (CUgraph g))                                                                 \
    X(cuModuleLoad, (CUmodule * m, const char *path))                                              \
    X(cuModuleLoadData, (CUmodule * m, const void *image))                                         \
    X(cuModuleUnload, (CUmodule m))                                                                \
    X(cuModuleGetFunction, (CUfunction * f, CUmodule m, const char *name))                         \
    X(cuFuncSetAttribute, (CUfunction f, CUfunction_attribute a, int value))                       \
    X(cuLaunchKernel,                                                                              \
      (CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,          \
       unsigned block_y, unsigned block_z, unsigned shared, CUstream s, void **args, void **extra))

typedef struct xd_cuda_driver {
#define XD_CUDA_FIELD(name, args) CUresult(*name) args;
    XD_CUDA_FUNCTIONS(XD_CUDA_FIELD)
#undef XD_CUDA_FIELD
} xd_cuda_driver;

#endif
