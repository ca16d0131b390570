/* backend.h - devices and their kernels: the only view that the rest has of them.
 *
 * A device owns memory and a table of kernels (xd_ops), chosen once when it is opened. Every
 * kernel takes one struct of arguments; optional tensors are absent when their p is NULL.
 * Kernels return a status and never allocate: what they need beside their operands is asked
 * for with `scratch` and handed in. Rows, heads and keys may be zero in number everywhere.
 *
 * Element types: an activation is F32 or BF16 (the device's compute types); softmax, norms and
 * sums are always computed in f32. Unless an op says otherwise, the last dimension of every
 * operand has stride 1 and other strides are free.
 *
 * The count device ("count") computes nothing: its kernels add up flops and bytes and its memory
 * is addresses without storage. A run on it is the cost model and the memory plan. */
#ifndef XD_BACKEND_BACKEND_H
#define XD_BACKEND_BACKEND_H

#include "base/err.h"
#include "tensor/tensor.h"

typedef struct xd_dev    xd_dev;
typedef struct xd_stream xd_stream;     /* order of work on a device; NULL: its only one     */
typedef struct xd_ops    xd_ops;

/* ---- device ------------------------------------------------------------------------------ */

typedef struct xd_dev_ops {
    void *(*get)(xd_dev *d, size_t bytes);              /* aligned to XD_ALIGN; NULL: none    */
    void  (*put)(xd_dev *d, void *p, size_t bytes);
    void  (*sync)(xd_dev *d, xd_stream *s);             /* the host waits for the work        */
    void  (*memory)(xd_dev *d, size_t *available, size_t *total);      /* bytes               */
    /* Host bytes into device memory, in the order of s. `from` may be reused on return. */
    xd_status (*upload)(xd_dev *d, xd_stream *s, void *to, const void *from, size_t bytes);
    /* Device bytes to the host, behind all work of s. They are there on return. */
    xd_status (*download)(xd_dev *d, xd_stream *s, void *to, const void *from, size_t bytes);
    /* Makes every byte `value`, in the order of s. */
    xd_status (*fill)(xd_dev *d, xd_stream *s, void *p, int value, size_t bytes);
    int       (*owns)(xd_dev *d, const void *p);        /* 1: p lies in memory of this device  */
    /* xd_dev_compute, xd_dev_best, xd_dev_peak, xd_dev_kernel_bytes, xd_dev_forget. */
    xd_dtype  (*compute)(const xd_dev *d, xd_dtype want);
    xd_dtype  (*best)(const xd_dev *d);
    double    (*peak)(xd_dev *d, xd_dtype t, int threads, double seconds);
    size_t    (*kernel_bytes)(const xd_dev *d);
    void      (*forget)(xd_dev *d);
    void  (*close)(xd_dev *d);
} xd_dev_ops;

struct xd_dev {
    const xd_dev_ops *mem;
    const xd_ops     *ops;
    char              name[32];         /* "cpu-amx", "count"                                */
    int               counts;           /* 1: addresses must not be followed                 */
    int               host_memory;      /* 1: the host may read and write the device's memory */
    void             *priv;
};

/* Opens the device of a name: "cpu", or a kind of device and which of them, as "cuda:1" would be. NULL is the
 * CPU. */
xd_status xd_dev_open(xd_dev **d, const char *name, xd_err *e);
/* The count device that stands for `real`: its scratch and pack sizes are those of `real`
 * (borrowed, outlives it; NULL: zero and plain sizes). */
xd_status xd_dev_open_count(xd_dev **d, xd_dev *real, xd_err *e);
void      xd_dev_close(xd_dev **d);

typedef struct xd_counts {              /* of everything since the last reset                 */
    double flops;                       /* 2 per multiply-add of GEMM, convolution, attention */
    double gemm_flops, attn_flops, conv_flops;          /* its parts                          */
    double bytes;                       /* read and written by all ops, each operand once     */
    int64_t calls;
} xd_counts;
/* Counts of a count device. */
void xd_dev_counts(xd_dev *d, xd_counts *out, int reset);

/* The type in which this device computes when `want` (XD_F32 or XD_BF16) is asked for: bf16
 * falls back to f32 where the ISA has no use for it. */
xd_dtype xd_dev_compute(const xd_dev *d, xd_dtype want);
/* The type it prefers when nothing is asked: bf16 with native dot products, else f32. */
xd_dtype xd_dev_best(const xd_dev *d);
/* GFLOP/s that `threads` of the host (0: all that kernels use; a device of its own ignores it) reach in
 * registers alone with GEMMs of type F32 or BF16, each thread measuring for `seconds`; at least five bursts
 * are looked at. Where BF16 has no dot products of its own, its peak is that of F32. Not for a count device. */
