/* amx_pack.h - packs weights into the AMX tiles of amx_block.h */
#ifndef XD_BACKEND_CPU_GEMM_AMX_PACK_H
#define XD_BACKEND_CPU_GEMM_AMX_PACK_H

#include "backend/cpu/gemm/amx_block.h"
#include "backend/cpu/gemm/finish.h"

/* A function that returns the 64 bytes of step k of column o of the weight, with zeros after the
 * end of the column. */
typedef __m512i step_fn(const void *ctx, int64_t o, int64_t k);

static inline int64_t tiled_bytes(const xd_weight *w, int64_t row_bytes)
{
    return (w->out + XD_SIDE - 1) / XD_SIDE * xd_amx_job_steps(row_bytes) * XD_PAIR_BYTES;
}

FINISH_INLINE void pack_strip(char *to, const xd_weight *w, int64_t row_bytes, int64_t strip,
                              step_fn *step, const void *ctx)
{
    const int64_t steps = xd_amx_job_steps(row_bytes);
    for (int64_t k = 0; k < steps; k++) {
        char *pair = to + (strip * steps + k) * XD_PAIR_BYTES;
        for (int64_t j = 0; j < XD_SIDE; j += 16) {
            __m512i r[16];
            for (int64_t i = 0; i < 16; i++) {
                int64_t o = strip * XD_SIDE + j + i;
                r[i] = o < w->out ? step(ctx, o, k) : _mm512_setzero_si512();
            }
            transpose_bits(r);
            for (int64_t i = 0; i < 16; i++)
                _mm512_storeu_si512(pair + j * 64 + i * 64, r[i]);
        }
    }
}

#endif
