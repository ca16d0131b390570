/* args.h - declares a struct of arguments for each CUDA kernel, in plain C, because both the engine
 * and the kernels include this file.
 *
 * Pointers in these structs are device addresses, or NULL if an operand is absent. In these
 * structs, fields whose names begin with s and a digit or underscore are strides in elements. If
 * all rows use the same row of an operand, the stride between its rows is 0. Fields *_type hold an
 * xd_dtype, which is F32, F16 or BF16 unless the comment says otherwise. Some structs end with an
 * explicit padding field. Implicit padding has arbitrary contents, which the simulated GPU of the
 * tests could mistake for an address. */
#ifndef XD_BACKEND_CUDA_KERNELS_ARGS_H
#define XD_BACKEND_CUDA_KERNELS_ARGS_H

#include <stdint.h>

#if defined(__GNUC__) && !defined(__CUDACC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"
#endif

/* Arguments of layer norm and RMS norm of rows [n,C], as in xd_norm. If `add` is not NULL, the
 * kernel stores in + gate * add to `sum`, which is the address of `in`. `wide` is 1 if 16-byte
 * accesses are allowed, `like` is NULL, and either `in` is F32 or `add` is NULL. If norm_args.sx is
 * not NULL, `out` is e4m3. */
typedef struct norm_args {
    void        *out, *sum;
    const void  *in, *add;
    const float *gain, *bias, *scale, *shift, *like, *gate;
    float       *sx;
    int64_t      n, C, s_out, s_in, s_scale, s_shift, s_like, s_add, s_gate;
    int          in_type, out_type, add_type, via, rms, wide;
    float        eps;
    int          none;
} norm_args;

/* Arguments of the norm and rotary embedding of heads [n,H,D], as in xd_qknorm. One launch
 * processes the queries and the keys, or only the queries or only the keys; the unused tensor then
 * has 0 heads. The fields s_out0 and s_in0 are strides between rows, s_out1 and s_in1 strides
 * between heads. In the kernels qknorm_32, qknorm_64 and qknorm_128, the heads of a row are split
 * into `slices` groups, and a warp processes one group. */
typedef struct qknorm_heads {
    void        *out;
    const void  *in;
    const float *gain, *bias;
    int64_t      H, s_out0, s_out1, s_in0, s_in1;
} qknorm_heads;

typedef struct qknorm_args {
    qknorm_heads of[2];
    const float *cos, *sin;
    int64_t      n, D, s_cos, s_sin, slices;
    int          in_type, out_type, norm, rms, halves;
    float        eps;
} qknorm_args;

/* Arguments of linear attention, as in xd_linattn, with heads [n,H,D]. The kernel of the sums reads
 * the keys in `q` and the values in `v`; the kernel of the output reads the queries in `q` and
 * writes to `v`. s0 is the stride between rows, s1 the stride between heads. */
typedef struct linattn_heads {
    void   *p;
    int64_t s0, s1;
    int     type, none;
} linattn_heads;

typedef struct linattn_args {
    linattn_heads q, v;
    float        *sums;
    /* RoPE of the rows of q, with a row stride; NULL: no RoPE */
    const float  *cos, *sin;
    int64_t       s_cos, s_sin;
    int64_t       n, H, D;
} linattn_args;

/* Arguments of attention, as in xd_attn_args. The strides of attention's tensors are in the order
 * samples, tokens, heads. One launch processes queries [first, first + n) of the attention call. A
 * segment holds the keys [start, start + m) of all keys of the attention call. If there are more
 * than ATTENTION_SEGMENTS segments, the array of segments is in device memory at `list`; otherwise
 * `list` is NULL. One launch processes at most ATTENTION_SAMPLES samples. */
enum { ATTENTION_SEGMENTS = 40, ATTENTION_SAMPLES = 16 };
typedef struct attention_segment {
    const void *k, *v;
    int64_t     start, m, s_k[3], s_v[3];
} attention_segment;

