/* block.h - declares the blocks into which our GEMMs are split, and the table of functions that
 * each kernel file exports.
 *
 * The files of src/backend/cpu/gemm use the words unit, panel, chunk and tile. A unit is 32 bits of
 * an input row or of a weight's column: two bf16 values, four int8 values or one float of
 * consecutive inputs, padded with zeros. A panel is XD_PANEL output columns of a weight, packed as
 * [unit][XD_PANEL]. A packed unit consists of one 32-bit unit of each column of a panel,
 * XD_UNIT_BYTES in total. In our GEMMs, a chunk of a panel is `deep` consecutive packed units. A
 * tile is XD_TILE input rows; their accumulators for one panel are in registers. The layout of
 * packed weights is [panel][unit][XD_PANEL].
 *
 * A thread multiplies a panel by a block of input rows, chunk by chunk. A chunk of the panel stays
 * in the L2 cache for all tiles of the block. Between two chunks of weights, accumulators are kept
 * in scratch memory. The file f32.c uses narrower tiles and another order of elements inside a
 * panel. */
#ifndef XD_BACKEND_CPU_GEMM_BLOCK_H
#define XD_BACKEND_CPU_GEMM_BLOCK_H

#include "backend/cpu/cpu.h"

enum {
    XD_PANEL = 64,
    /* number of input rows in a tile: 6 x 64 accumulators use 24 of 32 registers */
    XD_TILE = 6,
    XD_UNIT_BYTES = 4 * XD_PANEL, /* bytes of a packed unit */
    XD_DEEP = 1152,      /* maximum number of packed units in a chunk; such a chunk takes 288 KiB */
    XD_BLOCK_ROWS = 192, /* maximum number of input rows in a block if rows are long */
    /* maximum number of input rows in a block if rows are short or weights are expanded to another
     * type */
    XD_BLOCK_MANY = 384,
};

typedef struct xd_gemm_job {
    const xd_gemm *a;
    const char    *in; /* input rows in the layout that tiles read, `ldi` bytes apart */
    int64_t        ldi;
    int64_t        units; /* number of 32-bit units in an input row */
    int            rest;  /* 1: the last 32-bit unit of a row is only half full */
    const char    *w;     /* packed panels of the weight, `panel_bytes` each */
    int64_t        panel_bytes;
    const float   *col, *row; /* scales of columns and of rows, or NULL */
    /* for I8 weights, a number for each column that is subtracted from the column's sums */
    const int32_t *fix;
    int64_t        M, N;
    int64_t        deep;         /* number of packed units in a chunk of a panel */
    int64_t        rows, blocks; /* number of input rows in a block; number of such blocks */
    /* Number of panels (of XD_PANEL output columns), and number of panels in a group. All blocks of
     * input rows are multiplied by one group of panels before the next group starts. */
    int64_t        panels, group;
    int64_t        per; /* number of panels in a work item of a thread */
    /* maximum number of panels whose chunks are multiplied side by side; 0: one panel */
    int64_t        side;
    /* Scratch memory, which has `tmp_bytes` bytes for each thread. The first `sum_bytes` bytes of a
     * thread's scratch memory are for accumulators. */
    char          *tmp;
    size_t         tmp_bytes, sum_bytes;
} xd_gemm_job;

/* Computes rows [r0, r0 + n) of the output for `count` panels of columns (at most `side` panels)
 * from panel number `at` on, including the epilogue. tmp is the thread's scratch memory. */
typedef void xd_panel_fn(const xd_gemm_job *p, int64_t at, int64_t count, int64_t r0, int64_t n,
                         char *tmp);

static inline int64_t xd_panels(const xd_weight *w)
{
    return (w->out + XD_PANEL - 1) / XD_PANEL;
}

/* Computes all fields of *p that are not pointers. The caller must have set the fields a, units,
 * rest and panel_bytes of *p. The number of input rows must be above 0. The caller may also set
 * upper limits in the fields deep, rows and side. A limit of 0 selects the default, which suits
 * tiles of XD_TILE rows. If `expands` is 1, the scratch memory also has space for a chunk of
 * weights that is converted to another type. */
void xd_gemm_job_cut(xd_gemm_job *p, int expands, int threads);
void xd_gemm_job_run(const xd_gemm_job *p, xd_panel_fn *fn);
/* Runs a GEMM in the calling thread only; otherwise does what xd_gemm_job_run does. */
void xd_gemm_job_run_alone(const xd_gemm_job *p, xd_panel_fn *fn);

