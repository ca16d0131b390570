/* gemm.h - declares our own GEMMs, which are used where they are faster than oneDNN.
 *
 * On each instruction set, these GEMMs support weights of the following types:
 *   AMX: bf16, e4m3 and int8;
 *   AVX-512 with bf16 dot products: bf16 and e4m3;
 *   AVX-512 with VNNI: int8;
 *   AVX2: f32.
 *
 * The arguments of the functions are documented in backend.h. The products for a row of the output
 * are always added in an order that depends only on the length of the input rows. The result of a
 * row does not depend on the other rows of the GEMM, on the number of threads, or on addresses. */
#ifndef XD_BACKEND_CPU_GEMM_GEMM_H
#define XD_BACKEND_CPU_GEMM_GEMM_H

#include "backend/cpu/cpu.h"

/* Returns 1 if our own GEMMs support this weight on this instruction set. xd_cpu_gemm_takes reads
 * only the weight's type and sizes. The other functions of gemm.h require a weight for which
 * xd_cpu_gemm_takes returns 1. */
int       xd_cpu_gemm_takes(xd_isa isa, const xd_weight *w);
/* Returns 1 if the GEMM reads an F32 input directly, without a previous conversion. */
int       xd_cpu_gemm_reads_floats(xd_isa isa, const xd_weight *w);
size_t    xd_cpu_gemm_pack_size(xd_isa isa, xd_weight *w);
/* Packs a weight without scratch memory. `src` has a float type and may be unaligned. */
xd_status xd_cpu_gemm_pack(xd_isa isa, const xd_weight *w, xd_tensor src);
/* Implementations of `pack_band` and `pack_rows` of xd_ops (backend.h), which pack a weight in
 * bands of rows. */
int64_t   xd_cpu_gemm_pack_band(xd_isa isa, const xd_weight *w);
xd_status xd_cpu_gemm_pack_rows(xd_isa isa, const xd_weight *w, xd_tensor src, int64_t row0);
/* Returns the bytes of `tmp` for a run with `threads` threads (the value of xd_par_threads() at the
 * call). */
size_t    xd_cpu_gemm_scratch(xd_isa isa, const xd_gemm *a, int threads);
xd_status xd_cpu_gemm_gemm(xd_isa isa, const xd_gemm *a, void *tmp);

#endif