typedef struct attention_args {
    void                    *out;
    const void              *q;
    float                   *lse;
    const float             *bias;
    int64_t                  n, first, m, s_out[3], s_q[3], s_lse[3], s_bias[3];
    int32_t                  B, H, Hk, D, segments, q_type, out_type, causal, q_wide, out_wide;
    int64_t                  window;
    int32_t                  len[ATTENTION_SAMPLES]; /* number of valid keys of each sample */
    float                    scale, softcap;
    attention_segment        segment[ATTENTION_SEGMENTS];
    const attention_segment *list;
} attention_args;

/* Arguments of the epilogue of a GEMM: out = residual + gate * act(acc + bias), rows [n,O]. The
 * accumulators acc are I32 if `integers` is 1, else F32. The kernel first multiplies the
 * accumulators by the scales sx[n] of the input rows and by the scales sw[O] of the weight rows.
 * For F32 accumulators, sx or sw may be NULL, which stands for scales of 1. */
typedef struct epilogue_args {
    void        *out;
    const void  *acc, *residual, *bias;
    const float *gate, *sx, *sw;
    int64_t      n, O, s_out, s_acc, s_residual;
    int          out_type, residual_type, bias_type, act, integers, none;
} epilogue_args;

/* Arguments of a convolution of a channels-last image [T,Hin,Win,C] to [To,Ho,Wo,O]. A GEMM is
 * passed as a convolution with a kernel of one tap and an image of one row. The weight w is
 * [O][kt][kh][kw][C] and has the type of `in`. Strides of a convolution's tensors are in the order
 * frames, rows, columns. `wide` is 1 if O is a multiple of 8, and 16-byte accesses of out,
 * residual, bias and gate are allowed. */
typedef struct conv_args {
    void        *out;
    const void  *in, *w, *residual, *bias;
    const float *gate;
    int64_t      s_out[3], s_in[3], s_residual[3];
    int32_t      T, Hin, Win, To, Ho, Wo, C, O;
    int32_t      kernel[3], stride[3], lo[3], groups;
    int          in_type, out_type, residual_type, bias_type, act, wide;
} conv_args;

/* Arguments of a copy of n elements, from one strided view of at most five dimensions to
 * another. */
typedef struct copy_args {
    void       *out;
    const void *in;
    int64_t     d[5], s_out[5], s_in[5], n;
    int         out_type, in_type;
} copy_args;

/* Arguments of a kernel that computes out = a * in + b * out, elementwise on F32 views. If `in` is
 * NULL, the kernel computes out = b * out. */
typedef struct axpby_args {
    copy_args view;
    float     a, b;
} axpby_args;

/* Arguments of glu, out = act(a) * b, and of addmul, out += gate * a. The operands of glu and
 * addmul are rows [n,C]. The kernel glu_e4m3 writes the scales of the rows to sx, and first rounds
 * the products to the type `via`. */
typedef struct pair_args {
    void        *out;
    const void  *a, *b;
    const float *gate;
    float       *sx;
    int64_t      n, C, s_out, s_a, s_b, s_gate;
    int          out_type, a_type, b_type, act, via, none;
} pair_args;

/* Arguments of `moments`, which computes the sum and the sum of squares of each group of channels
 * in each row, from in [R,P,C] to sums [R,groups,2]. The strides of `sums` are s_sum_row between
 * rows and s_sum_group between groups. */
typedef struct moments_args {
    double     *sums;
    const void *in;
    int64_t     R, P, C, s_row, s_position, s_sum_row, s_sum_group;
    int         in_type, groups;
} moments_args;

/* Arguments of a kernel that sums columns of F64 elements over R rows, which are `step` elements
 * apart. CUDA thread block i sums column i. */
typedef struct add_rows_args {
    double       *out;
    const double *in;
    int64_t       R, step;
} add_rows_args;