double   xd_dev_peak(xd_dev *d, xd_dtype t, int threads, double seconds);
/* Bytes of code and tables, about, that kernels which calls were counted for will take when they first run. */
size_t   xd_dev_kernel_bytes(const xd_dev *d);
/* Forgets the calls that kernels were counted for and that have not run. */
void     xd_dev_forget(xd_dev *d);

/* ---- kinds of devices --------------------------------------------------------------------- */

/* A kind of device is one folder of backend/ and one line in registry.c. */
typedef struct xd_dev_kind {
    const char *name;                   /* "cpu": of a device's name, what stands before ':'   */
    /* which: what stands behind ':', or "". XD_EINVAL: there is no such one. */
    xd_status (*open)(xd_dev **d, const char *which, xd_err *e);
    /* Begins to load, beside what the caller does next, what `open` will wait for; or NULL. */
    void      (*early)(void);
    void      (*about)(xd_fact *fact, void *cookie);    /* libraries and versions; or NULL     */
    /* Address space of this process that kernels will take when they first run and that no plan counts;
     * or NULL. */
    double    (*address_space)(void);
} xd_dev_kind;

extern const xd_dev_kind *const xd_dev_kinds[];         /* NULL at the end; the first is the default */

void     xd_dev_early(void);            /* `early` of every kind                              */
void     xd_dev_about(xd_fact *fact, void *cookie);     /* `about` of every kind              */

/* Bytes of host memory that all processes of this machine (its control group) may still take together, and
 * bytes that this one may still map (ulimit -v) besides what kernels themselves take. */
void     xd_host_memory(size_t *machine, size_t *process);
/* Bytes that this process may still map, whatever kernels will take. */
size_t   xd_host_address_space(void);
/* The smaller of the two of xd_host_memory, and all there is. */
void     xd_host_memory_free(size_t *available, size_t *total);

/* ---- weights ------------------------------------------------------------------------------ */

/* The matrix of a linear layer or the kernel of a convolution, in whatever form the device's
 * GEMM and convolution like best. Filled in two steps: describe it (type, out, in, kernel,
 * groups; `p` is NULL), ask pack_size, give memory, pack. Released with unpack.
 *
 * A linear layer (nk 0) may be quantized, with one scale sw[o] an output:
 *   I8       w[o,i] ~ sw[o] q[o,i], sw[o] = max_i |w[o,i]| / 127, q = w / sw rounded to nearest even.
 *            The product quantizes its input too, row by row: sx[n] = max_i |x[n,i]| / 127, q = x *
 *            (127 / max) likewise; sums are exact in int32, so that every device gives the same bits:
 *            epilogue((float)sum * (sx[n] * sw[o])). in <= XD_INT8_DEEPEST.
 *   F8E4M3   w[o,i] ~ sw[o] q[o,i], sw[o] = max_i |w[o,i]| / 448, q = w / sw rounded to the nearest e4m3.
 *            The product is that of q, which is exact in every type, in the type of its input; sw[o] is
 *            multiplied to the f32 sum.
 * Quotients are single f32 divisions, products single f32 multiplications. Integers are clamped to
 * +-127, e4m3 to +-448. A row whose scale would be below FLT_MIN counts as zeros (scale 0), one that
 * holds a NaN or infinity has the scale NaN. Scales are part of what lies at p. */
enum { XD_INT8_DEEPEST = 130000 };

typedef struct xd_weight {
    xd_dtype type;              /* of the packed elements: the compute type, I8 or F8E4M3      */
    int      layout;            /* the device's business; 0: plain [out,in] rows              */
    int64_t  out, in;           /* channels (per group: `in` is the channels of one group)    */
    int      nk;                /* spatial dimensions of the kernel: 0 linear, 2, or 3         */
    int      kernel[3];         /* t,h,w; 1 when unused                                       */
    int      stride[3];         /* of a convolution: packing may depend on it                  */
    int      groups;            /* 1 unless a grouped convolution                             */
    void    *p;
    size_t   bytes;
    const float *scale;         /* for pack, of a quantized one: sw[out] where it is known (rows
                                   that are cut), else NULL. With a source of F8E4M3 in F8E4M3
                                   elements are taken as they are, and NULL is 1               */
} xd_weight;

int xd_is_quantized(xd_dtype t);        /* I8 or F8E4M3: of a weight                           */
/* sw of a row whose largest magnitude is `most`, which is NaN for a row with numbers that are not
 * finite. */
float xd_quant_scale(xd_dtype t, float most);

/* ---- arguments ---------------------------------------------------------------------------- */

typedef enum xd_act {
    XD_NONE, XD_GELU_TANH, XD_GELU_ERF, XD_SILU, XD_RELU, XD_GELU_QUICK, XD_NACTS,
} xd_act;

