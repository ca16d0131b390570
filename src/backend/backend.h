/* backend.h - devices and their kernels, as the rest of the library sees them.
 *
 * A device owns memory and a table of kernels (xd_ops), which is chosen once when the device is
 * opened. Every kernel takes one struct of arguments; an optional tensor is absent when its p is
 * NULL. Kernels return a status and never allocate: `scratch` says how many bytes a call needs
 * beside its operands, and the caller hands them in. Rows, heads and keys may be zero in number
 * everywhere.
 *
 * Element types: an activation is F32 or BF16, on some devices F16 (the device's compute types; F16
 * stands beside BF16 in all that follows); softmax, norms and sums
 * are always computed in f32. Unless an op says otherwise, the last dimension of every operand has
 * stride 1 and the other strides are free.
 *
 * The count device ("count") computes nothing: its kernels add up flops and bytes, and its memory
 * is addresses without storage. A run on it is the cost model and the memory plan. */
#ifndef XD_BACKEND_BACKEND_H
#define XD_BACKEND_BACKEND_H

#include "base/err.h"
#include "base/facts.h"
#include "tensor/tensor.h"

typedef struct xd_dev    xd_dev;
typedef struct xd_stream xd_stream;     /* order of work on a device; NULL: its only one     */
typedef struct xd_ops    xd_ops;
typedef struct xd_dev_lanes xd_dev_lanes;       /* backend/lanes.h                          */
typedef struct xd_dev_graphs xd_dev_graphs;     /* backend/graphs.h                         */
typedef struct xd_dev_name { char s[32]; } xd_dev_name;

enum { XD_FETCH_PLACES = 4 };

/* ---- device ------------------------------------------------------------------------------- */

typedef struct xd_dev_ops {
    void *(*get)(xd_dev *d, size_t bytes);            /* aligned to XD_ALIGN; NULL: out of memory */
    void  (*put)(xd_dev *d, void *p, size_t bytes);
    void  (*sync)(xd_dev *d, xd_stream *s);           /* waits on the host until all work is done */
    void  (*memory)(xd_dev *d, size_t *available, size_t *total);      /* bytes               */
    /* Copies host bytes into device memory, in the order of s. `from` may be reused on return. */
    xd_status (*upload)(xd_dev *d, xd_stream *s, void *to, const void *from, size_t bytes);
    /* Copies device bytes to the host after all work of s. The bytes are there on return. */
    xd_status (*download)(xd_dev *d, xd_stream *s, void *to, const void *from, size_t bytes);
    /* Sets every byte to `value`, in the order of s. */
    xd_status (*fill)(xd_dev *d, xd_stream *s, void *p, int value, size_t bytes);
    int       (*owns)(xd_dev *d, const void *p);        /* 1: p lies in memory of this device  */
    /* Of a device with a memory of its own, else NULL. Host memory from which `fetch` copies (NULL:
     * none is left); it is given back when all work has ended. `fetch` copies it to the device
     * beside work that is queued later, as soon as the work that is queued now has ended. Work
     * that is queued after `fetched` begins when the last copy of that place has ended. Copies run
     * one after the other. place: 0 to XD_FETCH_PLACES - 1. */
    void     *(*pin)(xd_dev *d, size_t bytes);
    void      (*unpin)(xd_dev *d, void *p);
    /* The same for whole pages of the caller's memory, which other processes may share. */
    xd_status (*pin_pages)(xd_dev *d, void *p, size_t bytes);
    void      (*unpin_pages)(xd_dev *d, void *p);
    xd_status (*fetch)(xd_dev *d, int place, void *to, const void *from, size_t bytes);
    xd_status (*fetched)(xd_dev *d, int place);
    /* Bytes/s of such a copy; back: of one to the host. Measured; 0: unknown. */
    double    (*link)(xd_dev *d, int back);
    /* Bytes/s that copies within the memory read and write. Measured; 0: unknown. */
    double    (*bandwidth)(xd_dev *d);
    /* Equal for devices, also of other processes, that have one memory; or NULL: the host's. */
    uint64_t  (*identity)(const xd_dev *d);
    /* The name of the product, as "NVIDIA H100 80GB HBM3"; or NULL. */
    void      (*product)(const xd_dev *d, char *name, size_t size);
    /* Implementations of xd_dev_compute, xd_dev_best, xd_dev_peak, xd_dev_kernel_bytes,
     * xd_dev_forget. */
    xd_dtype  (*compute)(const xd_dev *d, xd_dtype want);
    xd_dtype  (*best)(const xd_dev *d);
    double    (*peak)(xd_dev *d, xd_dtype t, int threads, double seconds);
    size_t    (*kernel_bytes)(const xd_dev *d);
    void      (*forget)(xd_dev *d);
    /* Times of the device's own work. Both NULL where kernels have ended when they return.
     * stamp: a number for the moment at which all work given before has ended, from 0 on; -1: none.
     * stamps: waits for all of them, writes the ns of xd_now_ns at which the first `most` of them
     * were reached, and returns how many it wrote. Numbers then begin with 0 again. */
    int64_t   (*stamp)(xd_dev *d, xd_stream *s);
    int64_t   (*stamps)(xd_dev *d, int64_t *ns, int64_t most);
    void  (*close)(xd_dev *d);
} xd_dev_ops;

