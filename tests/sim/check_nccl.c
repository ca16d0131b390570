/* check_nccl.c - our declarations of NCCL against <nccl.h>: it compiles where they agree
 * (check_headers.py) */
#include <cuda.h>
#include <nccl.h>
#define XD_CUDA_TYPES_GIVEN
#define XD_NCCL_TYPES_GIVEN
#include "backend/cuda/nccl.h"

#define SAME(ret, name, args) ret (*const check_##name) args = name;
XD_NCCL_FUNCTIONS(SAME)

#define IS(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
IS(XD_NCCL_SUCCESS, ncclSuccess);
IS(XD_NCCL_IN_PROGRESS, ncclInProgress);
IS(XD_NCCL_UINT8, ncclUint8);

/* Types that nccl.h of ours declares as int and a struct of 128 bytes. */
_Static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int) &&
                   sizeof(ncclUniqueId) == 128,
               "the types");
