/* backend.h - declares the interface of a device (CPU or GPU): its memory, its kernels, and the
 * structs of arguments that the kernels read.
 *
 * A device manages memory and provides a table of kernels (xd_ops), which is chosen once, when the
 * device is opened. Every kernel takes one struct of arguments; an optional tensor is absent if its
 * data pointer (`p`) is NULL. Kernels return a status and never allocate memory. The function
 * `scratch` returns the number of bytes of scratch memory that a kernel needs, and the caller
 * passes this memory to the kernel. Every kernel accepts tensors with 0 rows, heads or keys.
 *
 * The type of an activation is one of the device's compute types, which are F32, BF16 and, on some
 * devices, F16. Where a comment says BF16, devices that compute in F16 also accept F16. Softmax,
 * norms and sums are always computed in f32. Unless an operation documents otherwise, the last
 * dimension of every tensor has stride 1 and the other strides are arbitrary.
 *
 * The count device ("count") computes nothing: its kernels add up flops and bytes, and its memory
 * is a range of addresses without storage. Running a model on a count device therefore measures the
 * operations and the memory that the model needs. */
#ifndef XD_BACKEND_BACKEND_H
#define XD_BACKEND_BACKEND_H

#include "base/err.h"
#include "tensor/tensor.h"

typedef struct xd_dev        xd_dev;
/* A queue of work of a device. A NULL pointer to a queue (xd_stream) stands for the device's
 * default queue. */
typedef struct xd_stream     xd_stream;
typedef struct xd_ops        xd_ops;
/* functions that queue work on a device's lanes, which are its queues (backend/lanes.h) */
typedef struct xd_dev_lanes  xd_dev_lanes;
typedef struct xd_dev_graphs xd_dev_graphs; /* functions that record kernels (backend/graphs.h) */
typedef struct xd_dev_name { char s[32]; } xd_dev_name;

enum { XD_FETCH_PLACES = 4 };

/* ---- devices ------------------------------------------------------------------------------ */

typedef struct xd_dev_ops {
    /* Allocates device memory aligned to XD_ALIGN. Returns NULL if out of memory. */
    void     *(*get)(xd_dev *d, size_t bytes);
    void      (*put)(xd_dev *d, void *p, size_t bytes);
    /* blocks the host until all work of stream s has ended */
    void      (*sync)(xd_dev *d, xd_stream *s);
    /* Writes the number of bytes of device memory that can be allocated now to *available, and the
     * size of the device memory in bytes to *total. */
    void      (*memory)(xd_dev *d, size_t *available, size_t *total);
    /* Copies bytes from host memory to device memory, after the earlier work and before the later
     * work of stream s. The caller may reuse the host memory when the function returns. */
    xd_status (*upload)(xd_dev *d, xd_stream *s, void *to, const void *from, size_t bytes);
    /* Copies bytes from device memory to host memory after all earlier work of stream s. `download`
     * returns when the copy has ended. */
    xd_status (*download)(xd_dev *d, xd_stream *s, void *to, const void *from, size_t bytes);
    /* Sets `bytes` bytes of device memory at p to `value`, after the earlier work and before the
     * later work of stream s. */
    xd_status (*fill)(xd_dev *d, xd_stream *s, void *p, int value, size_t bytes);
    /* returns 1 if p is an address in this device's memory */
    int       (*owns)(xd_dev *d, const void *p);
    /* Functions that copy asynchronously from pinned host memory (memory that the device can access
     * directly). On devices that use the host's memory, the function pointers from `pin` to
     * `fetched` are NULL. `pin` allocates pinned host memory, and returns NULL if out of memory.
     * `unpin` waits for the copies that read the pinned memory, then frees the memory. `fetch`
     * queues a copy from pinned memory to the device. The copy waits for all work that was queued
     * before the call of `fetch`, and runs concurrently with later work. The caller numbers each
     * copy with `place`, from 0 to XD_FETCH_PLACES - 1. `fetched` makes work that is queued after
     * its call wait for the last copy with this number. Copies that `fetch` queues run one after
     * the other. */
    void     *(*pin)(xd_dev *d, size_t bytes);
    void      (*unpin)(xd_dev *d, void *p);
    /* `pin_pages` pins complete pages of memory that the caller has allocated and may share with
     * other processes. `unpin_pages` unpins pages that `pin_pages` has pinned. */
    xd_status (*pin_pages)(xd_dev *d, void *p, size_t bytes);
    void      (*unpin_pages)(xd_dev *d, void *p);
    xd_status (*fetch)(xd_dev *d, int place, void *to, const void *from, size_t bytes);
    xd_status (*fetched)(xd_dev *d, int place);
    /* Returns the measured rate, in bytes/s, of copies from pinned host memory to the device or, if
     * `back` is 1, from the device to pinned host memory. Returns 0 if the rate is unknown. */
    double    (*link)(xd_dev *d, int back);
    /* Returns the measured rate of copies within device memory, in bytes read and written per
     * second, or 0 if the rate is unknown. */
    double    (*bandwidth)(xd_dev *d);
    /* Returns an id of the device's memory. Devices that share memory, also in different processes,
     * return equal ids. The function pointer `identity` is NULL if the device uses the host's
     * memory. */
    uint64_t  (*identity)(const xd_dev *d);
    /* Writes the product name of the device, for example "NVIDIA H100 80GB HBM3". The function
     * pointer `product` is NULL if the device has no product name. */
    void      (*product)(const xd_dev *d, char *name, size_t size);
    /* Implementations for this device of the functions xd_dev_compute, xd_dev_best, xd_dev_peak,
     * xd_dev_kernel_bytes and xd_dev_forget. */
    xd_dtype  (*compute)(const xd_dev *d, xd_dtype want);
    xd_dtype  (*best)(const xd_dev *d);
    double    (*peak)(xd_dev *d, xd_dtype t, int threads, double seconds);
    size_t    (*kernel_bytes)(const xd_dev *d);
    void      (*forget)(xd_dev *d);
    /* Record when asynchronous work has ended. `stamp` and `stamps` are NULL on devices whose
     * kernels return only after their work has ended. `stamp` queues a timestamp for the moment
     * when all earlier work has ended, and returns the index of the timestamp (counted from 0), or
     * -1 on failure. `stamps` waits for all timestamps, writes the first `most` of them (ns, on the
     * clock of xd_now_ns), and returns the number of timestamps written. A call of `stamps`
     * discards all timestamps, so the index of the next timestamp is 0. */
    int64_t   (*stamp)(xd_dev *d, xd_stream *s);
    int64_t   (*stamps)(xd_dev *d, int64_t *ns, int64_t most);
    void      (*close)(xd_dev *d);
} xd_dev_ops;