struct xd_dev {
    const xd_dev_ops *mem;
    const xd_ops     *ops;
    const xd_dev_lanes *lanes;          /* NULL: none                                         */
    const xd_dev_graphs *graphs;        /* NULL: it records nothing                           */
    char              name[32];         /* "cpu-amx", "count"                                */
    int               counts;           /* 1: addresses must not be followed                 */
    int               host_memory;      /* 1: the host may access device memory              */
    int               rotates;          /* 1: it has `rotate` of xd_ops                      */
    unsigned          int8_attn;        /* types (1u << type) of queries whose scores it makes of
                                         * int8 on request; others it computes as usual        */
    int               fp8_gemm;         /* 1: it multiplies inputs of fp8 on request           */
    int               narrow_bias;      /* 1: biases of linear layers have the compute type    */
    int               norm_adds;        /* 1: `add` of a norm is cheaper than an addition before */
    void             *priv;
};

/* Opens a device by name: "cpu", or a kind of device and an instance of it, as in "cuda:1". NULL is
 * the first kind of the registry. XD_EINVAL: no such device. */
xd_status xd_dev_open(xd_dev **d, const char *name, xd_err *e);
/* Opens what a count device needs of a kind of device with a memory of its own: sizes of scratch
 * and of packed weights. No such device need be there, and nothing else can be done with it. name:
 * as above. XD_EINVAL: no such kind. */
xd_status xd_dev_open_sizes(xd_dev **d, const char *name, xd_err *e);
/* The device of rank number `rank` of the `ranks` of this host, when all of them were given `name`:
 * "cuda" is one GPU for each rank, so *out is "cuda:<rank>". *out is empty where `name` itself is
 * to be opened: it has an instance, as "cuda:0", which all ranks then share, or its kind has none.
 * XD_EINVAL: there are fewer instances than ranks. */
xd_status xd_dev_of_rank(xd_dev_name *out, const char *name, int rank, int ranks, xd_err *e);
/* Opens, for rank number `rank` of the `ranks` of this host, an instance of its own of a kind that
 * is faster than the first one of the registry. XD_EUNSUPPORTED: this machine has none; any other
 * failure: it has, but not for all ranks, or it cannot be opened. */
xd_status xd_dev_open_best(xd_dev **d, int rank, int ranks, xd_err *e);
/* Opens the count device that stands for `real`: its scratch and pack sizes are those of `real`
 * (borrowed; must outlive it). With NULL, scratch is zero and pack sizes are those of plain
 * rows. */
xd_status xd_dev_open_count(xd_dev **d, xd_dev *real, xd_err *e);
void      xd_dev_close(xd_dev **d);

typedef struct xd_counts {              /* totals since the last reset                        */
    double flops;                       /* 2 per multiply-add of GEMM, convolution, attention */
    double gemm_flops, attn_flops, conv_flops;          /* shares of `flops`                  */
    double bytes;                       /* read and written by all ops, each operand once     */
    int64_t calls;
    int64_t small;                      /* calls of less than 4 GFLOP and 20 MB               */
} xd_counts;
/* Reads the counts of a count device; `reset` clears them afterwards. */
void xd_dev_counts(xd_dev *d, xd_counts *out, int reset);

/* The type in which this device computes when `want` (XD_F32, XD_F16 or XD_BF16) is asked for: bf16
 * becomes f32 where the instruction set has no bf16 arithmetic, f16 where a device has none. */
