/* exec.h - the execution context of a model: its tokens, memory for them, and a stack of hooks
 *
 * A model is written for the tokens of one rank. Token-wise computation is plain code on ops
 * (op.h); only the calls of xd_hooks combine tokens. A parallel method is an entry of the hook
 * stack; the last entry is the kernel. Rows are B*n: only attention and modulation use B.
 *
 * Errors are sticky: after the first failure ops compute nothing, but hooks still take part in
 * every message, so that ranks stay synchronized. */
#ifndef XD_EXEC_EXEC_H
#define XD_EXEC_EXEC_H

#include "backend/backend.h"
#include "base/arena.h"
#include "base/cancel.h"
#include "base/err.h"
#include "exec/tokens.h"
#include "tensor/tensor.h"

typedef struct xd_exec xd_exec;
typedef struct xd_hooks  xd_hooks;
typedef struct xd_tables xd_tables;     /* exec/tables.h                                      */

typedef enum xd_over { XD_OVER_TOKENS, XD_OVER_FEATURES } xd_over;

typedef struct xd_halo_args {
    xd_tensor in;               /* this rank's rows [T,H,W,C]                                  */
    int       lo, hi;           /* max rows above and below this rank's rows                    */
    xd_tensor above, below;     /* results, allocated from the arena                           */
} xd_halo_args;

/* The hooks of one method; a NULL hook forwards the call to the next entry of the stack. */
struct xd_hooks {
    const char *name;
    /* Attention of this rank's tokens over all ranks' tokens: fills a->out (and a->lse). */
    void (*attn)(xd_exec *x, const xd_hooks *m, xd_attn_args *a);
    /* A convolution of an image whose rows may be split over ranks. */
    void (*conv)(xd_exec *x, const xd_hooks *m, xd_conv *a);
    /* In-place f32 sum over the ranks that split tokens or features. */
    void (*sum)(xd_exec *x, const xd_hooks *m, xd_over over, xd_tensor io);
    /* Sets a->above and a->below to the halo rows of images; fewer rows at the image's edges. */
    void (*halo)(xd_exec *x, const xd_hooks *m, xd_halo_args *a);
    /* Adds group-norm partial sums [R,G,2] of this rank's rows, of an image `wide` pixels wide, to
     * sums [G,2] over all rows, in row order regardless of the rank. *rows becomes the row count of
     * all ranks. */
    void (*rowsum)(xd_exec *x, const xd_hooks *m, int64_t wide, xd_tensor partial, xd_tensor sums,
                   int64_t *rows);
    const xd_hooks *next;
    void         *priv;
    size_t        bytes;        /* device memory allocated by open                             */
};
extern const xd_hooks xd_hooks_local;       /* end of every stack: one rank                       */

struct xd_exec {
    xd_dev          *dev;       /* device                                                     */
    xd_stream       *st;        /* stream: the order of work on the device                    */
    xd_arena        *tmp;       /* scratch memory, rewound by the engine after each block     */
    xd_tables       *tables;    /* tensors cached for a request, or NULL                       */
    struct xd_mods  *mods;      /* modulations of several steps (dit/mods.h), or NULL           */
    struct xd_late  *late;      /* additions that wait for the next norm (exec/late.h), or NULL  */
    const xd_hooks  *hooks;     /* parallel methods                                           */
    const xd_layout *lay;
    xd_dtype         act;       /* type of activations: the compute type                      */
    int64_t          B;         /* samples in the batch                                       */
    int              patch;     /* patch of these tokens, or XD_ALL                           */
    int              sp;        /* sequence rank of these tokens                              */
    int              step, pass, layer, site;   /* site: index of the attention in the block  */
    int              exact;     /* 1: exact step, without stale data                          */
    int              window_off;        /* 1: this attention ignores the window                */
    int              int8_attn; /* 1: attention over tokens uses int8 scores                  */
    int              fp8_gemm;  /* 1: layers with fp8 weights get fp8 inputs                  */
    size_t           band;      /* bytes per band of rows, for maps computed in bands; 0: best  */
                                /* size                                                       */
    const xd_canceller *cancel;   /* set if the request is cancelled; or NULL                   */
    /* Called before every op: receives other ranks' failures and sends this rank's. NULL: none. */
    void           (*watch)(void *watcher, xd_exec *x);
    void            *watcher;
    /* Called between two parts of a long computation, while no message is pending and device memory
     * stays valid: other engines may compute meanwhile. NULL: none. */
    void           (*pause)(void *pauser, xd_exec *x);
    void            *pauser;
    xd_err           err;       /* the first failure                                          */
};

/* Initializes a context on a device: all tokens, one rank, batch 1. */
void xd_exec_init(xd_exec *x, xd_dev *dev, xd_arena *tmp, xd_dtype act);

int     xd_ok(const xd_exec *x);                        /* 1: no failure so far               */
void    xd_pause(xd_exec *x);                           /* calls x->pause                     */
int     xd_counting(const xd_exec *x);                  /* 1: addresses are not valid          */
/* Fails the context when `cond` is false. Always compiled. Returns cond. */
int     xd_check(xd_exec *x, int cond, const char *fmt, ...) XD_PRINTF(3, 4);
/* Returns the first failure of the context; *e gets its message and rank. */
xd_status xd_exec_status(const xd_exec *x, xd_err *e);
void    xd_exec_fail(xd_exec *x, xd_status code, const char *fmt, ...) XD_PRINTF(3, 4);
int64_t xd_n(const xd_exec *x, xd_stream_id s);         /* this rank's rows of a stream        */
/* Global index in its stream of this rank's row `row`. */
int64_t xd_where(const xd_exec *x, xd_stream_id s, int64_t row);
/* Number of this rank's rows from `row` on with consecutive global indices. */
int64_t xd_where_run(const xd_exec *x, xd_stream_id s, int64_t row);

#endif
