/* attn.h - declares the fused attention functions of the CPU device, one for each instruction set.
 *
 * All attention functions take xd_attn_args as documented in backend.h. The result of attention
 * does not depend on the number of threads, on how the keys are split into segments, or on which
 * queries one call processes, because a row of the output is always computed by equal operations in
 * a fixed order.
 *
 * The functions `xd_attn_scratch_*` return the bytes of `tmp` for a run with `threads` threads (the
 * value of xd_par_threads() at the call), and dereference no data pointer. The functions
 * `xd_attn_scratch_*` return 0 for arguments that the attention function rejects with XD_EINVAL or
 * XD_EUNSUPPORTED. */
#ifndef XD_BACKEND_CPU_ATTN_ATTN_H
#define XD_BACKEND_CPU_ATTN_ATTN_H

#include "backend/backend.h"

/* Returns 1 if the arguments request int8 scores and the kernels for int8 scores support the
 * arguments. If attention has a mask, a bias or a soft cap, scores are always computed in the type
 * of the queries, not in int8. */
int xd_attn_in_int8(const xd_attn_args *a);

/* Computes attention in plain C; slow, and the reference for the other implementations. xd_attn_c
 * and xd_attn_int8 are the only functions that compute int8 scores if the arguments request
 * them. */
size_t    xd_attn_scratch_c(const xd_attn_args *a, int threads);
xd_status xd_attn_c(const xd_attn_args *a, void *tmp);

#if defined(__x86_64__)
/* Attention for processors with AVX2 and FMA. xd_attn_avx2 converts BF16 operands to f32. */
size_t    xd_attn_scratch_avx2(const xd_attn_args *a, int threads);
xd_status xd_attn_avx2(const xd_attn_args *a, void *tmp);

/* Attention for processors with AVX-512 F, BW, DQ and VL. xd_attn_avx512 converts BF16 operands to
 * f32. */
size_t    xd_attn_scratch_avx512(const xd_attn_args *a, int threads);
xd_status xd_attn_avx512(const xd_attn_args *a, void *tmp);

/* Attention for processors with AVX-512 and AVX512_BF16. xd_attn_avx512bf16 multiplies BF16
 * operands by dot-product instructions on pairs of elements, and rounds probabilities to bf16.
 * Attention with F32 operands is computed by xd_attn_avx512. */
size_t    xd_attn_scratch_avx512bf16(const xd_attn_args *a, int threads);
xd_status xd_attn_avx512bf16(const xd_attn_args *a, void *tmp);

/* Attention for processors with AVX512_BF16 and VNNI. The operands of xd_attn_int8 must be BF16,
 * and xd_attn_in_int8 must return 1 for the arguments. xd_attn_int8 computes scores from int8
 * queries and keys; probabilities and values are bf16. */
size_t    xd_attn_scratch_int8(const xd_attn_args *a, int threads);
xd_status xd_attn_int8(const xd_attn_args *a, void *tmp);

/* Attention for processors with AVX-512 and AMX. BF16 operands are multiplied by the tile
 * instructions of AMX. */
size_t    xd_attn_scratch_amx(const xd_attn_args *a, int threads);
xd_status xd_attn_amx(const xd_attn_args *a, void *tmp);

/* For tests only: like xd_attn_avx512bf16, but the bf16 dot products are emulated in AVX-512 F. */
size_t    xd_attn_scratch_bf16emu(const xd_attn_args *a, int threads);
xd_status xd_attn_bf16emu(const xd_attn_args *a, void *tmp);
#endif

#endif