/* Arguments of the group norm of an image [d0,d1,d2,C]. The tensor `sums` [groups,2] has the sum
 * and the sum of squares of each group. Each element of scale and shift (as in xd_gnorm) applies to
 * cell[0] frames, cell[1] rows and cell[2] columns of the image. */
typedef struct gnorm_args {
    void         *out;
    const void   *in;
    const double *sums;
    const float  *gain, *bias, *scale, *shift;
    int64_t       C, n, d[3], s_out[3], s_in[3], s_scale[3], s_shift[3], cell[3];
    /* strides of `sums`: between groups, and between the sum and the sum of squares of a group */
    int64_t       s_group, s_moment;
    int64_t       each; /* number of elements that one thread block normalizes */
    int           in_type, out_type, groups, silu;
    double        count;
    float         eps;
    int           none;
} gnorm_args;

/* Arguments of a kernel that sets to[i] = value[i] for i < n. */
typedef struct lengths_args {
    int32_t *to;
    int64_t  n;
    int32_t  value[2 * ATTENTION_SAMPLES];
} lengths_args;

/* Arguments of a kernel that looks up the n rows `ids` of a table [rows,C]. For an id outside the
 * table, *failed becomes 1. */
typedef struct lookup_args {
    void          *out;
    const void    *table;
    const int32_t *ids;
    int64_t        n, C, s_out, s_table, s_ids, rows;
    int            out_type, table_type;
    int32_t       *failed;
} lookup_args;

/* Arguments of the nearest-neighbour enlargement of an image to [d0,d1,d2,d3] by integer factors.
 * `size` is the number of bytes of an element. */
typedef struct resize_args {
    void       *out;
    const void *in;
    int64_t     d[4], s_out[3], s_in[3];
    int         factor[3], size;
} resize_args;

/* Arguments of a kernel that computes weights = softmax(scale * scores) for each row of m scores.
 * The rows of scores, and the rows of weights, are `ld` elements apart. `lse` receives the
 * log-sum-exp of each row, or is NULL. */
typedef struct softmax_args {
    void        *weights;
    const float *scores;
    float       *lse;
    int64_t      m, ld, s_lse;
    float        scale;
    int          type; /* type of the attention weights: F16 or BF16 */
} softmax_args;

/* Arguments of a kernel that quantizes rows [n,C] to int8 or e4m3, by the formulas in backend.h,
 * and writes the scales sx[n] of the rows. The quantized rows [n,wide] are padded with zeros. */
typedef struct integers_args {
    void       *q;
    float      *sx;
    const void *in;
    int64_t     n, C, wide, s_in;
    int         in_type, e4m3;
} integers_args;

/* Arguments of a kernel that computes sums[n,O], the dot products of the int8 rows of `in` [n,wide]
 * and the int8 rows of w [O,wide]. */
typedef struct integer_product_args {
    int32_t      *sums;
    const int8_t *in, *w;
    int64_t       n, O, wide;
} integer_product_args;

/* Arguments of the kernels encode and decode (xd_code) for heads [n,H,D]. s_out0 and s_in0 are the
 * strides between rows, s_out1 and s_in1 the strides between heads. If `e4m3` is 1, the codes are
 * F8E4M3, otherwise I8. */
typedef struct code_args {
    void       *out;
    const void *in;
    int64_t     n, H, D, s_out0, s_out1, s_in0, s_in1;
    int         out_type, in_type, e4m3, none;
} code_args;

/* Arguments of a kernel that converts n elements, which are e4m3 or, if `integers` is 1, int8, to
 * F32, F16 or BF16. F32, F16 and BF16 all represent the 8-bit elements exactly. n is a multiple of
 * 16. */
typedef struct widen_args {
    void          *out;
    const uint8_t *in;
    int64_t        n;
    int            out_type, integers;
} widen_args;

#if defined(__GNUC__) && !defined(__CUDACC__)
#pragma GCC diagnostic pop
#endif

#endif
