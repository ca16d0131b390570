/* cuda.h - declares what the files of the CUDA device share: its state, its stream, and the launch
 * of its kernels.
 *
 * All work of the device is queued on one stream in the order of the calls, and ops return as soon
 * as their work is queued. Kernels are looked up by name in one module: the fatbin of this build
 * or, if XDIT_CUDA_DIR names a directory, the file xdit_kernels.so in this directory. A CUDA error
 * is permanent: every later call of the process returns XD_EDEVICE. With XDIT_CUDA_SYNC=1 the host
 * waits after each kernel and each GEMM, so that an error message names the call that caused the
 * error. With XDIT_CUDA_SYNC=1, no CUDA graphs are recorded. */
#ifndef XD_BACKEND_CUDA_CUDA_H
#define XD_BACKEND_CUDA_CUDA_H

#include <pthread.h>

#include "backend/backend.h"
#include "backend/cuda/cublaslt.h"
#include "backend/cuda/kernels/args.h"
#include "backend/lanes.h"
#include "backend/op_args.h"

/* Calls the macro X with the name of each kernel of kernels/ and the maximum bytes of the kernel's
 * dynamic shared memory. */
#define XD_CUDA_KERNELS(X)                                                                         \
    X(norm_5, 0) X(norm_8, 0) X(norm_12, 0) X(norm_16, 0) X(norm_wide, XD_CUDA_NORM_SHARED)        \
    X(norm_5_e4m3, 0) X(norm_8_e4m3, 0) X(norm_12_e4m3, 0) X(norm_16_e4m3, 0)                      \
    X(norm_wide_e4m3, XD_CUDA_NORM_SHARED) X(norm_any, 0)                                          \
    X(qknorm_32, 0) X(qknorm_64, 0) X(qknorm_128, 0) X(qknorm_any, 16 << 10)                       \
    X(flash_64, XD_CUDA_FLASH_SHARED(64, 64)) X(flash_80, XD_CUDA_FLASH_SHARED(80, 32))            \
    X(flash_96, XD_CUDA_FLASH_SHARED(96, 32))                                                      \
    X(flash_128, XD_CUDA_FLASH_WIDE_SHARED(128, 128))                                              \
    X(flash_192, XD_CUDA_FLASH_WIDE_SHARED(192, 64))                                               \
    X(flash_256, XD_CUDA_FLASH_WIDE_SHARED(256, 64))                                               \
    X(flash_64_f16, XD_CUDA_FLASH_SHARED(64, 64)) X(flash_80_f16, XD_CUDA_FLASH_SHARED(80, 32))    \
    X(flash_96_f16, XD_CUDA_FLASH_SHARED(96, 32))                                                  \
    X(flash_128_f16, XD_CUDA_FLASH_WIDE_SHARED(128, 128))                                          \
    X(flash_192_f16, XD_CUDA_FLASH_WIDE_SHARED(192, 64))                                           \
    X(flash_256_f16, XD_CUDA_FLASH_WIDE_SHARED(256, 64))                                           \
    X(flash_64_bias, XD_CUDA_FLASH_SHARED(64, 32))                                                 \
    X(flash_64_bias_f16, XD_CUDA_FLASH_SHARED(64, 32))                                             \
    X(attention_any, 0) X(attention_wide, 0) X(softmax, 64)                                        \
    X(glu, 0) X(glu_wide, 0) X(glu_e4m3, XD_CUDA_GLU_SHARED) X(addmul, 0) X(addmul_wide, 0)        \
    X(axpby, 0) X(epilogue, 0) X(epilogue_wide, 0)                                                 \
    X(copy, 0) X(lengths, 0) X(lookup, 0) X(resize, 0) X(moments, 128 * 16)                        \
    X(moments_wide, 128 * 128) X(add_rows, 128 * 8) X(gnorm, XD_CUDA_GNORM_SHARED)                 \
    X(conv, XD_CUDA_CONV_SHARED) X(conv_f16, XD_CUDA_CONV_SHARED) X(conv_any, 0)                   \
    X(integers, 0) X(integers_wide, 64) X(widen, 0)                                                \
    X(integer_product, 0) X(linattn_sums, 0) X(linattn_out, 0)                                     \
    X(encode, 0) X(decode, 0)
/* bytes of shared memory for a float of each warp, and for the 16-bit elements of the widest row
 * (XD_GLU_NARROW_MAX) */