/* out[n,O] = residual + gate * act(in[n,I] w^T + bias)
 *   in       [n,I]  of the weight's type; F32 or BF16 where that is quantized; F32 for BF16 too, and
 *                   rounded to it, as copy does
 *   out      [n,O]  F32 or BF16
 *   bias     [O]    F32, or absent
 *   gate     [O]    F32 (one row for all rows), or absent
 *   residual [n,O]  F32 or BF16, or absent; may be `out` itself                             */
typedef struct xd_gemm {
    xd_tensor        out, in, bias, gate, residual;
    const xd_weight *w;
    xd_act           act;
} xd_gemm;

typedef struct xd_kv { xd_tensor k, v; } xd_kv;
typedef struct xd_qo { xd_tensor q, out; } xd_qo;

/* out[b,i,h,:] = sum_j softmax_j(scale * q[b,i,h,:].k[b,j,h',:] + bias[h,i,j]) v[b,j,h',:]
 *   q, out  [B,n,H,D]    F32 or BF16; D 8..512, k and v of the same type as q
 *   kv      `nkv` segments [B,m_s,Hk,D], in global token order; Hk divides H, h' = h Hk / H
 *   kv_len  [B] int64: the first kv_len[b] keys (over all segments) count; NULL: all
 *   bias    [H,n,m] F32, strides free (also of the last dimension), or absent
 *   lse     [B,n,H] F32: log of the sum of exponentials, exact in f32; absent: not wanted
 *   part    `nparts` pieces [B,n_s,H,D] of which the rows of q and out are made, which are shapes then and point
 *           nowhere; none: q and out are all of them
 * With no keys at all, out = 0 and lse = -inf.                                              */
typedef struct xd_attn_args {
    xd_tensor      out, lse, q, bias;
    const xd_kv   *kv;
    const xd_qo   *part;
    int            nkv, nparts;
    const int64_t *kv_len;
    float          scale;
    int64_t        window;      /* 0: all; else only keys with |i - j| <= window              */
    int            causal;      /* only keys j <= i                                           */
} xd_attn_args;

/* out[n,C] = norm(in) * gain + bias, then * (1 + scale) + shift.
 *   in, out      [n,C] F32 or BF16, types may differ; out may be `in`
 *   gain, bias   [C] F32, or absent
 *   scale, shift [1,C] or [n,C] F32, or absent                                              */
typedef struct xd_norm {
    xd_tensor out, in, gain, bias, scale, shift;
    int       rms;              /* 1: x / sqrt(mean x^2 + eps), 0: layer norm                 */
    float     eps;
} xd_norm;

/* Group norm in two steps, so that an image may be cut into rows: partial sums per row, which
 * are added in row order by the caller, then the normalisation.
 *   moments: in [R,P,C] (R rows of P positions), out [R,G,2] F64: sum and sum of squares
 *   gnorm:   in, out [n,C], out may be in; sums [G,2] F64 over `count` elements; gain, bias
 *            [C] F32; silu: apply it after. With scale and shift [t,h,w,C] F32, in and out are
 *            [T,H,W,C], whole multiples of them: norm(in) * scale + shift before silu, each of their
 *            cells for T/t x H/h x W/w elements                                               */
typedef struct xd_moments { xd_tensor out, in; int groups; } xd_moments;
typedef struct xd_gnorm {
    xd_tensor out, in, sums, gain, bias, scale, shift;
    int       groups, silu;
    double    count;
    float     eps;
} xd_gnorm;

/* out = act(a) * b, elementwise; b absent: out = act(a). out may be a. [n,C], F32 or BF16.   */
typedef struct xd_glu { xd_tensor out, a, b; xd_act act; } xd_glu;

/* acc[n,C] += gate * in: gate [1,C] or [n,C] F32 or absent (1); acc F32 or BF16.             */
typedef struct xd_addmul { xd_tensor acc, gate, in; } xd_addmul;

/* y = a x + b y, elementwise over the same shape, F32. x absent: y = b y. With b = 0 and an x, y is
 * not read.                                                                                  */
typedef struct xd_axpby_args { xd_tensor y, x; float a, b; } xd_axpby_args;

/* Channels last. out[t,h,w,O] = conv(in[T,H,W,C], w) + bias (+ residual)
 *   2-D kernels: T is a batch of frames. lo, hi: zero padding before and after, per axis t,h,w.
 *   bias [O] F32 or absent; residual like out, or absent, may be `out`; types of in = weight.  */
typedef struct xd_conv {
    xd_tensor        out, in, bias, residual;
    const xd_weight *w;
    int              stride[3], lo[3], hi[3];
} xd_conv;

/* Nearest-neighbour enlargement by whole factors: in [T,H,W,C] -> out [T f0,H f1,W f2,C].    */
typedef struct xd_resize { xd_tensor out, in; int factor[3]; } xd_resize;

