/* amx_block.h - inside our GEMMs by tile registers: how a product is cut
 *
 * A step is what one product of tiles multiplies: XD_STEP_BYTES of each row of the input. 32 rows by
 * 32 columns of sums stay in four tiles while a chunk of `deep` steps passes. A thread takes a block of
 * rows and a group of strips of 32 columns; the block's rows, or as many steps of them as fit, lie as
 * tiles in the L2 cache while the group's strips pass, and a chunk of a strip stays in the first
 * cache while the block's rows pass. Sums wait for their next chunk in scratch.
 *
 * Of a step, 16 rows of an input are a tile, row by row; 16 columns of weights are one, [unit][16].
 * Two such, 2 KiB, lie one behind the other: packed weights are [strip][step] of these. What is
 * behind rows, columns and the ends of rows is zero. A sum's products are added in the order of
 * steps, wherever it waited in between: its bits depend on nothing else. */
#ifndef XD_BACKEND_CPU_GEMM_AMX_BLOCK_H
#define XD_BACKEND_CPU_GEMM_AMX_BLOCK_H

#include "backend/cpu/gemm/block.h"

enum {
    XD_STEP_BYTES = 64,
    XD_SIDE = 32,               /* rows and columns of sums in tiles                          */
    XD_PAIR_BYTES = 2048,       /* two tiles                                                  */
    XD_SUMS = XD_SIDE * XD_SIDE,        /* tile by tile                                       */
};

typedef struct xd_amx_job {
    xd_gemm_job of;              /* what finish.h reads; in, ldi and w                         */
    int64_t    row_bytes;       /* of the input                                               */
    int        ready;           /* the input lies as tiles: [32 rows][step]                   */
    int        floats;          /* it is F32, of which row_bytes are bf16 values                   */
    int        streams;         /* the output is not for caches                               */
    int64_t    steps, deep;     /* of a row, of a chunk                                       */
    int64_t    held;            /* steps of rows that are held near                           */
    int64_t    strips;          /* all                                                        */
    int64_t    rows, blocks;    /* of a block; blocks                                         */
    int64_t    group, groups;   /* strips of a group; groups                                  */
    size_t     near_bytes, sum_bytes, tmp_bytes;        /* rows as tiles; sums; all, of a thread */
} xd_amx_job;

/* Fills in the rest behind of.a, row_bytes and ready, but pointers. `expands`: a chunk of weights also
 * has a place in tmp, behind the sums. */
void xd_amx_job_cut(xd_amx_job *t, int expands, int threads);

static inline int64_t xd_amx_job_steps(int64_t row_bytes)
{
    return (row_bytes + XD_STEP_BYTES - 1) / XD_STEP_BYTES;
}

extern const xd_gemm_kernels xd_cpu_gemm_amx_bf16;
extern const xd_gemm_kernels xd_cpu_gemm_amx_int8;
extern const xd_gemm_kernels xd_cpu_gemm_amx_e4m3;    /* packed as xd_cpu_gemm_e4m3                              */

#endif