#define XD_CUDA_GLU_SHARED  (64 + 20480 * 2)
/* bytes of shared memory for three sums of the eight warps that normalize a wide row */
#define XD_CUDA_NORM_SHARED (3 * 8 * 4)
/* Bytes of shared memory that flash attention needs: two tiles of keys and two tiles of values. For
 * wide heads (FLASH_WIDE), a tile contains 32 keys, and shared memory also holds the queries of the
 * thread block. */
#define XD_CUDA_FLASH_SHARED(d, keys) (((d) + 8) * (keys) * 4 * 2)
#define XD_CUDA_FLASH_WIDE_SHARED(d, queries) (((d) + 8) * ((queries) + 32 * 4) * 2)
/* Number of heads that one warp of the kernel qknorm_32 processes. A warp of qknorm_64 processes 16
 * heads, and a warp of qknorm_128 processes 8. */
#define XD_CUDA_QKNORM_HEADS    32
/* bytes of shared memory that a convolution needs for the tiles of three pipeline stages */
#define XD_CUDA_CONV_SHARED     (3 * 256 * 40 * 2)
/* bytes of shared memory that group norm needs for two floats per group of channels */
#define XD_CUDA_GNORM_SHARED    (6144 * 2 * 4)

typedef enum xd_cuda_kernel {
#define XD_CUDA_ENTRY(name, shared) XD_K_##name,
    XD_CUDA_KERNELS(XD_CUDA_ENTRY)
#undef XD_CUDA_ENTRY
        XD_CUDA_NKERNELS,
} xd_cuda_kernel;

enum {
    XD_CUDA_OLDEST_CAPABILITY = 80, /* compute capability 8.0, which has bf16 and cp.async */
    XD_CUDA_FP8_CAPABILITY = 89,    /* compute capability 8.9, which has products of e4m3 */
};
enum {
    XD_CUDA_SLOTS = 64,      /* number of small uploads that may be pending */
    XD_CUDA_SLOT = 4 << 10,  /* maximum number of bytes of a small upload */
    XD_CUDA_STAGE = 4 << 20, /* bytes of a staging buffer */
    XD_CUDA_STAGES = 8,      /* number of staging buffers */
    XD_CUDA_WORK = 32 << 20, /* bytes of cuBLASLt's workspace */
    /* upper limit, in bytes, of the estimate of the memory that CUDA libraries will allocate
     * later */
    XD_CUDA_LATER = 256 << 20,
    XD_CUDA_FLASH_MOST = 256, /* maximum number of elements of a head in flash attention */
    /* maximum number of elements of a head in flash attention with a bias */
    XD_CUDA_FLASH_BIAS = 64,
};

typedef struct xd_cuda_block {
    char  *p;
    size_t bytes;
} xd_cuda_block;

/* A staging buffer of pinned host memory, and an event that is reached when the last copy from or
 * to the buffer has ended. */
typedef struct xd_cuda_pinned {
    char   *p;
    CUevent done;
    int     held; /* 1: a thread is filling or reading this staging buffer */
} xd_cuda_pinned;

/* Two events of the last fetch to one of the XD_FETCH_PLACES buffers (fetch.c). The event `free` is
 * reached when the work that was queued before the fetch has ended, so that the fetch may overwrite
 * the buffer. The event `filled` is reached when the fetch (the copy to the device) has ended. */
typedef struct xd_cuda_place { CUevent free, filled; } xd_cuda_place;

/* Events of the timestamps that xd_dev_ops.stamp queues. The event `first` was reached at the time
 * first_ns on the host's clock. */
typedef struct xd_cuda_stamps {
    CUevent *v, first;
    int64_t  n, most, first_ns;
} xd_cuda_stamps;

