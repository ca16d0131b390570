/* amx_block.h - internals of our AMX GEMMs: how a GEMM is split into blocks
 *
 * A step is XD_STEP_BYTES of each input row: the depth of one tile multiply. A register block is 32
 * rows by 32 columns of accumulators in four tile registers, where they stay during a chunk of
 * `deep` steps. A strip is 32 columns of weights. A thread processes a block of rows and a group of
 * strips. The rows (or as many of their steps as fit) are copied as tiles to the L2 cache and stay
 * there for all strips of the group; a chunk of a strip stays in the L1 cache for all rows of the
 * block. Between chunks, accumulators are kept in scratch.
 *
 * Layout: an input tile holds one step of 16 rows, row by row; a weight tile holds one step of 16
 * columns, [unit][16]. Two tiles (XD_PAIR_BYTES, 2 KiB) are adjacent, and packed weights are
 * [strip][step] of such pairs. Missing rows and columns and the ends of rows are padded with zeros.
 * An accumulator adds its products in the order of steps, wherever it is kept between chunks, so
 * its bits depend on nothing else. */
#ifndef XD_BACKEND_CPU_GEMM_AMX_BLOCK_H
#define XD_BACKEND_CPU_GEMM_AMX_BLOCK_H

#include "backend/cpu/gemm/block.h"

enum {
    XD_STEP_BYTES = 64,
    XD_SIDE = 32,               /* rows, and columns, in a register block                     */
    XD_PAIR_BYTES = 2048,       /* two tiles                                                  */
    XD_SUMS = XD_SIDE * XD_SIDE,        /* floats in a register block, stored tile by tile    */
};

typedef struct xd_amx_job {
    xd_gemm_job of;              /* in, ldi, w and the fields that finish.h reads              */
    int64_t    row_bytes;       /* bytes of an input row                                      */
    int        ready;           /* 1: the input is already stored as tiles: [32 rows][step]   */
    int        floats;          /* 1: the input is F32, converted to row_bytes of bf16         */
    int        streams;         /* 1: the output is written with non-temporal stores          */
    int64_t    steps, deep;     /* steps of a row; of a chunk                                 */
    int64_t    held;            /* steps of the rows that are kept as tiles in L2             */
    int64_t    strips;          /* strips of the weight                                       */
    int64_t    rows, blocks;    /* rows of a block; number of row blocks                      */
    int64_t    group, groups;   /* strips of a group; number of groups                        */
    size_t     tile_bytes, sum_bytes, tmp_bytes;  /* bytes per thread: rows as tiles;
                                                   * accumulators; all scratch */
} xd_amx_job;

/* Computes all other fields except pointers; the caller has set of.a, row_bytes and ready.
 * `expands` reserves space for an expanded chunk of weights in tmp, after the accumulators. */
void xd_amx_job_cut(xd_amx_job *t, int expands, int threads);

static inline int64_t xd_amx_job_steps(int64_t row_bytes)
{
    return (row_bytes + XD_STEP_BYTES - 1) / XD_STEP_BYTES;
}

extern const xd_gemm_kernels xd_cpu_gemm_amx_bf16;
extern const xd_gemm_kernels xd_cpu_gemm_amx_int8;
extern const xd_gemm_kernels xd_cpu_gemm_amx_e4m3;    /* packed as for xd_cpu_gemm_e4m3        */

#endif
