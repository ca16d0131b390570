/* avx512bf16.c - computes attention with dot products of bf16 pairs, by AVX512_BF16 instructions
 *
 * This file is compiled twice, without and with XD_EMULATE_BF16DOT. With this macro, the
 * instruction vdpbf16ps is emulated by AVX-512 F instructions. The emulation allows tests of the
 * rest of this file on machines without the instruction. */
#include "backend/cpu/attn/attn.h"
#include "backend/cpu/attn/plan.h"

#include "backend/cpu/attn/pair_dots.h"
#include "backend/cpu/attn/wide_tiles_tmpl.h"
#include "backend/cpu/attn/vector_tmpl.h"

#ifdef XD_EMULATE_BF16DOT
size_t xd_attn_scratch_bf16emu(const xd_attn_args *a, int threads)
{
    return a->q.type == XD_BF16 ? flash_scratch(a, threads) : xd_attn_scratch_avx512(a, threads);
}

xd_status xd_attn_bf16emu(const xd_attn_args *a, void *tmp)
{
    return a->q.type == XD_BF16 ? flash_attn(a, tmp) : xd_attn_avx512(a, tmp);
}
#else
size_t xd_attn_scratch_avx512bf16(const xd_attn_args *a, int threads)
{
    return a->q.type == XD_BF16 ? flash_scratch(a, threads) : xd_attn_scratch_avx512(a, threads);
}

xd_status xd_attn_avx512bf16(const xd_attn_args *a, void *tmp)
{
    return a->q.type == XD_BF16 ? flash_attn(a, tmp) : xd_attn_avx512(a, tmp);
}
#endif