typedef struct xd_cuda_dev {
    xd_dev                     dev; /* device interface; dev.priv points to this struct */
    const xd_cuda_driver      *cu;
    const xd_cublaslt         *lt;
    CUdevice                   device;
    CUcontext                  context;
    CUstream                   stream;
    /* CUDA streams on which messages are copied (lanes.c) */
    CUstream                   lane[XD_NLANES];
    CUstream                   fetching; /* stream of fetches (fetch.c); NULL: not opened yet */
    xd_cuda_place              place[XD_FETCH_PLACES];
    CUmodule                   module;
    CUfunction                 kernel[XD_CUDA_NKERNELS];
    double                     peak[3]; /* peak GFLOP/s of F32, BF16, F16; 0: unknown */
    int                        waits;   /* 1: the host waits after each launch (XDIT_CUDA_SYNC) */
    cublasLtHandle_t           lt_handle;
    cublasLtMatmulPreference_t lt_preference;
    struct xd_cuda_products   *products; /* table of the kinds of GEMMs (cublaslt.c) */
    /* algorithms of GEMMs, stored in the user's cache directory (algorithms.c) */
    struct xd_cuda_algorithms *kept;
    struct xd_cuda_cudnn      *dnn;      /* state of cuDNN (cudnn_plans.c); NULL: not opened yet */
    int                        ngraphs;  /* number of live CUDA graphs */
    int                        captures; /* 1: a graph is being captured */
    CUdeviceptr                work;     /* cuBLASLt's workspace, XD_CUDA_WORK bytes */
    /* device address of an int32 that a lookup kernel sets to 1 if an id is invalid */
    CUdeviceptr                failed;
    /* mutex that guards the fields after it, because several threads may pack weights */
    pthread_mutex_t            lock;
    pthread_cond_t             stage_is_free; /* signals that a staging buffer has become free */
    xd_cuda_pinned             stage[XD_CUDA_STAGES], slot[XD_CUDA_SLOTS];
    char                      *slots; /* pinned buffers of small uploads */
    int32_t       *failed_now; /* last value of `failed` that was read, in pinned host memory */
    unsigned       next_stage, next_slot;
    int            free_stages, looked_up;
    xd_cuda_block *blocks; /* list of all allocations of device memory */
    size_t         nblocks, most_blocks;
    xd_cuda_stamps stamps;
} xd_cuda_dev;

/* The device kind "cuda"; "cuda:1" is the second GPU. */
extern const xd_dev_kind xd_dev_kind_cuda;
void                     xd_cuda_close(xd_dev *d);
extern const xd_ops      xd_cuda_ops;
void      xd_cuda_about(xd_fact *fact, void *cookie); /* implements xd_dev_kind.about, in about.c */
/* implements xd_dev_kind.open_sizes, in sizes.c */
xd_status xd_cuda_open_sizes(xd_dev **d, xd_err *e);

static inline xd_cuda_dev *xd_cuda_of(const xd_dev *d)
{
    return d->priv;
}

/* ---- peak.c: entries of xd_dev_ops, random values, timing ---------------------------------- */

/* Returns the GFLOP/s of matrix products by cuBLASLt. The matrices for the measurement are so large
 * that one product takes `seconds` seconds. */
double    xd_cuda_peak(xd_dev *d, xd_dtype t, int threads, double seconds);
double    xd_cuda_bandwidth(xd_dev *d);
/* Fills n elements with random values between -1 and 1, or -127 and 127 for I8. The sequence of
 * random values repeats after 2^18 elements. */
xd_status xd_cuda_fill_random(xd_cuda_dev *c, xd_dtype t, void *to, int64_t n);

/* Two events for timing work on a stream: `begin` is reached before the work, and `end` after it.
 * xd_cuda_open_timing returns 1 if it could create the events. */
typedef struct xd_cuda_timing { CUevent begin, end; } xd_cuda_timing;
int    xd_cuda_open_timing(xd_cuda_dev *c, xd_cuda_timing *t);
void   xd_cuda_close_timing(xd_cuda_dev *c, xd_cuda_timing *t);
/* Waits for the event `end` of a timing, and returns the seconds between its two events, which the
 * caller has recorded. Returns 0 if the time between the events is unknown. */
double xd_cuda_timed(xd_cuda_dev *c, const xd_cuda_timing *t);

/* ---- memory.c ----------------------------------------------------------------------------- */

extern const xd_dev_ops xd_cuda_memory_ops;
/* Allocates the staging buffers for copies and the workspace of cuBLASLt. */
xd_status               xd_cuda_open_memory(xd_cuda_dev *c, xd_err *e);
void                    xd_cuda_close_memory(xd_cuda_dev *c);
/* Copies bytes from host memory to device memory after all earlier work. xd_cuda_upload may be
 * called by any thread. The caller may reuse the host memory when the function returns. */
xd_status               xd_cuda_upload(xd_cuda_dev *c, void *to, const void *from, size_t bytes);
/* Stores in *b a staging buffer of XD_CUDA_STAGE bytes, which the calling thread holds until
 * xd_cuda_stage_close. If no staging buffer is free, xd_cuda_stage_open waits for one. If
 * xd_cuda_stage_open fails, *b must not be used. */
