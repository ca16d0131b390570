/* exec.h - defines the execution context of a network: the device, scratch memory, the layout of
 * the tokens over ranks, and the stack of hooks, which are functions that combine tokens of
 * different ranks.
 *
 * The code of a model handles the tokens of one rank. For computations on single tokens, a model's
 * code calls the ops of op.h; only the functions of xd_hooks combine tokens. A parallel method is
 * an entry of the hook stack; the last entry calls the device's kernels. For a batch of B samples,
 * a tensor of n tokens has B*n rows; only attention and modulation need to know B.
 *
 * Errors are sticky: after the first failure, operations compute nothing, but hooks still take part
 * in every message, so that ranks stay synchronized. */
#ifndef XD_EXEC_EXEC_H
#define XD_EXEC_EXEC_H

#include "backend/backend.h"
#include "base/arena.h"
#include "base/cancel.h"
#include "base/err.h"
#include "exec/tokens.h"
#include "tensor/tensor.h"

typedef struct xd_exec   xd_exec;
typedef struct xd_hooks  xd_hooks;
/* cached tables of position embeddings and RoPE angles (exec/tables.h) */
typedef struct xd_tables xd_tables;

/* Inputs that some autoencoders' decoders read in addition to the latents. */
typedef struct xd_decoding {
    double  time; /* timestep of the decoder, 0 to 1 */
    int64_t seed; /* seed of the noise that the decoder adds */
    int64_t row;  /* index of this rank's first row of latent cells, for the noise */
} xd_decoding;

typedef enum xd_over { XD_OVER_TOKENS, XD_OVER_FEATURES } xd_over;

typedef struct xd_halo_args {
    xd_tensor in; /* this rank's pixel rows of images, [T,H,W,C] */
    /* Maximum number of rows to receive: `lo` rows above this rank's rows, and `hi` rows below
     * them. */
    int       lo, hi;
    xd_tensor above, below; /* results: the received rows, in memory from the arena */
} xd_halo_args;

typedef struct xd_near_args {
    xd_tensor   in; /* [n,C]: this rank's rows of image tokens */
    xd_nearness how;
    /* Result, in memory from the arena: the features of tokens that are at most xd_reach tokens
     * before or after this rank's tokens. For each patch that is computed, the tokens before are
     * followed by the tokens after. */
    xd_tensor   near;
} xd_near_args;

/* Hooks of one parallel method: functions that combine tokens of different ranks. A hook that is
 * NULL stands for the hook of the next method on the stack. */
struct xd_hooks {
    /* Computes the attention of this rank's tokens over all ranks' tokens: fills a->out (and
     * a->lse, the log-sum-exp of the scores). */
    void (*attn)(xd_exec *x, const xd_hooks *m, xd_attn_args *a);
    /* Computes a convolution of an image whose rows may be split over ranks. */
    void (*conv)(xd_exec *x, const xd_hooks *m, xd_conv *a);
    /* Sums the F32 tensor `io` in place, either over the ranks that split the tokens or over the
     * ranks that split the features. */
    void (*sum)(xd_exec *x, const xd_hooks *m, xd_over over, xd_tensor io);
    /* Sets a->above and a->below to the pixel rows of other ranks next to this rank's pixel rows of
     * an image. At the image's edges, fewer rows than requested exist. */
    void (*halo)(xd_exec *x, const xd_hooks *m, xd_halo_args *a);
    /* Computes group-norm sums [G,2] over all rows of an image that is `wide` pixels wide, from the
     * partial sums [R,G,2] of this rank's rows. The partial sums are added in row order, so that
     * the result does not depend on how the rows are split over ranks. Sets *rows to the number of
     * rows of all ranks. */
    void (*rowsum)(xd_exec *x, const xd_hooks *m, int64_t wide, xd_tensor partial, xd_tensor sums,
                   int64_t *rows);
    /* Computes a->sums of linear attention over the keys and values of all tokens, from this rank's
     * keys and values a->k and a->v. */
    void (*linear)(xd_exec *x, const xd_hooks *m, const xd_linattn *a);
    /* Sets a->near to the features of other ranks' tokens that a convolution over this rank's
     * tokens reads. */
    void (*near)(xd_exec *x, const xd_hooks *m, xd_near_args *a);
    const xd_hooks *next;
    void           *priv;
    size_t          bytes; /* bytes of device memory that the hooks have allocated */
};
/* The last entry of every stack of hooks, which sends no messages and calls the device's
 * kernels. */