xd_dtype xd_dev_compute(const xd_dev *d, xd_dtype want);
/* The default compute type of the device: bf16 with native dot products, else f32. */
xd_dtype xd_dev_best(const xd_dev *d);
/* GFLOP/s of GEMMs of type F32 or BF16 on operands in registers, with `threads` host threads (0:
 * all that kernels use; a device with processors of its own ignores it). Each thread measures for
 * `seconds`, with at least five bursts. Without bf16 dot products the peak of BF16 is that of F32.
 * Not for a count device. */
double   xd_dev_peak(xd_dev *d, xd_dtype t, int threads, double seconds);
/* Approximate bytes of code and tables that kernels will allocate when the calls that were counted
 * for them first run: of the host's memory or, on a device with a memory of its own, of that. */
size_t   xd_dev_kernel_bytes(const xd_dev *d);
/* Equal for devices that have one memory; 0: the host's. A count device has that of the device
 * that it stands for. */
uint64_t xd_dev_identity(const xd_dev *d);
/* Forgets the calls that were counted for kernels and that have not run. */
void     xd_dev_forget(xd_dev *d);

/* ---- kinds of devices --------------------------------------------------------------------- */

/* A kind of device is one folder of backend/ and one line in registry.c. */
typedef struct xd_dev_kind {
    const char *name;                   /* "cpu": the part of a device name before ':'         */
    /* which: the part of the device name after ':', or "". XD_EINVAL: no such device. */
    xd_status (*open)(xd_dev **d, const char *which, xd_err *e);
    /* As xd_dev_open_sizes; NULL: `open` is taken. */
    xd_status (*open_sizes)(xd_dev **d, xd_err *e);
    /* *n: how many instances this host has, "kind:0" to "kind:<n-1>". NULL: the kind has one
     * instance, which all ranks of a host share. */
    xd_status (*instances)(int *n, xd_err *e);
    /* Starts to load in the background what `open` will wait for; or NULL. */
    void      (*early)(void);
    void      (*about)(xd_fact *fact, void *cookie);    /* libraries and versions; or NULL     */
    /* Address space of this process that kernels will take when they first run and that no memory
     * plan counts; or NULL. */
    double    (*address_space)(void);
} xd_dev_kind;

/* The number of devices "kind:0" and so on of the kind that a name begins with; 1 of a kind that
 * all ranks share, or where the name has an instance. */
xd_status xd_dev_instances(const char *name, int *n, xd_err *e);

extern const xd_dev_kind *const xd_dev_kinds[];       /* ends with NULL; the first is the default */

void     xd_dev_early(void);            /* calls `early` of every kind                        */
void     xd_dev_about(xd_fact *fact, void *cookie);     /* calls `about` of every kind        */

/* *machine: bytes of host memory that all processes of this machine (of its control group) may
 * still take together. *process: bytes that this process may still map (ulimit -v), less the
 * address space that kernels will take. */
void     xd_host_memory(size_t *machine, size_t *process);
/* Bytes that this process may still map, including what kernels will take. */
size_t   xd_host_address_space(void);
/* *available: the smaller of the two numbers of xd_host_memory. *total: all memory of the host. */
void     xd_host_memory_free(size_t *available, size_t *total);

/* ---- weights ------------------------------------------------------------------------------ */

/* The matrix of a linear layer or the kernel of a convolution, packed in the form that the device's
 * GEMM or convolution reads fastest. It is filled in steps: describe it (type, out, in, kernel,
 * groups; `p` is NULL), call pack_size, set p to that many bytes, call pack. The caller owns the
 * memory at p.
 *
 * A linear layer (nk 0) may be quantized, with one scale sw[o] per output:
 *   I8       w[o,i] ~ sw[o] q[o,i], sw[o] = max_i |w[o,i]| / 127, q = w / sw rounded to nearest
 *            even. The GEMM quantizes its input row by row in the same way:
 *            sx[n] = max_i |x[n,i]| / 127, q = x * (127 / max).
 *            Sums are exact in int32, so every device gives the same bits:
 *            epilogue((float)sum * (sx[n] * sw[o])). in <= XD_INT8_MAX_INPUTS.
 *            With `floats` the input is multiplied by q as it is, in f32, and the sum by sw[o]: for
 *            few rows, where reading the weight takes all the time.
 *   F8E4M3   w[o,i] ~ sw[o] q[o,i], sw[o] = max_i |w[o,i]| / 448, q = w / sw rounded to the nearest
 *            e4m3. The GEMM multiplies by q, which is exact in every type, in the type of its
 *            input; the f32 sum is multiplied by sw[o].
 * Quotients are single f32 divisions, products are single f32 multiplications. Integers are clamped
 * to +-127, e4m3 to +-448. A row whose scale would be below FLT_MIN counts as zeros (scale 0); a
 * row with a NaN or an infinity has the scale NaN. The memory at p includes the scales. */