xd_status               xd_cuda_stage_open(xd_cuda_dev *c, xd_cuda_pinned **b);
/* Queues a copy of the first `bytes` bytes of staging buffer b to device memory, after all earlier
 * work. */
xd_status xd_cuda_stage_send(xd_cuda_dev *c, xd_cuda_pinned *b, void *to, size_t bytes);
void      xd_cuda_stage_close(xd_cuda_dev *c, xd_cuda_pinned *b);

/* ---- lanes.c ------------------------------------------------------------------------------ */

extern const xd_dev_lanes xd_cuda_lanes;
void                      xd_cuda_close_lanes(xd_cuda_dev *c);
CUevent                   xd_cuda_mark_event(const xd_mark *m);
extern const xd_dev_links xd_cuda_links; /* functions that send messages by NCCL (links.c) */

/* ---- fetch.c: entries of xd_dev_ops -------------------------------------------------------- */

void     *xd_cuda_pin(xd_dev *d, size_t bytes);
void      xd_cuda_unpin(xd_dev *d, void *p);
xd_status xd_cuda_pin_pages(xd_dev *d, void *p, size_t bytes);
void      xd_cuda_unpin_pages(xd_dev *d, void *p);
xd_status xd_cuda_fetch(xd_dev *d, int place, void *to, const void *from, size_t bytes);
xd_status xd_cuda_fetched(xd_dev *d, int place);
double    xd_cuda_link(xd_dev *d, int back);
void      xd_cuda_close_fetch(xd_cuda_dev *c);

/* ---- graphs.c ----------------------------------------------------------------------------- */

extern const xd_dev_graphs xd_cuda_graphs;

/* ---- stamps.c ----------------------------------------------------------------------------- */

int64_t xd_cuda_stamp(xd_dev *d, xd_stream *s);
int64_t xd_cuda_stamps_read(xd_dev *d, int64_t *ns, int64_t most);
void    xd_cuda_close_stamps(xd_cuda_dev *c);

/* ---- launch.c ----------------------------------------------------------------------------- */

/* Loads the module of CUDA kernels and looks up its kernels. Returns XD_EUNSUPPORTED if this build
 * has no kernels for this GPU. */
xd_status xd_cuda_open_kernels(xd_cuda_dev *c, xd_err *e);
/* Checks that this build's kernels can be loaded. Returns XD_EUNSUPPORTED if the build has no
 * kernels, or if the kernels were compiled by a later major version of CUDA than the driver
 * supports. */
xd_status xd_cuda_check_kernels(const xd_cuda_driver *cu, xd_err *e);
/* Queues a kernel on a grid of gx x gy blocks of `threads` threads with `shared` bytes of shared
 * memory. `args` is the kernel's struct of arguments, which is copied. If the grid is empty,
 * xd_cuda_launch does nothing and returns XD_OK. */
xd_status xd_cuda_launch(xd_cuda_dev *c, int kernel, int64_t gx, int64_t gy, int threads,
                         size_t shared, void *args);
/* Queues a kernel with one thread for each of n elements. */
xd_status xd_cuda_launch_each(xd_cuda_dev *c, int kernel, int64_t n, void *args);

/* ---- operands ----------------------------------------------------------------------------- */

/* set of the compute types of the CUDA device */
#define XD_CUDA_TYPES (XD_TYPES_F32_BF16 | 1u << XD_F16)

/* Returns the type of a tensor as an int, for kernel arguments. */
static inline int xd_cuda_type(const xd_tensor *t)
{
    return (int)t->type;
}

/* Returns 1 if all rows of t, `stride` elements apart, begin at multiples of 16 bytes, or if t is
 * absent. */
static inline int xd_cuda_aligned(const xd_tensor *t, int64_t stride)
{
    return !t->p ||
           ((uintptr_t)t->p % 16 == 0 && stride * (int64_t)xd_dtype_size(t->type) % 16 == 0);
}

/* Returns the stride between the rows of a tensor [n,C]. The stride is 0 if one row is used for all
 * n rows or if t is absent. */
static inline int64_t xd_cuda_row_stride(const xd_tensor *t, int64_t n)
{
    return !t->p || (t->d[0] == 1 && n != 1) ? 0 : t->s[0];
}

/* Returns the offset in scratch memory of the buffer that follows another one. The previous buffer
 * begins at offset `at` and contains `elements` elements of `size` bytes. */