struct xd_dev {
    const xd_dev_ops    *mem;
    const xd_ops        *ops;
    /* functions for lanes (queues); NULL: the device has only one queue */
    const xd_dev_lanes  *lanes;
    /* functions that record kernel launches as graphs; NULL: the device cannot record */
    const xd_dev_graphs *graphs;
    /* name of the device, for example "cpu-amx", "cuda:0", "count" */
    char                 name[32];
    /* 1: a count device, which computes nothing; its addresses must never be dereferenced */
    int                  counts;
    int                  host_memory; /* 1: the host may access device memory */
    int                  rotates;     /* 1: the device implements `rotate` of xd_ops */
    /* Set of query types (bit 1u << type for each type) for which attention computes int8 scores if
     * xd_attn_args.int8 is 1. For other query types, attention ignores xd_attn_args.int8. */
    unsigned             int8_attn;
    int                  fp8_gemm;    /* 1: GEMMs support fp8 inputs (xd_gemm.fp8) */
    int                  narrow_bias; /* 1: linear layers accept biases of the compute type */
    /* 1: a norm that also performs an addition (xd_norm.add) is faster than both separately */
    int                  norm_adds;
    void                *priv;
};

/* Opens a device by name: a kind ("cpu"), or a kind and an instance ("cuda:1"). If `name` is NULL,
 * opens a device of the first kind in the registry. Returns XD_EINVAL if there is no device with
 * this name. */
xd_status xd_dev_open(xd_dev **d, const char *name, xd_err *e);
/* Opens a stand-in for a device that has its own memory, such as a GPU, so that memory for GPUs can
 * be counted on a machine without a GPU. The stand-in device only returns the sizes of scratch
 * memory and of packed weights. `name` is a device name as in xd_dev_open. Returns XD_EINVAL if no
 * device kind has this name. */
xd_status xd_dev_open_sizes(xd_dev **d, const char *name, xd_err *e);
/* Chooses the device of rank number `rank`. `name` is the device that all ranks of this host
 * request; `ranks` is the number of these ranks. The name "cuda" means one GPU per rank, so *out
 * becomes "cuda:<rank>". If `name` is an instance such as "cuda:0", which all ranks share, or if
 * the kind has no instances, *out stays empty, and every rank opens the device `name`. Returns
 * XD_EINVAL if the device kind has fewer instances than ranks. */
xd_status xd_dev_of_rank(xd_dev_name *out, const char *name, int rank, int ranks, xd_err *e);
/* Opens a device of a kind that is faster than the first kind of the registry, for use by rank
 * number `rank` of the `ranks` ranks on this host only. Returns XD_EUNSUPPORTED if this machine has
 * no device of a faster kind. Returns another error if this machine has fewer devices of the faster
 * kind than ranks, or if the device cannot be opened. */
