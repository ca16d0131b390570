/* host.c - quantizes floats to four-bit integers and rotates groups of elements, with the best
 * instruction set of the host's processor, also for GPU devices */
#include "backend/cpu/cpu.h"

#include "backend/four.h"
#include "base/minmax.h"

/* AT_ONCE is the number of elements per kernel call, which is so small that a kernel runs on one
 * thread. */
enum { AT_ONCE = 4096 };

xd_isa xd_isa_of_host(void)
{
    xd_isa isa;
    int    forced;
    xd_err e = { 0 };
    return xd_isa_choose(&isa, &forced, &e) == XD_OK ? isa : XD_ISA_C;
}

/* Returns the kernels of the host's best instruction set. XDIT_ISA is read only once. Quantization
 * and rotation produce the same bits with every instruction set. */
static const xd_kernels *kernels_of_host(void)
{
    static const xd_kernels *_Atomic known;
    const xd_kernels *k = known;
    if (!k)
        known = k = xd_cpu_kernels(xd_isa_of_host());
    return k;
}

void xd_four_quantize(void *to, const float *from, int64_t n)
{
    kernels_of_host()->four(to, from, n);
}

void xd_four_rotate(float *x, int64_t n, int64_t group)
{
    const xd_kernels *k = kernels_of_host();
    for (int64_t i = 0, m; i < n; i += m) {
        m = xd_min(n - i, AT_ONCE);
        const xd_tensor t = xd_view2(x + i, XD_F32, 1, m);
        k->rotate(&(xd_rotate){ t, t, group });
    }
}