static inline size_t xd_cuda_after(size_t at, int64_t elements, size_t size)
{
    return at + ((size_t)elements * size + 255) / 256 * 256;
}

/* ---- ops ---------------------------------------------------------------------------------- */

size_t    xd_cuda_gemm_scratch(const xd_gemm *a);
/* Returns the scratch bytes of an attention call. `c` may be NULL, because scratch bytes are also
 * computed on machines without a GPU. */
size_t    xd_cuda_attention_scratch(xd_cuda_dev *c, const xd_attn_args *a);
xd_status xd_cuda_gemm(xd_dev *d, xd_stream *s, const xd_gemm *a, void *tmp);
/* Makes cuDNN compile the plan of a convolution, if cuDNN computes convolutions. */
void      xd_cuda_conv_expect(xd_cuda_dev *c, const xd_conv *a);
xd_status xd_cuda_conv(xd_dev *d, xd_stream *s, const xd_conv *a, void *tmp);
xd_status xd_cuda_attention(xd_dev *d, xd_stream *s, const xd_attn_args *a, void *tmp);
xd_status xd_cuda_norm(xd_dev *d, xd_stream *s, const xd_norm *a, void *tmp);
xd_status xd_cuda_linattn(xd_dev *d, xd_stream *s, const xd_linattn *a, void *tmp);
xd_status xd_cuda_code(xd_dev *d, xd_stream *s, const xd_code *a, void *tmp);
xd_status xd_cuda_qknorm(xd_dev *d, xd_stream *s, const xd_qknorm *a, void *tmp);
xd_status xd_cuda_moments(xd_dev *d, xd_stream *s, const xd_moments *a, void *tmp);
xd_status xd_cuda_gnorm(xd_dev *d, xd_stream *s, const xd_gnorm *a, void *tmp);
xd_status xd_cuda_glu(xd_dev *d, xd_stream *s, const xd_glu *a, void *tmp);
xd_status xd_cuda_addmul(xd_dev *d, xd_stream *s, const xd_addmul *a, void *tmp);
xd_status xd_cuda_axpby(xd_dev *d, xd_stream *s, const xd_axpby_args *a, void *tmp);
xd_status xd_cuda_resize(xd_dev *d, xd_stream *s, const xd_resize *a, void *tmp);
xd_status xd_cuda_lookup(xd_dev *d, xd_stream *s, const xd_lookup *a, void *tmp);
xd_status xd_cuda_copy(xd_dev *d, xd_stream *s, const xd_copy *a, void *tmp);
/* Copies `in` to `out`, converting types. The tensors `in` and `out` of a copy have the same
 * shape. */
xd_status xd_cuda_copy_view(xd_cuda_dev *c, const xd_tensor *out, const xd_tensor *in);

/* ---- attention_products.c: heads too wide for flash, by products of cuBLASLt -------------- */

size_t xd_cuda_attention_products_scratch(const xd_attn_args *a);
/* Computes attention for the queries q of all samples by products of cuBLASLt. The first row of q
 * is query row `row` of the attention call. Returns 0 if cuBLASLt cannot compute this attention or
 * one of its products; the contents of `out` are then undefined. */
int    xd_cuda_attention_products(xd_cuda_dev *c, const xd_attn_args *a, const xd_tensor *q,
                                  const xd_tensor *out, int64_t row, char *tmp, xd_status *s);
/* ---- attention_cudnn.c: large attention by cuDNN -------------------------------------------- */

/* Keys and values of an attention call, each copied to one tensor. k.p is NULL until the attention
 * of the first queries is computed. */
typedef struct xd_cuda_keys {
    char     *tmp; /* scratch memory of the attention call */
    xd_tensor k, v;
} xd_cuda_keys;
/* Returns the scratch bytes of attention by cuDNN. xd_cuda_attention_cudnn_scratch also makes a
 * background thread compile cuDNN's execution plans for this attention. */
size_t xd_cuda_attention_cudnn_scratch(xd_cuda_dev *c, const xd_attn_args *a);
/* Computes attention by cuDNN. Arguments and result are as for xd_cuda_attention_products. */
int    xd_cuda_attention_cudnn(xd_cuda_dev *c, const xd_attn_args *a, const xd_tensor *q,
                               const xd_tensor *out, int64_t row, xd_cuda_keys *keys, xd_status *s);