xd_status xd_dev_open_best(xd_dev **d, int rank, int ranks, xd_err *e);
/* Opens a count device, which counts bytes and operations of a real device and computes nothing.
 * The count device reports the sizes of scratch memory and packed weights of the device `real`,
 * which must outlive it. If `real` is NULL, kernels need no scratch memory, and packed weights are
 * rows [out,in]. */
xd_status xd_dev_open_count(xd_dev **d, xd_dev *real, xd_err *e);
void      xd_dev_close(xd_dev **d);

typedef struct xd_counts { /* numbers of operations and bytes that a count device has counted since
                            * the last reset */
    /* floating-point operations: 2 for each multiply-add of GEMM, convolution, attention */
    double  flops;
    /* operations of GEMMs, of attention and of convolutions, which `flops` includes */
    double  gemm_flops, attn_flops, conv_flops;
    double  bytes; /* bytes of operands that ops read and write */
    int64_t calls;
    /* number of kernel calls with fewer than 4e9 operations and less than 20 MB of operands */
    int64_t small;
} xd_counts;
/* Reads the numbers of operations and bytes that a count device, which computes nothing, has
 * counted. If `reset` is 1, then sets the counts to zero. */
void xd_dev_counts(xd_dev *d, xd_counts *out, int reset);

/* Returns the type in which this device computes if `want` (XD_F32, XD_F16 or XD_BF16) is
 * requested. The returned compute type is f32 instead of bf16 if the CPU has no bf16 arithmetic,
 * and f32 instead of f16 if the device has no f16 arithmetic. */
xd_dtype xd_dev_compute(const xd_dev *d, xd_dtype want);
/* Returns the default compute type of the device: bf16 if the device has native bf16 dot products,
 * else f32. */
xd_dtype xd_dev_best(const xd_dev *d);
/* Measures the peak GFLOP/s of matrix multiplications of type F32 or BF16. On the CPU, the operands
 * are in registers and `threads` threads run, or as many threads as kernels use if `threads` is 0.
 * Devices with their own processors, such as GPUs, ignore `threads`. Each thread runs short bursts
 * of operations for `seconds` seconds, but at least five bursts. If the device has no bf16 dot
 * products, the peak of BF16 is that of F32. Do not call xd_dev_peak for a count device, which
 * computes nothing. */
double   xd_dev_peak(xd_dev *d, xd_dtype t, int threads, double seconds);
/* Returns the approximate number of bytes that kernels will allocate for code and tables when they
 * first run. The estimate is for kernel calls that a count device has counted and that the real
 * device has not run yet. Kernels allocate memory for code and tables in device memory if the
 * device has its own memory, else in host memory. */
size_t   xd_dev_kernel_bytes(const xd_dev *d);
/* Returns an id of the device's memory, or 0 for the host's memory. Devices that share memory have
 * equal ids. A count device returns the id of the real device for which it counts. */
uint64_t xd_dev_identity(const xd_dev *d);
/* Discards the kernel calls that a count device has counted but that have not run yet, so that
 * xd_dev_kernel_bytes no longer includes their memory. */
void     xd_dev_forget(xd_dev *d);

/* ---- device kinds ------------------------------------------------------------------------- */

/* A device kind, such as "cpu" or "cuda". Each device kind has its own folder in backend/ and an
 * entry in the list of registry.c. */
typedef struct xd_dev_kind {
    /* name of the device kind, for example "cpu": the text before ':' in a device name */
    const char *name;
    /* Opens a device. `which` is the text after ':' in the device name, or "". Returns XD_EINVAL if
     * there is no device with this name. */
    xd_status   (*open)(xd_dev **d, const char *which, xd_err *e);
    /* Implements xd_dev_open_sizes. If the function pointer `open_sizes` is NULL, `open` is called
     * instead. */
    xd_status   (*open_sizes)(xd_dev **d, xd_err *e);
    /* Writes to *n the number of instances of the kind on this host, which are named "kind:0" to
     * "kind:<n-1>". The function pointer `instances` is NULL if the device kind has only one
     * device, which all ranks of a host share. */
    xd_status   (*instances)(int *n, xd_err *e);
    /* Starts to load the libraries of the device kind in the background; `open` waits until they
     * are loaded. May be NULL. */
    void        (*early)(void);
    /* Reports the kind's libraries and their versions. May be NULL. */
    void        (*about)(xd_fact *fact, void *cookie);
    /* Returns the bytes of address space that kernels will map in this process when they first run.
     * Counts of memory do not include this address space. May be NULL. */
    double      (*address_space)(void);
} xd_dev_kind;

/* Writes to *n how many devices the device kind in `name` has. *n is 1 if the device kind has only
 * one device, which all ranks share, or if `name` is an instance such as "cuda:1". */
xd_status xd_dev_instances(const char *name, int *n, xd_err *e);