enum { XD_INT8_MAX_INPUTS = 130000 };

typedef struct xd_weight {
    xd_dtype type;              /* of the packed elements: compute type, I8, F8E4M3            */
    int      layout;            /* chosen by the device; 0: plain [out,in] rows               */
    int64_t  out, in;           /* channels (`in`: those of one group)                        */
    int      nk;                /* spatial dimensions: 0 linear, 2, or 3                       */
    int      kernel[3];         /* t,h,w; 1 when unused                                       */
    int      stride[3];         /* of a convolution: packing may depend on it                  */
    int      groups;            /* 1 unless a grouped convolution                             */
    int      floats;            /* of I8: the input of the GEMM is not quantized              */
    void    *p;
    size_t   bytes;
    /* Read by `pack` for a quantized weight: sw[out] where it is known (rows of a larger matrix),
     * else NULL. When source and weight are both F8E4M3, elements are copied as they are and NULL
     * means scales of 1. So are integers of an I8 source (-128 becomes -127), whose scales are
     * given; on devices in the host's memory. */
    const float *scale;
} xd_weight;

int xd_is_quantized(xd_dtype t);        /* 1: I8 or F8E4M3, types of weights                   */
/* The scale sw of a row whose largest magnitude is `most`; `most` is NaN for a row with non-finite
 * elements. */
float xd_quant_scale(xd_dtype t, float most);

/* The rotation of ConvRot: x becomes x R, R the Kronecker power of H/2 of n = 4^k rows, with
 *   H = [1 1 1 -1; 1 1 -1 1; 1 -1 1 1; -1 1 1 1].
 * R is symmetric and orthogonal, so a second rotation turns x back. n <= XD_ROTATE_MAX. */
enum { XD_ROTATE_MAX = 1024 };
void xd_rotation(float *x, int64_t n);
int  xd_rotates(int64_t n);             /* 1: such a rotation has n rows                       */

/* ---- arguments ---------------------------------------------------------------------------- */

typedef enum xd_act {
    XD_NONE, XD_GELU_TANH, XD_GELU_ERF, XD_SILU, XD_RELU, XD_GELU_QUICK, XD_TANH,
    XD_NACTS,
} xd_act;

/* out[n,O] = residual + gate * act(in[n,I] w^T + bias)
 *   in       [n,I]  of the weight's type; F32 or BF16 for a quantized weight. A weight of 16
 *            bits also takes F32, rounded as `copy` does
 *   out      [n,O]  F32 or BF16
 *   bias     [O]    F32, or absent; with xd_dev.narrow_bias also BF16 or F16
 *   gate     [O]    F32 (one row for all rows), or absent
 *   residual [n,O]  F32 or BF16, or absent; may be `out` itself
 * With `fp8`, BF16 and F16 rows that an F8E4M3 weight reads become F8E4M3 themselves, as rows of
 * such a weight do: x ~ sx q, sx = most / 448 of the largest magnitude, q the nearest to
 * x (448 / most). Devices without fp8_gemm ignore it; the others take such rows also as they are:
 *   sx       [n]    F32, or absent: the scales of F8E4M3 rows of `in`, which a norm has made */
typedef struct xd_gemm {
    xd_tensor        out, in, bias, gate, residual;
    const xd_weight *w;
    xd_act           act;
    int              fp8;
    xd_tensor        sx;
} xd_gemm;

typedef struct xd_kv { xd_tensor k, v; } xd_kv;
typedef struct xd_qo { xd_tensor q, out; } xd_qo;

