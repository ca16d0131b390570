/* isa.c - chooses the CPU instruction set: the best one of the processor, or the one that XDIT_ISA
 * names */
#define _DEFAULT_SOURCE /* makes unistd.h declare syscall */

#include "backend/cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

static const char *const names[XD_NISAS] = { "c", "avx2", "avx512", "avx512bf16", "amx" };

const char *xd_isa_name(xd_isa isa)
{
    return names[isa];
}

#if defined(__x86_64__)
/* Returns 1 if AMX is usable. AMX kernels need tiles of bf16 and int8, and byte permutations of
 * vectors; every processor with AMX tiles has all of these. Linux enables the tile registers for a
 * process when the process requests them. */
static int has_amx(void)
{
#if defined(XD_WITH_AMX) && defined(__linux__)
    enum { REQUEST = 0x1023, TILE_DATA = 18, NEEDED = 1 << 22 | 1 << 24 | 1 << 25, VBMI = 1 << 1 };
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & NEEDED) == NEEDED && (c & VBMI) &&
           syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
#else
    return 0;
#endif
}

int xd_isa_has(xd_isa isa)
{
    __builtin_cpu_init();
    int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    int avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    switch (isa) {
    case XD_ISA_AVX2: return avx2;
    case XD_ISA_AVX512: return avx512;
    case XD_ISA_AVX512BF16: return avx512 && __builtin_cpu_supports("avx512bf16");
    case XD_ISA_AMX: return xd_isa_has(XD_ISA_AVX512BF16) && has_amx();
    default: return isa == XD_ISA_C;
    }
}

int xd_isa_has_vnni(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512vnni") != 0;
}
#else
int xd_isa_has(xd_isa isa)
{
    return isa == XD_ISA_C;
}

int xd_isa_has_vnni(void)
{
    return 0;
}
#endif

static void list_names(char *buf, size_t size)
{
    size_t at = 0;
    for (int i = 0; i < XD_NISAS; i++)
        if (xd_isa_has((xd_isa)i) && at < size)
            at += (size_t)snprintf(buf + at, size - at, "%s%s", at ? ", " : "", names[i]);
}

xd_status xd_isa_choose(xd_isa *isa, int *forced, xd_err *e)
{
    const char *want = getenv("XDIT_ISA");
    char        has[64] = "";
    *forced = want && *want;
    if (!*forced) {
        *isa = XD_ISA_C;
        for (int i = 0; i < XD_NISAS; i++)
            if (xd_isa_has((xd_isa)i))
                *isa = (xd_isa)i;
        return XD_OK;
    }
    list_names(has, sizeof has);
    for (int i = 0; i < XD_NISAS; i++)
        if (strcmp(want, names[i]) == 0 && xd_isa_has((xd_isa)i)) {
            *isa = (xd_isa)i;
            return XD_OK;
        } else if (strcmp(want, names[i]) == 0) {
            return xd_fail(e, XD_EUNSUPPORTED,
                           "XDIT_ISA=%s: this machine does not support %s, only %s", want, want,
                           has);
        }
    return xd_fail(e, XD_EINVAL, "XDIT_ISA=%s is no instruction set; this machine has %s", want,
                   has);
}