/* all device kinds; the array ends with NULL, and the first kind is the default */
extern const xd_dev_kind *const xd_dev_kinds[];

void xd_dev_early(void);                        /* calls `early` of every device kind */
void xd_dev_about(xd_fact *fact, void *cookie); /* calls `about` of every device kind */

/* Computes how much host memory can still be allocated. Writes to *machine the number of bytes that
 * all processes of this machine (or of this control group) together may still allocate. Writes to
 * *process the number of bytes of address space that this process may still map (ulimit -v), minus
 * the address space that kernels will map later. */
void   xd_host_memory(size_t *machine, size_t *process);
/* Returns the bytes of address space that this process may still map, including the address space
 * that kernels will map later. */
size_t xd_host_address_space(void);
/* Sets *available to the smaller of the two values that xd_host_memory returns, and *total to the
 * size of the host's memory in bytes. */
void   xd_host_memory_free(size_t *available, size_t *total);
/* Returns how many processes the kernel has killed for lack of memory. Sets *group to 1 if only
 * processes of this process's control group are counted, or to 0 if all processes of the host are
 * counted. Returns -1 if the number of killed processes is unknown. */
double xd_host_oom_kills(int *group);

/* ---- weights ------------------------------------------------------------------------------ */

/* A weight is the matrix of a linear layer or the kernel of a convolution. The weight is packed,
 * which means that its elements are in the order that the device's GEMM or convolution reads
 * fastest. To fill an xd_weight, the caller describes the weight (type, out, in, kernel, groups;
 * `p` is NULL), calls pack_size, sets p to memory of that many bytes, and calls pack. The caller
 * owns the memory of the packed weight at p.
 *
 * The weight of a linear layer (nk is 0) may be quantized, with one scale sw[o] per output channel
 * o:
 *   I8       w[o,i] ~ sw[o] q[o,i], sw[o] = max_i |w[o,i]| / 127, q = w / sw rounded to nearest
 *            even. The GEMM quantizes its input row by row in the same way:
 *            sx[n] = max_i |x[n,i]| / 127, q = x * (127 / max).
 *            The int32 sum of products becomes the output epilogue((float)sum * (sx[n] * sw[o])).
 *            Sums of up to XD_INT8_MAX_INPUTS products are exact in int32, so all devices compute
 *            bit-identical results. If `floats` is 1, the GEMM's input is not quantized: the f32
 *            input is multiplied by q, and the sum of the products is multiplied by sw[o]. Callers
 *            set `floats` if the input has few rows, because reading the weight then dominates the
 *            time.
 *   F8E4M3   w[o,i] ~ sw[o] q[o,i], sw[o] = max_i |w[o,i]| / 448, q = w / sw rounded to the nearest
 *            e4m3. A GEMM with F8E4M3 weights converts q to the type of its input, which is exact
 *            for every type, and multiplies the input by q. The GEMM multiplies the f32 sum of the
 *            products by sw[o], the scale of the output channel.
 * Each quotient in the quantization formulas is one f32 division, and each product is one f32
 * multiplication. The quantized elements q are clamped to +-127 (I8) or +-448 (F8E4M3). If the
 * scale of a row would be below FLT_MIN, the scale and all elements of the row become 0. If a row
 * has a NaN or an infinity, the scale of the row becomes NaN. The memory at p contains the packed
 * elements and the scales. */
enum { XD_INT8_MAX_INPUTS = 130000 };

typedef struct xd_weight {
    xd_dtype     type; /* type of the packed elements: compute type, I8 or F8E4M3 */
    /* number that identifies the packed layout, chosen by the device; 0: rows [out,in] */
    int          layout;
    int64_t      out, in;   /* number of output channels; number of inputs per group */
    int          nk;        /* number of spatial dimensions: 0 (linear), 2 or 3 */
    int          kernel[3]; /* kernel size in frames, rows and columns; 1 in unused dimensions */
    int          stride[3]; /* stride of a convolution, on which packing may depend */
    int          groups;    /* number of groups of a convolution; 1: not grouped */
    int          floats;    /* 1: a GEMM with I8 weights keeps its input in f32 */
    void        *p;
    size_t       bytes;
    /* The scales sw[out] of a quantized weight. If the rows belong to a larger matrix, the caller
     * sets `scale` to its scales before `pack`. If `scale` is NULL, `pack` computes the scales from
     * the float elements of the source. If source and weight are both F8E4M3, `pack` copies the
     * elements unchanged, and a `scale` of NULL stands for scales of 1. If the source is I8, `pack`
     * copies the elements (-128 becomes -127), and `scale` must not be NULL. Only devices that use
     * the host's memory can pack a weight from an I8 source. */
    const float *scale;
} xd_weight;