/* out[b,i,h,:] = sum_j softmax_j(cap(scale * q[b,i,h,:].k[b,j,h',:]) + bias[h,i,j]) v[b,j,h',:]
 *   q, out  [B,n,H,D]    F32 or BF16; D 8..1024, k and v of the same type as q
 *   kv      `nkv` segments [B,m_s,Hk,D], in global token order; Hk divides H, h' = h Hk / H
 *   kv_len  [B] int64: only the first kv_len[b] keys (over all segments) count; NULL: all
 *   bias    [H,n,m] F32, strides free (also of the last dimension), or absent
 *   lse     [B,n,H] F32: log of the sum of exponentials, exact in f32; absent: not wanted
 *   part    `nparts` pieces [B,n_s,H,D] whose rows together are the rows of q and out; q and out
 *           then only give shapes and their p is not read. With nparts 0, q and out hold all rows
 *   cap     cap(s) = softcap tanh(s / softcap); with softcap 0, cap(s) = s
 * Without any keys, out = 0 and lse = -inf.
 *
 * With `int8`, scores without bias, cap, window and causality are
 *   q.k ~ q.mean + sq[i] sk[j] sum_d iq[i,d] ik[j,d]
 * with the mean of all keys of a head, which no softmax sees, and the integers of q and of k - mean
 * as those of an int8 weight, a scale for each query and each key (Zhang et al. 2024,
 * SageAttention). A query or key with a NaN or an infinity makes its results NaN. */
typedef struct xd_attn_args {
    xd_tensor      out, lse, q, bias;
    const xd_kv   *kv;
    const xd_qo   *part;
    int            nkv, nparts;
    const int64_t *kv_len;
    float          scale;
    int64_t        window;      /* 0: all keys; else only those with |i - j| <= window        */
    int            causal;      /* 1: only keys j <= i                                        */
    float          softcap;     /* 0: none                                                    */
    int            int8;        /* 1: scores of int8, where the device has them (int8_attn)   */
} xd_attn_args;

/* out[n,C] = norm(in) * gain + bias, then * (1 + scale) + shift.
 *   in, out      [n,C] F32 or BF16, types may differ; out may be `in`
 *   gain, bias   [C] F32, or absent
 *   scale, shift [1,C] or [n,C] F32, or absent
 *   like         [n,C] F32, or absent: norm(in) is multiplied by the RMS of this row. Not `out`
 *   add          [n,C] F32 or BF16, or absent: `in`, which is not `out`, first becomes
 *                in + gate * add, as by xd_addmul
 *   gate         [1,C] or [n,C] F32, or absent: 1
 *   sx           [n] F32, or absent. On devices with fp8_gemm: rows become F8E4M3, with scales sx,
 *                as a GEMM with `fp8` makes them of rows of type `via`. `out` is contiguous, C a
 *                multiple of 16 */
typedef struct xd_norm {
    xd_tensor out, in, gain, bias, scale, shift, like;
    int       rms;              /* 1: x / sqrt(mean x^2 + eps), 0: layer norm                 */
    float     eps;
    xd_tensor add, gate, sx;
    xd_dtype  via;
} xd_norm;

/* Group norm in steps, so that an image may be cut into rows: partial sums of each row, their sums
 * (moments of groups 0: in [R,n], out [n], F64; out may be the first row), then the normalisation.
 *   moments: in [R,P,C] (R rows of P positions), out [R,G,2] F64: sum and sum of squares
 *   gnorm:   in, out [n,C], out may be in; sums [G,2] F64 over `count` elements; gain, bias [C]
 *            F32; silu: applied last. With scale and shift [t,h,w,C] F32, in and out are [T,H,W,C],
 *            whole multiples of [t,h,w], and norm(in) * scale + shift is computed before silu; each
 *            element of scale and shift applies to T/t x H/h x W/w elements */
typedef struct xd_moments { xd_tensor out, in; int groups; } xd_moments;
typedef struct xd_gnorm {
    xd_tensor out, in, sums, gain, bias, scale, shift;
    int       groups, silu;
    double    count;
    float     eps;
} xd_gnorm;

/* out = act(a) * b, elementwise; b absent: out = act(a). out may be a. [n,C], F32 or BF16.   */
typedef struct xd_glu { xd_tensor out, a, b; xd_act act; } xd_glu;

/* acc[n,C] += gate * in: gate [1,C] or [n,C] F32, absent: 1; acc F32 or BF16. */
typedef struct xd_addmul { xd_tensor acc, gate, in; } xd_addmul;

/* y = a x + b y, elementwise over the same shape, F32. x absent: y = b y. With b = 0 and an x, y is
 * not read. */
typedef struct xd_axpby_args { xd_tensor y, x; float a, b; } xd_axpby_args;

/* out[t,h,w,O] = conv(in[T,H,W,C], w) + bias (+ residual), channels last.
 *   2-D kernels: T is a batch of frames. lo, hi: zero padding before and after, per axis t,h,w.
 *   bias [O] F32 or absent; residual like out, or absent, may be `out`; types of in = weight. */
typedef struct xd_conv {
    xd_tensor        out, in, bias, residual;
    const xd_weight *w;
    int              stride[3], lo[3], hi[3];
} xd_conv;

