/* fatbin.c - the kernels of this build, as nvcc made them, inside the program
 *
 * XD_CUDA_FATBIN names the file; without it there are none. */
extern const unsigned char *const xd_cuda_fatbin;

#ifdef XD_CUDA_FATBIN
__asm__(".pushsection .rodata\n"
        ".balign 16\n"
        "xd_cuda_fatbin_start:\n"
        ".incbin \"" XD_CUDA_FATBIN "\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const unsigned char xd_cuda_fatbin_start[] __attribute__((visibility("hidden")));
const unsigned char *const xd_cuda_fatbin = xd_cuda_fatbin_start;
#else
const unsigned char *const xd_cuda_fatbin = 0;
#endif