/* out[i,:] = table[ids[i],:]; table F32, BF16 or F16 (also in a mapped file, unaligned), ids
 * I32 [n]; an id outside the table is XD_EINVAL. out F32 or BF16.                             */
typedef struct xd_lookup { xd_tensor out, table, ids; } xd_lookup;

/* Heads of queries or keys: out[i,h,:] = turn_i(norm(in[i,h,:]) * gain + bias).
 *   in, out      [n,H,D] F32 or BF16, types may differ; D <= XD_QKNORM_MAX; out may be `in`
 *   gain, bias   [D] F32, or absent
 *   cos, sin     [n,D/2] F32, or [1,D/2] for all rows (a row's stride may be 0), or both absent:
 *                no turn; D is even when they are there
 * The turn (rotary embedding, Su et al. 2021) takes the pair (x, y) to (x cos - y sin,
 * y cos + x sin). Pairs are elements (2i, 2i+1), or (i, i + D/2) when `halves`, and angle i is
 * theirs. All arithmetic is in f32.                                                          */
enum { XD_QKNORM_MAX = 1024 };
typedef struct xd_qknorm {
    xd_tensor out, in, gain, bias, cos, sin;
    int       norm;             /* 0: gain, bias and the turn alone                           */
    int       rms;              /* as in xd_norm                                              */
    int       halves;
    float     eps;
} xd_qknorm;

/* Same shape, any strides (also of the last dimension), any types of F32 F16 BF16 F64 F8E4M3
 * F8E5M2 -> F32 F16 BF16.                                                                    */
typedef struct xd_copy { xd_tensor out, in; } xd_copy;

/* ---- the table ---------------------------------------------------------------------------- */

typedef enum xd_op {
    XD_OP_GEMM, XD_OP_ATTN, XD_OP_NORM, XD_OP_MOMENTS, XD_OP_GNORM, XD_OP_GLU,
    XD_OP_ADDMUL, XD_OP_AXPBY, XD_OP_CONV, XD_OP_RESIZE, XD_OP_LOOKUP, XD_OP_COPY,
    XD_OP_QKNORM, XD_NOPS,
} xd_op;

/* Bytes of scratch handed in as `tmp` (aligned to XD_ALIGN; may be NULL when 0 are needed). */
struct xd_ops {
    const char *name;           /* "c", "avx2", "avx512", "avx512bf16", "amx", "count"        */
    size_t    (*scratch)(xd_dev *d, xd_op op, const void *args);
    size_t    (*pack_size)(xd_dev *d, xd_weight *w);    /* also chooses w->layout              */
    /* Packs `src` [out,in(,kt,kh,kw)], a float type of a mapped file, contiguous, perhaps
     * unaligned, into w->p. `tmp` as for an op: pack_tmp bytes. */
    size_t    (*pack_tmp)(xd_dev *d, const xd_weight *w, xd_dtype src);
    xd_status (*pack)(xd_dev *d, xd_weight *w, xd_tensor src, void *tmp);
    /* Of a linear layer: rows that may be packed alone, by any thread; 0: only all.            */
    int64_t   (*pack_band)(xd_dev *d, const xd_weight *w);
    /* The rows of src as those from row0 on, a multiple of the band, which they fill but at the end. */
    xd_status (*pack_rows)(xd_dev *d, xd_weight *w, xd_tensor src, int64_t row0);
    xd_status (*gemm)   (xd_dev *d, xd_stream *s, const xd_gemm *a, void *tmp);
    xd_status (*attn)   (xd_dev *d, xd_stream *s, const xd_attn_args *a, void *tmp);
    xd_status (*norm)   (xd_dev *d, xd_stream *s, const xd_norm *a, void *tmp);
    xd_status (*moments)(xd_dev *d, xd_stream *s, const xd_moments *a, void *tmp);
    xd_status (*gnorm)  (xd_dev *d, xd_stream *s, const xd_gnorm *a, void *tmp);
    xd_status (*glu)    (xd_dev *d, xd_stream *s, const xd_glu *a, void *tmp);
    xd_status (*addmul) (xd_dev *d, xd_stream *s, const xd_addmul *a, void *tmp);
    xd_status (*axpby)  (xd_dev *d, xd_stream *s, const xd_axpby_args *a, void *tmp);
    xd_status (*conv)   (xd_dev *d, xd_stream *s, const xd_conv *a, void *tmp);
    xd_status (*resize) (xd_dev *d, xd_stream *s, const xd_resize *a, void *tmp);
    xd_status (*lookup) (xd_dev *d, xd_stream *s, const xd_lookup *a, void *tmp);
    xd_status (*copy)   (xd_dev *d, xd_stream *s, const xd_copy *a, void *tmp);
    xd_status (*qknorm) (xd_dev *d, xd_stream *s, const xd_qknorm *a, void *tmp);
};

#endif
