/* cpu.h - declares what the files of the CPU device share: its instruction sets, the kernels of
 * each instruction set, and the functions that use oneDNN.
 *
 * The instruction set of the CPU device is chosen once, when the device is opened. The instruction
 * set selects the table of small kernels, the attention function (attn/) and, if the instruction
 * set has them, our own GEMMs (gemm/). oneDNN may use only the chosen instruction set and those
 * below it. The small kernels are in kernels.c, which is compiled once per instruction set. The
 * instruction set "c" does not use oneDNN; its GEMM and convolution are in plain.c. */
#ifndef XD_BACKEND_CPU_CPU_H
#define XD_BACKEND_CPU_CPU_H

#include "backend/backend.h"

/* Instruction sets of the CPU device, each of which includes all previous ones. From
 * XD_ISA_AVX512BF16 on, bf16 values are multiplied without a conversion to f32. */
typedef enum xd_isa {
    XD_ISA_C,
    XD_ISA_AVX2,
    XD_ISA_AVX512,
    XD_ISA_AVX512BF16,
    XD_ISA_AMX,
    XD_NISAS
} xd_isa;

const char *xd_isa_name(xd_isa isa);
/* 1: this machine and its operating system support the instruction set */
int         xd_isa_has(xd_isa isa);
int         xd_isa_has_vnni(void); /* 1: the machine has AVX-512 VNNI */
/* Chooses the instruction set that the environment variable XDIT_ISA names and sets *forced to 1;
 * if XDIT_ISA is not set, chooses the best one and sets *forced to 0. */
xd_status   xd_isa_choose(xd_isa *isa, int *forced, xd_err *e);

/* Returns the instruction set that xd_isa_choose chooses, or "c" if xd_isa_choose fails. */
xd_isa xd_isa_of_host(void);

/* Kernels of one instruction set that process single elements or single rows. A kernel runs on all
 * threads unless its comment states that it runs on one thread. */
typedef struct xd_kernels {
    void  (*norm)(const xd_norm *a);
    void  (*moments)(const xd_moments *a);
    void  (*gnorm)(const xd_gnorm *a, float *ab); /* `ab`: scratch for 2 C floats (C channels) */
    void  (*glu)(const xd_glu *a);
    void  (*addmul)(const xd_addmul *a);
    void  (*axpby)(const xd_axpby_args *a);
    void  (*resize)(const xd_resize *a);
    void  (*lookup)(const xd_lookup *a); /* looks up table rows; the ids must be valid */
    void  (*copy)(const xd_copy *a);
    void  (*qknorm)(const xd_qknorm *a);
    void  (*rotate)(const xd_rotate *a);
    void  (*linattn)(const xd_linattn *a);
    /* Implements xd_four_quantize (backend/four.h). The kernel `four`, which quantizes to four-bit
     * integers, runs on one thread. */
    void  (*four)(void *to, const float *from, int64_t n);
    /* Runs the epilogue of a GEMM for rows [r0, r0+n) and columns [c0, c0+m) of the output:
     * out = residual + gate * act(acc + bias). `acc` holds the sums of the n rows and m columns;
     * its rows are `ld` floats apart. The kernel `epilogue` runs on one thread. */
    void  (*epilogue)(const xd_gemm *a, const float *acc, int64_t ld, int64_t r0, int64_t n,
                      int64_t c0, int64_t m);
    /* Computes acc[i][j] += sum_k a[i][k] b[k][j] for i < n, j < 16 and k < K. The rows of `a` are
     * `lda` floats apart, the rows of `acc` are `ldacc` floats apart. The kernel `tile` runs on one
     * thread. */
    void  (*tile)(float *acc, int64_t ldacc, const float *a, int64_t lda, const float *b, int64_t n,
                  int64_t K);
    /* Converts n elements of any float type to f32. The kernel `widen` runs on one thread. */
    void  (*widen)(float *to, const void *from, xd_dtype t, int64_t n);
    /* Kernels of quantdot.c, each of which runs on one thread. `most` returns the largest magnitude
     * of a row of n F32 or BF16 elements, or NaN if an element is not finite. `integers` multiplies
     * the elements of a row by the factor `by`, and stores the products as int8, rounded and
     * clamped. `int_dot` computes the dot products of the int8 row x and m int8 rows of a weight,
     * which are `ldw` bytes apart; the row length n is a multiple of 64. `float_dot` computes the
     * dot products of the float row x and m int8 rows of a weight. */
    float (*most)(const void *x, xd_dtype t, int64_t n);
    void  (*integers)(int8_t *q, const void *x, xd_dtype t, float by, int64_t n);
    void  (*int_dot)(int32_t *sum, const int8_t *x, const int8_t *w, int64_t ldw, int64_t m,
                     int64_t n);
    void  (*float_dot)(float *sum, const float *x, const int8_t *w, int64_t ldw, int64_t m,
                       int64_t n);
    /* Returns the GFLOP/s of one thread, measured for about 0.2 ms with operands in registers. */
    double (*burst)(void);
} xd_kernels;

