/* gemm.h - GEMMs of our own, where they beat the library: of BF16, F8E4M3 and I8 weights by
 * the tiles of AMX; else of the former on AVX-512 with dot products of bf16 values, of I8 on AVX-512 with VNNI;
 * of F32 on AVX2.
 *
 * Arguments are those of backend.h. A row of the output is computed by the same operations in
 * the same order whatever other rows the call has, however many threads it runs on, and
 * wherever operands lie: the order of sums depends on the length of a row alone. */
#ifndef XD_BACKEND_CPU_GEMM_GEMM_H
#define XD_BACKEND_CPU_GEMM_GEMM_H

#include "backend/cpu/cpu.h"

/* Is this weight, of which only type and sizes are read, ours on this instruction set? The other
 * functions are for weights that are. */
int       xd_cpu_gemm_takes(xd_isa isa, const xd_weight *w);
/* Does its product read an input of F32 as it is? */
int       xd_cpu_gemm_reads_floats(xd_isa isa, const xd_weight *w);
size_t    xd_cpu_gemm_pack_size(xd_isa isa, xd_weight *w);
/* Needs no scratch; src is of a float type, perhaps unaligned. */
xd_status xd_cpu_gemm_pack(xd_isa isa, const xd_weight *w, xd_tensor src);
int64_t   xd_cpu_gemm_pack_band(xd_isa isa, const xd_weight *w);     /* as in xd_ops                */
xd_status xd_cpu_gemm_pack_rows(xd_isa isa, const xd_weight *w, xd_tensor src, int64_t row0);
/* Bytes of `tmp` for a run with `threads` threads (what xd_par_threads() returns then). */
size_t    xd_cpu_gemm_scratch(xd_isa isa, const xd_gemm *a, int threads);
xd_status xd_cpu_gemm_gemm(xd_isa isa, const xd_gemm *a, void *tmp);

#endif