extern const xd_hooks xd_hooks_local;

/* Groups of image tokens that attend to each other: all tokens, the tokens of a frame, or the
 * tokens of all frames at one row and column. */
typedef enum xd_group { XD_GROUP_NONE, XD_GROUP_FRAME, XD_GROUP_PLACE } xd_group;

struct xd_exec {
    xd_dev             *dev;    /* device that computes */
    xd_stream          *st;     /* device stream on which the kernels are queued, in order */
    xd_arena           *tmp;    /* scratch memory, rewound by the engine after each block */
    xd_tables          *tables; /* tensors cached while a request runs, or NULL */
    /* adaLN modulations, computed for several steps at once (dit/mods.h), or NULL */
    struct xd_mods     *mods;
    struct xd_late     *late;  /* delayed additions to the hidden state (exec/late.h), or NULL */
    const xd_hooks     *hooks; /* stack of parallel methods */
    const xd_layout    *lay;
    /* Layout of the queries of the current attention, if the queries belong to another token stream
     * than the keys (xd_attn_between); else NULL. If this layout is set, the field `lay` is the
     * layout of the keys. */
    const xd_layout    *asking;
    xd_dtype            act;   /* type of activations: the compute type */
    int64_t             B;     /* number of samples in the batch */
    int                 patch; /* patch to which this rank's tokens belong, or XD_ALL */
    int                 sp;    /* sequence rank to which the tokens belong */
    /* site: index of the current attention layer in the block */
    int                 step, pass, layer, site;
    int                 exact; /* 1: the step is exact: it uses no values of earlier steps */
    /* groups of image tokens that attend to each other in the current attention */
    xd_group            group;
    int                 window_off; /* 1: the current attention ignores the attention window */
    int                 int8_attn;  /* 1: attention over tokens computes its scores in int8 */
    int                 fp8_gemm;   /* 1: layers with fp8 weights get fp8 inputs */
    /* Size in bytes of the bands of rows in which a VAE computes a feature map, one band after the
     * other; 0: the VAE chooses the best size. */
    size_t              band;
    const xd_decoding  *decoding; /* further inputs of a VAE's decoder; NULL: zeros */
    const xd_canceller *cancel;   /* cancellation flag of the request, or NULL */
    /* A callback that is called before every kernel operation. The callback receives the failure
     * notices of other ranks, and sends a notice if this rank has failed. NULL: no callback is
     * called. */
    void                (*watch)(void *watcher, xd_exec *x);
    void               *watcher;
    /* A callback that is called at intervals during a long computation, so that other engines can
     * compute during the call. During the callback no message is pending, and device memory stays
     * valid. NULL: no callback is called. */
    void                (*pause)(void *pauser, xd_exec *x);
    void               *pauser;
    xd_err              err; /* first failure of the context */
};

/* Initializes an execution context on a device. Until the caller changes the context's fields, the
 * context describes a single rank that computes all tokens, with batch size 1. */
void xd_exec_init(xd_exec *x, xd_dev *dev, xd_arena *tmp, xd_dtype act);

/* Returns 1 if the context has not failed. */
int       xd_ok(const xd_exec *x);
void      xd_pause(xd_exec *x); /* calls the callback x->pause, if it is set */
/* Returns 1 on a count device (which computes nothing), where tensors have no valid addresses. */
int       xd_counting(const xd_exec *x);
/* Sets the context's error if `cond` is false, also in release builds. The macro xd_check has the
 * value `cond`. */
int       xd_check(xd_exec *x, int cond, const char *fmt, ...) XD_PRINTF(3, 4);
/* Returns the status of the context's first failure, and sets *e to the failure's message and
 * rank. */
xd_status xd_exec_status(const xd_exec *x, xd_err *e);
void      xd_exec_fail(xd_exec *x, xd_status code, const char *fmt, ...) XD_PRINTF(3, 4);
/* Returns the number of this rank's tokens in stream s. */
int64_t   xd_n(const xd_exec *x, xd_stream_id s);
/* Returns the index of this rank's token `row` among all ranks' tokens of stream s. */
int64_t   xd_where(const xd_exec *x, xd_stream_id s, int64_t row);
/* Returns how many of this rank's tokens, from token `row` on, have consecutive indices among all
 * ranks' tokens of stream s. */
int64_t   xd_where_run(const xd_exec *x, xd_stream_id s, int64_t row);

#endif