extern const xd_kernels xd_kernels_c, xd_kernels_avx2, xd_kernels_avx512, xd_kernels_avx512bf16;

const xd_kernels *xd_cpu_kernels(xd_isa isa);
/* Implementations of the kernel `qknorm`, norm and RoPE of queries and keys (qknorm.c), one for
 * each instruction set. */
void              xd_qknorm_c(const xd_qknorm *a);
void              xd_qknorm_avx2(const xd_qknorm *a);
void              xd_qknorm_avx512(const xd_qknorm *a);
void              xd_qknorm_avx512bf16(const xd_qknorm *a);
/* Implementations of the kernel `rotate`, which rotates groups of features (rotate.c), one for each
 * instruction set. */
void              xd_rotate_c(const xd_rotate *a);
void              xd_rotate_avx2(const xd_rotate *a);
void              xd_rotate_avx512(const xd_rotate *a);
void              xd_rotate_avx512bf16(const xd_rotate *a);
/* Implementations of the kernel `linattn`, linear attention (linattn.c), one for each instruction
 * set. */
void              xd_linattn_c(const xd_linattn *a);
void              xd_linattn_avx2(const xd_linattn *a);
void              xd_linattn_avx512(const xd_linattn *a);
void              xd_linattn_avx512bf16(const xd_linattn *a);
/* Implements the operation `code`, which converts attention heads to 8-bit codes and back, for all
 * instruction sets (code.c). */
void              xd_code_rows(const xd_kernels *k, const xd_code *a);
/* Implementations of the kernel `four`, which quantizes to four-bit integers (four.c), one for each
 * instruction set. */
void              xd_four_c(void *to, const float *from, int64_t n);
void              xd_four_avx2(void *to, const float *from, int64_t n);
void              xd_four_avx512(void *to, const float *from, int64_t n);
void              xd_four_avx512bf16(void *to, const float *from, int64_t n);
/* Implementations of the kernels `most`, `integers`, `int_dot` and `float_dot` (quantdot.c), for
 * each instruction set. */
#define XD_QUANT_SLOTS(isa)                                                                        \
    float xd_max_magnitude_##isa(const void *x, xd_dtype t, int64_t n);                            \
    void xd_integers_##isa(int8_t *q, const void *x, xd_dtype t, float by, int64_t n);             \
    void xd_int_dot_##isa(int32_t *sum, const int8_t *x, const int8_t *w, int64_t ldw, int64_t m,  \
                          int64_t n);                                                              \
    void xd_float_dot_##isa(float *sum, const float *x, const int8_t *w, int64_t ldw, int64_t m,   \
                            int64_t n);
XD_QUANT_SLOTS(c)
XD_QUANT_SLOTS(avx2)
XD_QUANT_SLOTS(avx512)
XD_QUANT_SLOTS(avx512bf16)
double xd_burst_bf16(void); /* measures GFLOP/s like the kernel `burst`, with vdpbf16ps */
double xd_burst_amx(void);  /* measures GFLOP/s like the kernel `burst`, with tdpbf16ps (AMX) */

typedef struct xd_dnn xd_dnn;

