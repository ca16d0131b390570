/* amx_block.h - describes how our AMX GEMMs split a matrix multiplication into blocks.
 *
 * In the AMX GEMMs, a step is XD_STEP_BYTES of each input row, which is the depth of one tile
 * multiply. In the AMX GEMMs, a strip is 32 output columns of the weight. In the AMX GEMMs, a chunk
 * is `deep` consecutive steps. A register block is 32 rows by 32 columns of accumulators, which
 * stay in four tile registers during a chunk. A thread processes a block of input rows and a group
 * of strips (32 weight columns each). The block's input rows are copied as tiles to memory that
 * stays in the L2 cache for all strips of the group. If complete input rows do not fit into the L2
 * cache, only some steps of the rows are copied at a time. A chunk of weights (some steps of one
 * strip) stays in the L1 cache for all rows of a block. Between two chunks of weights, accumulators
 * are kept in scratch memory.
 *
 * An input tile holds one step of 16 rows, row by row. A weight tile holds one step of 16 columns
 * as [unit][16], with the 32-bit units of block.h. For each step of each strip, the packed weights
 * have two adjacent weight tiles, which are XD_PAIR_BYTES (2 KiB); the layout is [strip][step].
 * Incomplete tiles are filled up with zeros: missing rows, missing columns and the ends of rows.
 * Products are always added to an accumulator in the order of the steps along an input row, so
 * results are bit-identical however the GEMM is split into blocks. */
#ifndef XD_BACKEND_CPU_GEMM_AMX_BLOCK_H
#define XD_BACKEND_CPU_GEMM_AMX_BLOCK_H

#include "backend/cpu/gemm/block.h"

enum {
    XD_STEP_BYTES = 64,
    XD_SIDE = 32,                /* number of rows and columns of a register block */
    XD_PAIR_BYTES = 2048,        /* bytes of two adjacent tiles of weights */
    XD_SUMS = XD_SIDE * XD_SIDE, /* number of floats in a register block, stored tile by tile */
};

typedef struct xd_amx_job {
    /* Operands of the AMX GEMM: the input `in`, whose rows are `ldi` bytes apart, the weight `w`,
     * and the operands of the epilogue (finish.h). */
    xd_gemm_job of;
    int64_t     row_bytes; /* bytes of an input row */
    int         ready;     /* 1: the input is already stored as tiles, [32 rows][step] */
    int         floats;    /* 1: the input is F32 and is converted to bf16 */
    int         streams;   /* 1: the output is written with non-temporal stores */
    /* number of steps (of XD_STEP_BYTES) in an input row, and in a chunk of weights */
    int64_t     steps, deep;
    /* number of steps (of XD_STEP_BYTES) of an input row that are copied to tiles in the L2
     * cache */
    int64_t     held;
    int64_t     strips;       /* number of strips, of 32 columns each, in the weight */
    int64_t     rows, blocks; /* number of input rows in a block; number of such blocks */
    /* number of strips (of 32 weight columns) in a group; number of groups */
    int64_t     group, groups;
    /* Bytes of a thread's scratch memory: for input rows stored as tiles (tile_bytes), for
     * accumulators (sum_bytes), and in total (tmp_bytes). */
    size_t      tile_bytes, sum_bytes, tmp_bytes;
} xd_amx_job;

/* Computes all fields of *t that are not pointers. The caller must have set the fields of.a,
 * row_bytes and ready of *t. If `expands` is 1, scratch memory for a chunk of weights, converted to
 * bf16, follows the accumulators. */
void xd_amx_job_cut(xd_amx_job *t, int expands, int threads);

static inline int64_t xd_amx_job_steps(int64_t row_bytes)
{
    return (row_bytes + XD_STEP_BYTES - 1) / XD_STEP_BYTES;
}

extern const xd_gemm_kernels xd_cpu_gemm_amx_bf16;
extern const xd_gemm_kernels xd_cpu_gemm_amx_int8;
/* kernels for e4m3 weights, packed as in e4m3.c */
extern const xd_gemm_kernels xd_cpu_gemm_amx_e4m3;

#endif
