/* fatbin.c - embeds the compiled kernels of this build (nvcc's fatbin) in the executable */
#include <stdint.h>

#include "backend/cuda/load.h"

#ifdef XD_CUDA_HAS_KERNELS
/* The bytes of the fatbin are in an array that tools/cuda_kernels.py generates at build time. */
extern const uint64_t xd_cuda_kernels[];
extern const int      xd_cuda_kernels_release;

const unsigned char *xd_cuda_fatbin(int *release)
{
    *release = xd_cuda_kernels_release;
    return (const unsigned char *)xd_cuda_kernels;
}
#else
const unsigned char *xd_cuda_fatbin(int *release)
{
    *release = 0;
    return 0;
}
#endif
