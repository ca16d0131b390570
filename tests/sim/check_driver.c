/* check_driver.c - our declarations of the driver against <cuda.h>: it compiles where they agree
 * (check_headers.py) */
#include <cuda.h>
#define XD_CUDA_TYPES_GIVEN
#include "tests/sim/more.h"

#define SAME(name, args) CUresult(*const check_##name) args = name;
XD_CUDA_FUNCTIONS(SAME)
SIM_MORE_FUNCTIONS(SAME)

#define IS(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
IS(XD_CU_SUCCESS, CUDA_SUCCESS);
IS(XD_CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
IS(XD_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
IS(XD_CU_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
IS(XD_CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
IS(XD_CU_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
IS(XD_CU_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE);
IS(XD_CU_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
IS(XD_CU_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU);
IS(XD_CU_FILE_NOT_FOUND, CUDA_ERROR_FILE_NOT_FOUND);
IS(XD_CU_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE);
IS(XD_CU_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
IS(XD_CU_NOT_READY, CUDA_ERROR_NOT_READY);
IS(XD_CU_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED);
IS(XD_CU_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
IS(XD_CU_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
IS(XD_CU_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
IS(XD_CU_SHARED_MEMORY_OPTIN, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
IS(XD_CU_FUNCTION_SHARED_MEMORY, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
IS(XD_CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
IS(XD_CU_EVENT_DEFAULT, CU_EVENT_DEFAULT);
IS(XD_CU_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);

/* Types that driver.h declares as int, unsigned long long and a struct of 64 bytes. */
_Static_assert(sizeof(CUresult) == sizeof(int) && sizeof(CUdevice) == sizeof(int) &&
                   sizeof(CUdevice_attribute) == sizeof(int) &&
                   sizeof(CUfunction_attribute) == sizeof(int) &&
                   sizeof(CUstreamCaptureMode) == sizeof(int), "an int");
_Static_assert(sizeof(CUdeviceptr) == sizeof(unsigned long long), "an address");
_Static_assert(sizeof(CUipcMemHandle) == 64 && sizeof(CUipcEventHandle) == 64, "a handle");
IS(XD_CU_EVENT_INTERPROCESS, CU_EVENT_INTERPROCESS);
IS(XD_CU_IPC_PEER_ACCESS, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