typedef struct xd_cpu_dev {
    xd_dev            dev; /* device interface; dev.priv points to this struct */
    xd_isa            isa;
    /* 1: computes in bf16 even if the processor must emulate bf16 arithmetic */
    int               emulate;
    const xd_kernels *k;
    xd_dnn           *dnn; /* oneDNN's state; NULL for the instruction set "c" */
} xd_cpu_dev;

/* The device kind "cpu": uses the kernels of the best instruction set of the processor, or of the
 * instruction set that XDIT_ISA=c|avx2|avx512|avx512bf16|amx names. XDIT_ISA also limits the
 * instruction sets that oneDNN uses. Opening the device fails if XDIT_ISA names an unknown
 * instruction set, or one that the processor does not have. */
extern const xd_dev_kind xd_dev_kind_cpu;
void                     xd_cpu_early(void); /* starts loading oneDNN in a background thread */
void                     xd_cpu_about(xd_fact *fact, void *cookie);
double                   xd_cpu_peak(xd_dev *d, xd_dtype t, int threads, double seconds);

/* ---- plain.c: GEMM and convolution without a library -------------------------------------- */

size_t    xd_plain_pack_size(xd_weight *w);
xd_status xd_plain_pack(const xd_weight *w, xd_tensor src);
void      xd_plain_gemm(const xd_kernels *k, const xd_gemm *a);
/* Type of functions that compute the sums of products of a GEMM for rows [r0, r0+n) and columns
 * [c0, c0+m) of the output. A function of this type stores the sums to acc, whose rows have
 * XD_PLAIN_COLS floats. */
enum { XD_PLAIN_ROWS = 32, XD_PLAIN_COLS = 64 };
typedef void xd_plain_tile_fn(const void *of, float *acc, int64_t r0, int64_t n, int64_t c0,
                              int64_t m);
/* Computes a GEMM on all threads: calls `fn` for every tile of the output, then runs the
 * epilogue. */
void xd_plain_tiles(const xd_kernels *k, const xd_gemm *a, xd_plain_tile_fn *fn, const void *of);
void xd_plain_conv(const xd_kernels *k, const xd_conv *a);

/* ---- quant.c: GEMMs with quantized weights on any machine --------------------------------- */

size_t xd_quant_pack_size(xd_weight *w);
/* Packs rows [row0, row0 + src.d[0]) of a weight. row0 is a multiple of XD_QUANT_BAND. */
enum { XD_QUANT_BAND = 64 };
xd_status xd_quant_pack_rows(const xd_kernels *k, const xd_weight *w, xd_tensor src, int64_t row0);
size_t    xd_quant_gemm_scratch(const xd_gemm *a);
xd_status xd_quant_gemm(const xd_kernels *k, const xd_gemm *a, void *tmp);

/* ---- onednn*.c: the only files that use oneDNN -------------------------------------------- */

void      xd_dnn_forget(xd_dnn *d); /* empties oneDNN's cache of primitives */
/* Opens oneDNN. If `cap` is 1, xd_dnn_open first limits oneDNN to the instruction set `isa`.
 * oneDNN's limit can be set only once per process, so xd_dnn_open fails if oneDNN already has
 * another limit. */
xd_status xd_dnn_open(xd_dnn **d, xd_isa isa, int cap, const xd_kernels *k, xd_err *e);
void      xd_dnn_close(xd_dnn **d);
size_t    xd_dnn_pack_size(xd_dnn *d, xd_weight *w);
size_t    xd_dnn_pack_tmp(xd_dnn *d, const xd_weight *w, xd_dtype src);
xd_status xd_dnn_pack(xd_dnn *d, xd_weight *w, xd_tensor src, void *tmp);
size_t    xd_dnn_gemm_scratch(xd_dnn *d, const xd_gemm *a);
xd_status xd_dnn_gemm(xd_dnn *d, const xd_gemm *a, void *tmp);
size_t    xd_dnn_conv_scratch(xd_dnn *d, const xd_conv *a);
xd_status xd_dnn_conv(xd_dnn *d, const xd_conv *a, void *tmp);

#endif