int   xd_is_quantized(xd_dtype t); /* returns 1 if t is I8 or F8E4M3 */
/* Returns the scale sw of a row whose largest magnitude is `most` (NaN if the row has non-finite
 * elements). */
float xd_quant_scale(xd_dtype t, float most);

/* Applies the rotation of ConvRot in place: x becomes x R. The matrix R has n = 4^k rows and is the
 * k-th Kronecker power of H/2, with
 *   H = [1 1 1 -1; 1 1 -1 1; 1 -1 1 1; -1 1 1 1].
 * R is symmetric and orthogonal, so a second rotation restores x. n <= XD_ROTATE_MAX. */
enum { XD_ROTATE_MAX = 1024 };
void xd_rotation(float *x, int64_t n);
int  xd_rotates(int64_t n); /* returns 1 if n = 4^k, so that R exists */

/* ---- arguments of ops --------------------------------------------------------------------- */

/* Activations. A GEMM's epilogue supports the activations before XD_NACTS; only xd_glu supports the
 * others. XD_SINE_SQUARED is sin(x)^2, with an absolute error of 2e-7 for |x| < 25000. */
typedef enum xd_act {
    XD_NONE,
    XD_GELU_TANH,
    XD_GELU_ERF,
    XD_SILU,
    XD_RELU,
    XD_GELU_QUICK,
    XD_TANH,
    XD_SIGMOID,
    XD_NACTS,
    XD_SINE_SQUARED = XD_NACTS,
} xd_act;

/* Arguments of a GEMM: out[n,O] = residual + gate * act(in[n,I] w^T + bias)
 *   in       [n,I]  of the weight's type; F32 or BF16 if the weight is quantized. If the weight has
 *            a 16-bit type, `in` may also be F32, and is rounded to this type as by `copy`
 *   out      [n,O]  F32 or BF16
 *   bias     [O]    F32, or absent; with xd_dev.narrow_bias also BF16 or F16
 *   gate     [O]    F32 (one row for all rows), or absent
 *   residual [n,O]  F32 or BF16, or absent; may be `out` itself
 * If `fp8` is 1 and the weight is F8E4M3, BF16 and F16 input rows are quantized to F8E4M3 in the
 * same way as the rows of the weight: x ~ sx q, sx = m / 448 with m = max |x|, q = x (448 / m)
 * rounded to nearest. Devices without fp8_gemm ignore xd_gemm.fp8. Devices with fp8_gemm also
 * accept input rows that a norm has already quantized to F8E4M3:
 *   sx       [n] F32: the scales that the norm has written for the F8E4M3 input rows; absent if
 *            `in` has another type */
typedef struct xd_gemm {
    xd_tensor        out, in, bias, gate, residual;
    const xd_weight *w;
    xd_act           act;
    int              fp8;
    xd_tensor        sx;
} xd_gemm;

typedef struct xd_kv { xd_tensor k, v; } xd_kv;
typedef struct xd_qo { xd_tensor q, out; } xd_qo;

/* Arguments of attention:
 * out[b,i,h,:] = sum_j softmax_j(cap(scale * q[b,i,h,:].k[b,j,h',:]) + bias[h,i,j]) v[b,j,h',:]
 *   q, out  [B,n,H,D]    F32 or BF16; D 8..1152, k and v of the same type as q
 *   kv      `nkv` segments [B,m_s,Hk,D], in global token order; Hk divides H, h' = h Hk / H
 *   kv_len  [B] int64: sample b attends only to the first kv_len[b] of the keys of all segments;
 *           NULL: to all keys
 *   bias    [H,n,m] F32, strides free (also of the last dimension), or absent
 *   lse     [B,n,H] F32: log of the sum of exponentials, exact in f32; absent: not computed
 *   part    `nparts` pieces [B,n_s,H,D], which together hold all rows of the queries and the
 *           output. If nparts is above 0, the tensors q and out only define shapes, and their data
 *           pointers are not read. If nparts is 0, q and out hold all rows.
 *   cap     the soft cap of scores: cap(s) = softcap tanh(s / softcap), or cap(s) = s if softcap
 *           is 0.
 * If attention has no keys, out is 0 and lse is -infinity.
 *
 * If `int8` is 1 and there is no bias, cap, window or causal mask, the scores are computed as
 *   q.k ~ q.mean + sq[i] sk[j] sum_d iq[i,d] ik[j,d]
 * where mean is the mean of all keys of a head (the same term for all keys, so softmax cancels it),
 * and iq, ik are q and k - mean quantized as rows of an I8 weight are, with a scale for each query
 * and key (SageAttention, Zhang et al. 2024). If a query or key has a NaN or an infinity, all
 * attention outputs that depend on it are NaN. */
