/* nccl.h - declares the functions of NCCL (libnccl.so.2) that this backend calls.
 *
 * NCCL is loaded if each rank has its own GPU. NCCL's functions are declared here, so a build needs
 * no NCCL header. The test tests/sim/check_nccl.c compares the declarations with <nccl.h>. */
#ifndef XD_BACKEND_CUDA_NCCL_H
#define XD_BACKEND_CUDA_NCCL_H

#include "backend/cuda/driver.h"

#ifndef XD_NCCL_TYPES_GIVEN
typedef struct ncclComm *ncclComm_t;
typedef struct ncclUniqueId { char internal[128]; } ncclUniqueId;
typedef int ncclResult_t, ncclDataType_t;
#endif

enum { XD_NCCL_SUCCESS = 0, XD_NCCL_IN_PROGRESS = 7, XD_NCCL_UINT8 = 1 };

/* Calls the macro X with the return type, the symbol and the argument list of each function of
 * NCCL. */
#define XD_NCCL_FUNCTIONS(X)                                                                       \
    X(ncclResult_t, ncclGetVersion, (int *version))                                                \
    X(const char *, ncclGetErrorString, (ncclResult_t r))                                          \
    X(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id))                                          \
    X(ncclResult_t, ncclCommInitRank, (ncclComm_t * c, int size, ncclUniqueId id, int rank))       \
    X(ncclResult_t, ncclCommDestroy, (ncclComm_t c))                                               \
    X(ncclResult_t, ncclCommAbort, (ncclComm_t c))                                                 \
    X(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t c, ncclResult_t * r))                       \
    X(ncclResult_t, ncclGroupStart, (void))                                                        \
    X(ncclResult_t, ncclGroupEnd, (void))                                                          \
    X(ncclResult_t, ncclSend,                                                                      \
      (const void *p, size_t n, ncclDataType_t t, int peer, ncclComm_t c, CUstream s))             \
    X(ncclResult_t, ncclRecv,                                                                      \
      (void *p, size_t n, ncclDataType_t t, int peer, ncclComm_t c, CUstream s))

typedef struct xd_nccl {
#define XD_NCCL_FIELD(ret, name, args) ret(*name) args;
    XD_NCCL_FUNCTIONS(XD_NCCL_FIELD)
#undef XD_NCCL_FIELD
} xd_nccl;

#endif
