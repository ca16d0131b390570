/* fatbin.c - the kernels of this build, as nvcc made them, inside the program */
#include <stdint.h>

extern const unsigned char *const xd_cuda_fatbin;

#ifdef XD_CUDA_HAS_KERNELS
/* Generated from the fatbin by tools/cuda_kernels.py. */
extern const uint64_t xd_cuda_kernels[];
const unsigned char *const xd_cuda_fatbin = (const unsigned char *)xd_cuda_kernels;
#else
const unsigned char *const xd_cuda_fatbin = 0;
#endif