typedef struct xd_attn_args {
    xd_tensor      out, lse, q, bias;
    const xd_kv   *kv;
    /* Keys and values of a prefix, which come before those of the tokens and which every rank
     * holds; NULL: no prefix. The hooks of parallel methods pass `prefix` on or add it to `kv`;
     * kernels ignore it. */
    const xd_kv   *prefix;
    const xd_qo   *part;
    int            nkv, nparts;
    const int64_t *kv_len;
    float          scale;
    int64_t        window;  /* query i attends to keys j with |i - j| <= window; 0: to all keys */
    int            causal;  /* 1: causal mask: query i attends only to keys j <= i */
    float          softcap; /* the soft cap of the scores; 0: no cap */
    int            int8;    /* 1: int8 scores, if the device supports them (int8_attn) */
} xd_attn_args;

/* Arguments of a norm of rows: out[n,C] = norm(in) * gain + bias, then * (1 + scale) + shift.
 *   in, out      [n,C] F32 or BF16, types may differ; out may be `in`
 *   gain, bias   [C] F32, or absent
 *   scale, shift [1,C] or [n,C] F32, or absent
 *   like         [n,C] F32, or absent. If `like` is present, each row of norm(in) is multiplied by
 *                the RMS of the same row of `like`, which must not be `out`
 *   add          [n,C] F32 or BF16, or absent. If `add` is present, in + gate * add is first stored
 *                to `in` (as by xd_addmul) and then normalized; `in` must not be `out`
 *   gate         [1,C] or [n,C] F32, or absent, which stands for 1
 *   sx           [n] F32, or absent; only for devices with fp8_gemm. If sx is present, the norm
 *                quantizes `out` to F8E4M3, in the same way as a GEMM with `fp8` quantizes input
 *                rows of type `via`, and writes the scales of the rows to sx. If sx is present,
 *                `out` must be contiguous and C a multiple of 16. */
typedef struct xd_norm {
    xd_tensor out, in, gain, bias, scale, shift, like;
    int       rms; /* 1: RMS norm, x / sqrt(mean x^2 + eps); 0: layer norm */
    float     eps;
    xd_tensor add, gate, sx;
    xd_dtype  via;
} xd_norm;

/* Group norm is computed in three steps, so that an image may be split into bands of rows. In the
 * first step, the op `moments` computes the sums and sums of squares of each row of the image. In
 * the second step, another call of `moments`, with groups = 0, adds the sums of all R rows: in is
 * [R,n] F64, and out is [n] F64. out may be the first row of in. In the last step, the op `gnorm`
 * normalizes the image with the resulting sums.
 *   moments: in [R,P,C] has R rows of P positions. out [R,G,2] F64 receives the sum and the sum of
 *            squares of each group of channels in each row.
 *   gnorm: in, out [n,C], out may be in; sums [G,2] F64 over `count` elements; gain, bias [C] F32.
 *            If xd_gnorm.silu is 1, SiLU is applied last. If scale and shift [t,h,w,C] F32 are
 *            present, in and out are [T,H,W,C], where T, H and W are multiples of t, h and w.
 *            norm(in) * scale + shift is then computed before SiLU, and each element of scale and
 *            shift applies to T/t x H/h x W/w positions. */
typedef struct xd_moments {
    xd_tensor out, in;
    int       groups;
} xd_moments;
typedef struct xd_gnorm {
    xd_tensor out, in, sums, gain, bias, scale, shift;
    int       groups, silu;
    double    count;
    float     eps;
} xd_gnorm;

/* Computes out = act(a) * b, elementwise; if b is absent, out = act(a). All tensors are [n,C], F32
 * or BF16; out may be a.
 *   sx [n] F32, or absent; only for devices with fp8_gemm. If xd_glu.sx is present, `out` is
 *                F8E4M3, quantized from rows of type `via`, under the conditions of xd_norm. If
 *                xd_glu.sx is present, C is at most XD_GLU_NARROW_MAX, and the rows of a and b
 *                begin at multiples of 16 bytes. */
enum { XD_GLU_NARROW_MAX = 20480 };
typedef struct xd_glu {
    xd_tensor out, a, b;
    xd_act    act;
    xd_tensor sx;
    xd_dtype  via;
} xd_glu;

/* Computes acc[n,C] += gate * in. acc is F32 or BF16; gate is [1,C] or [n,C] F32, or absent, which
 * stands for 1. */
typedef struct xd_addmul { xd_tensor acc, gate, in; } xd_addmul;

/* Computes y = a x + b y, elementwise, for F32 tensors x and y of the same shape. If x is absent,
 * axpby computes y = b y. If b is 0 and x is present, axpby does not read y. */
typedef struct xd_axpby_args {
    xd_tensor y, x;
    float     a, b;
} xd_axpby_args;