/* Returns the number of rows of the next tile if `left` input rows remain. A full tile is never
 * followed by a tile of a single row, whose few independent sums could not hide the latency of a
 * multiply-add. */
static inline int64_t xd_tile_rows(int64_t left)
{
    return left == XD_TILE + 1 ? 4 : left < XD_TILE ? left : XD_TILE;
}

/* The macro ROWS_n(X), with n from 1 to 6, expands the macro X once for each of the n rows of a
 * tile. */
#define ROWS_1(X) X(0)
#define ROWS_2(X) ROWS_1(X) X(1)
#define ROWS_3(X) ROWS_2(X) X(2)
#define ROWS_4(X) ROWS_3(X) X(3)
#define ROWS_5(X) ROWS_4(X) X(4)
#define ROWS_6(X) ROWS_5(X) X(5)

/* Table of the functions that a GEMM kernel file exports. Callers of GEMM kernels pass a positive
 * number of input rows. The function `scratch` reads no elements of tensors. */
typedef struct xd_gemm_kernels {
    size_t    (*pack_size)(const xd_weight *w);
    size_t    (*scratch)(const xd_gemm *a, int threads);
    xd_status (*gemm)(const xd_gemm *a, void *tmp);
    /* Packs rows [row0, row0 + src.d[0]) of a weight; row0 is a multiple of XD_PANEL. */
    xd_status (*pack_rows)(const xd_weight *w, xd_tensor src, int64_t row0);
    /* Runs the GEMM in the calling thread only, with the scratch memory of one thread. The function
     * pointer `gemm_alone` is NULL if the kernel file has no such function. */
    void      (*gemm_alone)(const xd_gemm *a, void *tmp);
} xd_gemm_kernels;

/* Defines `scratch` and `gemm` for a kernel file. The kernel file must have a function job_of(a,
 * threads), which returns a job without its scratch pointer. `type` is the C type of the job,
 * `place` is the job's member that points to scratch memory, and `run` is the expression that runs
 * job p. The scratch memory has tmp_bytes bytes for each thread. */
#define XD_OWN_CALLS(type, place, run)                                                             \
    static size_t scratch(const xd_gemm *a, int threads)                                           \
    {                                                                                              \
        return job_of(a, threads).tmp_bytes * (size_t)threads;                                     \
    }                                                                                              \
    static xd_status gemm(const xd_gemm *a, void *tmp)                                             \
    {                                                                                              \
        type p = job_of(a, xd_par_threads());                                                      \
        p.place = tmp;                                                                             \
        run;                                                                                       \
        return XD_OK;                                                                              \
    }

/* Defines gemm_alone for a kernel file that uses XD_OWN_CALLS. `fn` is the kernel file's function
 * of type xd_panel_fn, which multiplies panels. */
#define XD_OWN_CALL_ALONE(fn)                                                                      \
    static void gemm_alone(const xd_gemm *a, void *tmp)                                            \
    {                                                                                              \
        xd_gemm_job p = job_of(a, 1);                                                              \
        p.tmp = tmp;                                                                               \
        xd_gemm_job_run_alone(&p, fn);                                                             \
    }

/* Returns the GEMM kernels of an instruction set for F32 or BF16 operands, or NULL if the
 * instruction set has no kernels with gemm_alone. */
const xd_gemm_kernels *xd_cpu_gemm_alone(xd_isa isa, xd_dtype type);

extern const xd_gemm_kernels xd_cpu_gemm_bf16; /* kernels for BF16 weights, with AVX512_BF16 */
extern const xd_gemm_kernels xd_cpu_gemm_int8; /* kernels for I8 weights, with AVX-512 and VNNI */
/* kernels for F8E4M3 weights with BF16 inputs, with AVX512_BF16 */
extern const xd_gemm_kernels xd_cpu_gemm_e4m3;
/* kernels for F8E4M3 weights with F32 inputs, with AVX-512; weights are packed as for
 * xd_cpu_gemm_e4m3 */
extern const xd_gemm_kernels xd_cpu_gemm_e4m3_f32;
extern const xd_gemm_kernels xd_cpu_gemm_f32; /* kernels for F32 weights, with AVX2 */
/* kernels for F32 weights, with AVX-512, for the low-rank products of product.c only. All other F32
 * GEMMs with AVX-512 are computed by oneDNN. */
extern const xd_gemm_kernels xd_cpu_gemm_f32_wide;

#endif
