/* block.h - inside our GEMMs: how a product is cut, and what kernel files give.
 *
 * Weights lie as panels of XD_PANEL outputs: [panel][unit][XD_PANEL], where a unit is what one
 * lane multiplies at a time (two bf16 values, four integers, or one float) of consecutive inputs,
 * filled up with zeros. A thread takes a panel and a block of rows and goes through the panel in
 * chunks of `deep` units, so that a chunk stays in the L2 cache while all tiles of XD_TILE
 * rows pass over it. Sums of a chunk go on from those of the chunk before, which wait in scratch.
 * f32.c has narrower tiles and its own order inside a panel. */
#ifndef XD_BACKEND_CPU_GEMM_BLOCK_H
#define XD_BACKEND_CPU_GEMM_BLOCK_H

#include "backend/cpu/cpu.h"

enum {
    XD_PANEL = 64,
    XD_TILE = 6,                /* 6 x 64 sums are 24 of 32 registers                         */
    XD_UNIT_BYTES = 4 * XD_PANEL,       /* of a panel                                         */
    XD_DEEP = 1152,             /* most units of a chunk: 288 KiB of a panel                  */
    XD_BLOCK_ROWS = 192,        /* most rows of a block: of long rows,                        */
    XD_BLOCK_MANY = 384,        /* of short ones, and where a chunk is first expanded          */
};

typedef struct xd_gemm_job {
    const xd_gemm *a;
    const char    *in;          /* rows as tiles read them, `ldi` bytes apart                 */
    int64_t        ldi;
    int64_t        units;       /* of a row                                                   */
    int            rest;        /* the last of them is only half there                        */
    const char    *w;           /* panels, `panel_bytes` each                                 */
    int64_t        panel_bytes;
    const float   *col, *row;   /* scales of columns and rows, or NULL                        */
    const int32_t *fix;         /* of integers: what each column's sum is too large by        */
    int64_t        M, N;
    int64_t        deep;                /* units of a chunk                                   */
    int64_t        rows, blocks;        /* of a block; blocks of rows                         */
    int64_t        panels, group;       /* all; those that all blocks pass before the next    */
    int64_t        per;                 /* panels that a thread takes at a time               */
    int64_t        side;                /* and that chunks go over side by side; 0: one       */
    char          *tmp;                 /* `tmp_bytes` a thread, sums of `sum_bytes` first    */
    size_t         tmp_bytes, sum_bytes;
} xd_gemm_job;

/* Rows [r0, r0 + n) of `count` panels, at most `side`, from `at` on, with their epilogue; tmp is the
 * thread's own. */
typedef void xd_panel_fn(const xd_gemm_job *p, int64_t at, int64_t count, int64_t r0, int64_t n,
                         char *tmp);

static inline int64_t xd_panels(const xd_weight *w)
{
    return (w->out + XD_PANEL - 1) / XD_PANEL;
}

/* Where a, units, rest and panel_bytes are known, and M > 0: fills in the rest but pointers. What deep,
 * rows and side are, they are at most; 0: what suits tiles of XD_TILE rows. `expands`: a chunk of
 * weights also has a place in tmp. */
void xd_gemm_job_cut(xd_gemm_job *p, int expands, int threads);
void xd_gemm_job_run(const xd_gemm_job *p, xd_panel_fn *fn);

/* Rows of the next tile when `left` are to be done: never one alone behind a full tile, which
 * would wait for each of its sums. */
static inline int64_t xd_tile_rows(int64_t left)
{
    return left == XD_TILE + 1 ? 4 : left < XD_TILE ? left : XD_TILE;
}

/* X of each of the first n rows of a tile. */
#define ROWS_1(X) X(0)
#define ROWS_2(X) ROWS_1(X) X(1)
#define ROWS_3(X) ROWS_2(X) X(2)
#define ROWS_4(X) ROWS_3(X) X(3)
#define ROWS_5(X) ROWS_4(X) X(4)
#define ROWS_6(X) ROWS_5(X) X(5)

/* What a file of kernels gives: one of pack and pack_rows. M > 0; scratch follows no pointer. */
typedef struct xd_gemm_kernels {
    size_t    (*pack_size)(const xd_weight *w);
    xd_status (*pack)(const xd_weight *w, xd_tensor src);
    size_t    (*scratch)(const xd_gemm *a, int threads);
    xd_status (*gemm)(const xd_gemm *a, void *tmp);
    /* Rows [row0, row0 + src.d[0]) of a weight, alone: row0 is a multiple of XD_PANEL. NULL: only all. */
    xd_status (*pack_rows)(const xd_weight *w, xd_tensor src, int64_t row0);
} xd_gemm_kernels;

/* scratch and gemm of a file whose product_of(a, threads) says all but the scratch, a thread's part
 * after the other's: `run` runs product p, which has it in `place`. */
#define XD_OWN_CALLS(type, place, run)                                                             \
    static size_t scratch(const xd_gemm *a, int threads)                                           \
    {                                                                                              \
        return product_of(a, threads).tmp_bytes * (size_t)threads;                                 \
    }                                                                                              \
    static xd_status gemm(const xd_gemm *a, void *tmp)                                             \
    {                                                                                              \
        type p = product_of(a, xd_par_threads());                                                  \
        p.place = tmp;                                                                             \
        run;                                                                                       \
        return XD_OK;                                                                              \
    }

extern const xd_gemm_kernels xd_cpu_gemm_bf16;        /* BF16: AVX-512 and dot products of bf16 values            */
extern const xd_gemm_kernels xd_cpu_gemm_int8;        /* I8: AVX-512 and VNNI                                */
extern const xd_gemm_kernels xd_cpu_gemm_e4m3;        /* F8E4M3, of BF16 inputs: as BF16                     */
extern const xd_gemm_kernels xd_cpu_gemm_e4m3_f32;    /* F8E4M3 of F32 inputs, the same packed form: AVX-512 */
extern const xd_gemm_kernels xd_cpu_gemm_f32;         /* F32: AVX2                                           */

#endif