/* Computes out[t,h,w,O] = conv(in[T,H,W,C], w) + bias (+ residual), channels last. With a 2-D
 * kernel, T is the number of images in a batch. Along frames, rows and columns, the image is padded
 * with `lo` zeros at its start and `hi` zeros at its end. `bias` of a convolution is [O] F32, or
 * absent. `residual` has the shape of `out`, or is absent; it may be `out`. `in` of a convolution
 * has the type of the weight. */
typedef struct xd_conv {
    xd_tensor        out, in, bias, residual;
    const xd_weight *w;
    int              stride[3], lo[3], hi[3];
} xd_conv;

/* Enlarges an image by integer factors f, with nearest-neighbour interpolation:
 * in [T,H,W,C] -> out [T f0,H f1,W f2,C]. */
typedef struct xd_resize {
    xd_tensor out, in;
    int       factor[3];
} xd_resize;

/* Looks up rows of a table: out[i,:] = table[ids[i],:]. The table is F32, BF16 or F16 (possibly
 * unaligned, in a mapped file), ids are I32 [n], and out is F32 or BF16. Returns XD_EINVAL if an id
 * is outside the table. */
typedef struct xd_lookup { xd_tensor out, table, ids; } xd_lookup;

/* Applies a norm and a rotary embedding to the heads of queries or keys:
 * out[i,h,:] = rotate_i(norm(in[i,h,:]) * gain + bias).
 *   in, out      [n,H,D] F32 or BF16, types may differ; D <= XD_QKNORM_MAX; out may be `in`
 *   gain, bias   [D] F32, or absent
 *   cos, sin     [n,D/2] F32, or [1,D/2] for all rows (a row's stride may be 0); both absent: no
 *                rotation; with them D is even
 * The rotation (rotary embedding, Su et al. 2021) replaces pair i, (x, y), by
 * (x cos[i] - y sin[i], y cos[i] + x sin[i]).
 * The pair with number i consists of the elements 2i and 2i + 1 of a head. If `halves` is 1, pair i
 * consists of the elements i and i + D/2 instead. All arithmetic is in f32.
 *   also         a second tensor of heads (for example keys, if `in` has queries) with its own gain
 *                and bias, or absent (in.p is NULL). The second tensor has the types of the first
 *                one, but may have another number of heads H. */
enum { XD_QKNORM_MAX = 1024 };
typedef struct xd_qk_heads { xd_tensor out, in, gain, bias; } xd_qk_heads;
typedef struct xd_qknorm {
    xd_tensor   out, in, gain, bias, cos, sin;
    int         norm; /* 1: computes the norm; 0: only gain, bias and rotation */
    int         rms;  /* 1: the norm is an RMS norm; 0: it is a layer norm */
    int         halves;
    float       eps;
    xd_qk_heads also;
} xd_qknorm;

/* Rotates each group of `group` elements of a row (xd_rotation). in, out: [n,C] F32 or BF16, types
 * may differ; C is a multiple of `group`; out may be `in`. Devices whose `rotates` is 0 return
 * XD_EUNSUPPORTED. */
typedef struct xd_rotate {
    xd_tensor out, in;
    int64_t   group;
} xd_rotate;

/* Linear attention (Katharopoulos et al. 2020, arXiv:2006.16236) with the kernel function relu, in
 * two phases, of which a call computes one or both. The first phase computes sums over the rows of
 * keys and values, k and v [m,H,D]; the second phase computes the attention of queries q [n,H,D]:
 *   sums[h,i,j] = sum_r relu(k[r,h,i]) v[r,h,j], with v[r,h,D] = 1
 *   out[n,h,j] = sum_i relu(q[n,h,i]) sums[h,i,j] / (sum_i relu(q[n,h,i]) sums[h,i,D] + 1e-15)
 * With cos and sin, RoPE rotates relu(k) and relu(q), in pairs of neighbouring elements, in all
 * terms but those with the index D of sums.
 *   q, k, v, out F32 or BF16; D <= XD_LINATTN_MAX; q and out are absent in a call of the first
 *                part, k and v in a call of the second part
 *   sums         [H,D,D+1] F32, contiguous
 *   cos, sin     [m,D/2] or [n,D/2] F32 with contiguous rows, for the rows of k or of q, or absent;
 *                a call with cos and sin computes one part, and D is even */
enum { XD_LINATTN_MAX = 128 };
typedef struct xd_linattn { xd_tensor out, q, k, v, sums, cos, sin; } xd_linattn;

/* Converts the vectors of attention heads to codes of 8 bits, or codes to vectors. Either `out` or
 * `in` has values [n,H,D], F32, BF16 or F16. The one of `out` and `in` that does not have values
 * contains the codes, [n,H,D+4], I8 or F8E4M3: for each head, D codes of one element each, and the
 * four bytes of their common F32 scale. The codes and the scale are those of a row of D elements of
 * an I8 or F8E4M3 weight, and the code of x is x (127 / max), or x (448 / max), rounded. D is at
 * most XD_CODE_MAX. */