void   xd_cuda_close_cudnn(xd_cuda_dev *c); /* in cudnn_plans.c */

/* Returns 1 if the address of each row of each head is a multiple of `bytes`. */
int xd_cuda_heads_aligned(const xd_tensor *t, int64_t bytes);
/* Returns 1 if the addresses of all heads of the queries and of the results are multiples of 16. If
 * there is only one key segment, the addresses of all heads of the keys and of the values must also
 * be multiples of 16. (Several segments are first copied to one aligned tensor.) */
int xd_cuda_attention_aligned(const xd_attn_args *a, const xd_tensor *q, const xd_tensor *out);

/* ---- cublaslt.c --------------------------------------------------------------------------- */

/* A product of matrices: out[n,O] = act(scales in[n,I] w[O,I]^T + bias). cuBLASLt's columns are our
 * rows, so all three matrices must be contiguous along their last dimension. The type of `in` and
 * `w` is F32, BF16, F16 or F8E4M3 (with F32 accumulators), or I8 (with an I32 output). If cuBLASLt
 * does not support the product, xd_cuda_multiply queues nothing and returns 0. */
typedef struct xd_cuda_product {
    xd_tensor    out, in;
    const void  *w;
    int64_t      s_w;  /* number of elements from one row of w to the next row */
    const void  *bias; /* bias [O], or NULL */
    /* For F8E4M3 operands: sx contains the scales of the rows of `in`, and sw the scales of the
     * rows of `w`. sx and sw are NULL if the operands have no scales. */
    const float *sx, *sw;
    xd_dtype     bias_type; /* type of the bias; cuBLASLt only supports the type of out */
    int          gelu;      /* 1: the activation is GELU with tanh */
    int          turned;    /* 1: the weight w is [I,O] instead of [O,I] */
} xd_cuda_product;
int       xd_cuda_multiply(xd_cuda_dev *c, const xd_cuda_product *p);
xd_status xd_cuda_open_cublaslt(xd_cuda_dev *c, xd_err *e);
void      xd_cuda_close_cublaslt(xd_cuda_dev *c);

/* ---- algorithms.c: timed algorithms of products, in the user's cache ----------------------- */

/* Reads cuBLASLt's algorithms for matrix products, which earlier runs have stored, from the user's
 * cache directory. With XDIT_TUNE=1, the algorithms for new kinds of products are timed, and the
 * fastest ones are stored. */
void xd_cuda_open_algorithms(xd_cuda_dev *c);
/* writes new entries to the cache file of algorithms */
void xd_cuda_close_algorithms(xd_cuda_dev *c);
int  xd_cuda_times_algorithms(const xd_cuda_dev *c);
/* Finds the stored algorithm for a kind of matrix product, which `name` (without blanks)
 * identifies. Returns 0 if no algorithm is stored. */
int  xd_cuda_kept_algorithm(const xd_cuda_dev *c, const char *name, cublasLtMatmulAlgo_t *a);
void xd_cuda_keep_algorithm(xd_cuda_dev *c, const char *name, const cublasLtMatmulAlgo_t *a);
/* Writes "WHAT-VERSION-GPU/" to `folder`: the name of the cache folder for one version of a
 * library. */
void xd_cuda_cache_folder(const xd_cuda_dev *c, const char *what, size_t version, char *folder,
                          size_t size);

/* ---- weights.c: rows [out][taps][in] of the compute type, or 8-bit with scales ------------ */

/* Returns the number of elements from one row of a packed weight to the next row. For a
 * convolution, the row stride is `in` times the number of taps. For a linear layer, the row stride
 * is `in` rounded up to a multiple of 16 if the elements have 8 bits, else to a multiple of 8; the
 * rows are padded with zeros. */
int64_t      xd_cuda_weight_stride(const xd_weight *w);
/* Returns the scales sw[out] of a quantized weight, which follow the weight's rows. */
const float *xd_cuda_weight_scales(const xd_weight *w);
size_t       xd_cuda_pack_size(xd_dev *d, xd_weight *w);
size_t       xd_cuda_pack_tmp(xd_dev *d, const xd_weight *w, xd_dtype src);
xd_status    xd_cuda_pack(xd_dev *d, xd_weight *w, xd_tensor src, void *tmp);
int64_t      xd_cuda_pack_band(xd_dev *d, const xd_weight *w);
xd_status    xd_cuda_pack_rows(xd_dev *d, xd_weight *w, xd_tensor src, int64_t row0);

#endif