/* Nearest-neighbour enlargement by whole factors: in [T,H,W,C] -> out [T f0,H f1,W f2,C]. */
typedef struct xd_resize { xd_tensor out, in; int factor[3]; } xd_resize;

/* out[i,:] = table[ids[i],:]; table F32, BF16 or F16 (it may lie unaligned in a mapped file), ids
 * I32 [n]; an id outside the table is XD_EINVAL. out F32 or BF16. */
typedef struct xd_lookup { xd_tensor out, table, ids; } xd_lookup;

/* Norm and rotary embedding of the heads of queries or keys:
 * out[i,h,:] = rotate_i(norm(in[i,h,:]) * gain + bias).
 *   in, out      [n,H,D] F32 or BF16, types may differ; D <= XD_QKNORM_MAX; out may be `in`
 *   gain, bias   [D] F32, or absent
 *   cos, sin     [n,D/2] F32, or [1,D/2] for all rows (a row's stride may be 0), or both absent: no
 *                rotation; with them D is even
 * The rotation (rotary embedding, Su et al. 2021) takes pair i, (x, y), to
 * (x cos[i] - y sin[i], y cos[i] + x sin[i]).
 * Pair i is the elements (2i, 2i+1), or (i, i + D/2) when `halves`. All arithmetic is in f32.
 *   also         the same rows of other heads, as keys beside queries, with gains and biases of
 *                their own, or absent (in.p NULL); types are those of in and out, H may differ */
enum { XD_QKNORM_MAX = 1024 };
typedef struct xd_qk_heads { xd_tensor out, in, gain, bias; } xd_qk_heads;
typedef struct xd_qknorm {
    xd_tensor out, in, gain, bias, cos, sin;
    int       norm;             /* 0: gain, bias and the rotation only                        */
    int       rms;              /* as in xd_norm                                              */
    int       halves;
    float     eps;
    xd_qk_heads also;
} xd_qknorm;

/* out = in with each group of `group` elements of a row rotated (xd_rotation). in, out [n,C] F32 or
 * BF16, types may differ, C a multiple of the group; out may be `in`. A device whose `rotates` is 0
 * returns XD_EUNSUPPORTED. */
typedef struct xd_rotate { xd_tensor out, in; int64_t group; } xd_rotate;

/* Copy with conversion: same shape, any strides (also of the last dimension), any types of F32 F16
 * BF16 F64 F8E4M3 F8E5M2 -> F32 F16 BF16. */
typedef struct xd_copy { xd_tensor out, in; } xd_copy;

/* ---- the table ---------------------------------------------------------------------------- */

typedef enum xd_op {
    XD_OP_GEMM, XD_OP_ATTN, XD_OP_NORM, XD_OP_MOMENTS, XD_OP_GNORM, XD_OP_GLU,
    XD_OP_ADDMUL, XD_OP_AXPBY, XD_OP_CONV, XD_OP_RESIZE, XD_OP_LOOKUP, XD_OP_COPY,
    XD_OP_QKNORM, XD_OP_ROTATE, XD_NOPS,
} xd_op;

/* `scratch` gives the bytes of `tmp` of a call (aligned to XD_ALIGN; may be NULL when 0 are
 * needed). */
struct xd_ops {
    const char *name;           /* "c", "avx2", "avx512", "avx512bf16", "amx", "count"        */
    size_t    (*scratch)(xd_dev *d, xd_op op, const void *args);
    size_t    (*pack_size)(xd_dev *d, xd_weight *w);    /* also sets w->layout                 */
    /* Packs `src` [out,in(,kt,kh,kw)] into w->p. `src` is contiguous, of a float type or the I8 of
     * w, may lie in a mapped file and may be unaligned. `tmp` has pack_tmp bytes. */
    size_t    (*pack_tmp)(xd_dev *d, const xd_weight *w, xd_dtype src);
    xd_status (*pack)(xd_dev *d, xd_weight *w, xd_tensor src, void *tmp);
    /* Of a linear layer: the number of rows that any thread may pack on its own; 0: all rows must
     * be packed in one call. */
    int64_t   (*pack_band)(xd_dev *d, const xd_weight *w);
    /* Packs the rows of src as rows row0 and on of w. row0 is a multiple of the band; src has whole
     * bands, except at the end of w. */
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
    xd_status (*rotate) (xd_dev *d, xd_stream *s, const xd_rotate *a, void *tmp);
};

#endif