enum { XD_CODE_MAX = 1024, XD_CODE_SCALE = 4 };
typedef struct xd_code { xd_tensor out, in; } xd_code;

/* Copies the elements of a tensor to another tensor of the same shape, and converts them to its
 * type. The tensors of `copy` may have any strides, also in the last dimension. `in` is F32, F16,
 * BF16, F64, F8E4M3 or F8E5M2, and `out` is F32, F16 or BF16. */
typedef struct xd_copy { xd_tensor out, in; } xd_copy;

/* ---- the table of ops --------------------------------------------------------------------- */

typedef enum xd_op {
    XD_OP_GEMM,
    XD_OP_ATTN,
    XD_OP_NORM,
    XD_OP_MOMENTS,
    XD_OP_GNORM,
    XD_OP_GLU,
    XD_OP_ADDMUL,
    XD_OP_AXPBY,
    XD_OP_CONV,
    XD_OP_RESIZE,
    XD_OP_LOOKUP,
    XD_OP_COPY,
    XD_OP_QKNORM,
    XD_OP_ROTATE,
    XD_OP_LINATTN,
    XD_OP_CODE,
    XD_NOPS,
} xd_op;

/* Table of a device's kernels, as function pointers. `scratch` returns the number of bytes of
 * scratch memory that the caller must pass to an op as `tmp`. `tmp` is aligned to XD_ALIGN, and may
 * be NULL if `scratch` returns 0. */
struct xd_ops {
    /* name of the table of kernels, for example "c", "avx2", "avx512", "amx", "cuda", "count" */
    const char *name;
    size_t      (*scratch)(xd_dev *d, xd_op op, const void *args);
    /* Sets w->bytes and w->layout of a weight w that will be packed, and returns w->bytes. */
    size_t      (*pack_size)(xd_dev *d, xd_weight *w);
    /* Packs `src` [out,in(,kt,kh,kw)] into w->p. `src` is contiguous and of a float type, or I8 for
     * an I8 weight. `src` may be in a mapped file and unaligned. pack_tmp returns the number of
     * bytes of scratch memory that `pack` needs at `tmp`. */
    size_t      (*pack_tmp)(xd_dev *d, const xd_weight *w, xd_dtype src);
    xd_status   (*pack)(xd_dev *d, xd_weight *w, xd_tensor src, void *tmp);
    /* Returns the number of rows in a band. The weight of a linear layer is packed in bands of
     * rows, which several threads may pack concurrently. Returns 0 if all rows must be packed in
     * one call. */
    int64_t     (*pack_band)(xd_dev *d, const xd_weight *w);
    /* Packs all rows of `src`, which are the rows of weight w from row `row0` on. `row0` is a
     * multiple of the number that pack_band returns, and so is the number of rows of `src`, unless
     * `src` ends with the last row of w. */
    xd_status   (*pack_rows)(xd_dev *d, xd_weight *w, xd_tensor src, int64_t row0);
    xd_status   (*gemm)(xd_dev *d, xd_stream *s, const xd_gemm *a, void *tmp);
    xd_status   (*attn)(xd_dev *d, xd_stream *s, const xd_attn_args *a, void *tmp);
    xd_status   (*norm)(xd_dev *d, xd_stream *s, const xd_norm *a, void *tmp);
    xd_status   (*moments)(xd_dev *d, xd_stream *s, const xd_moments *a, void *tmp);
    xd_status   (*gnorm)(xd_dev *d, xd_stream *s, const xd_gnorm *a, void *tmp);
    xd_status   (*glu)(xd_dev *d, xd_stream *s, const xd_glu *a, void *tmp);
    xd_status   (*addmul)(xd_dev *d, xd_stream *s, const xd_addmul *a, void *tmp);
    xd_status   (*axpby)(xd_dev *d, xd_stream *s, const xd_axpby_args *a, void *tmp);
    xd_status   (*conv)(xd_dev *d, xd_stream *s, const xd_conv *a, void *tmp);
    xd_status   (*resize)(xd_dev *d, xd_stream *s, const xd_resize *a, void *tmp);
    xd_status   (*lookup)(xd_dev *d, xd_stream *s, const xd_lookup *a, void *tmp);
    xd_status   (*copy)(xd_dev *d, xd_stream *s, const xd_copy *a, void *tmp);
    xd_status   (*qknorm)(xd_dev *d, xd_stream *s, const xd_qknorm *a, void *tmp);
    xd_status   (*rotate)(xd_dev *d, xd_stream *s, const xd_rotate *a, void *tmp);
    xd_status   (*linattn)(xd_dev *d, xd_stream *s, const xd_linattn *a, void *tmp);
    xd_status   (*code)(xd_dev *d, xd_stream *s, const xd_code *a, void *tmp);
};

#endif
