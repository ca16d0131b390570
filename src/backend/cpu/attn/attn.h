/* attn.h - fused attention on the CPU, one implementation per instruction set.
 *
 * All take xd_attn_args as backend.h describes them. A result does not depend on the number of
 * threads, on how the keys are cut into segments, or on which queries share a call: a row of the
 * output is computed by the same operations in the same order wherever it stands.
 *
 * `xd_attn_scratch_*` gives the bytes of `tmp` for a run with `threads` threads (the value of
 * xd_par_threads() at the call); it reads no data pointer. For arguments that the kernel will
 * refuse (XD_EINVAL, XD_EUNSUPPORTED) it is 0. */
#ifndef XD_BACKEND_CPU_ATTN_ATTN_H
#define XD_BACKEND_CPU_ATTN_ATTN_H

#include "backend/backend.h"

/* 1: these arguments ask for scores of int8, and kernels for such scores take them. Masks, biases
 * and caps are computed in the type of the queries. */
int xd_attn_in_int8(const xd_attn_args *a);

/* Plain C, three loops and a softmax: the reference for the other implementations. The only one of
 * these that makes scores of int8 where the arguments ask for it. */
size_t    xd_attn_scratch_c(const xd_attn_args *a, int threads);
xd_status xd_attn_c(const xd_attn_args *a, void *tmp);

#if defined(__x86_64__)
/* AVX2 and FMA. BF16 operands are converted to f32. */
size_t    xd_attn_scratch_avx2(const xd_attn_args *a, int threads);
xd_status xd_attn_avx2(const xd_attn_args *a, void *tmp);

/* AVX-512 F, BW, DQ, VL. BF16 operands are converted to f32. */
size_t    xd_attn_scratch_avx512(const xd_attn_args *a, int threads);
xd_status xd_attn_avx512(const xd_attn_args *a, void *tmp);

/* Additionally AVX512_BF16: BF16 operands are multiplied as pairs by dot products, and the
 * probabilities are rounded to bf16. F32 operands are computed by xd_attn_avx512. */
size_t    xd_attn_scratch_avx512bf16(const xd_attn_args *a, int threads);
xd_status xd_attn_avx512bf16(const xd_attn_args *a, void *tmp);

/* AVX512_BF16 and VNNI, for BF16 operands of calls that xd_attn_in_int8 is true of: scores of int8,
 * probabilities and values of bf16. */
size_t    xd_attn_scratch_int8(const xd_attn_args *a, int threads);
xd_status xd_attn_int8(const xd_attn_args *a, void *tmp);

/* Additionally AMX: BF16 operands are multiplied by tile multiplies. */
size_t    xd_attn_scratch_amx(const xd_attn_args *a, int threads);
xd_status xd_attn_amx(const xd_attn_args *a, void *tmp);

/* For tests only: the source of xd_attn_avx512bf16, with its dot product emulated in AVX-512 F. */
size_t    xd_attn_scratch_bf16emu(const xd_attn_args *a, int threads);
xd_status xd_attn_bf16emu(const xd_attn_args *a, void *tmp);
#endif

#endif
