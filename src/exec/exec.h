/* exec.h - what a model sees: its tokens, memory for them, and a chain of links.
 *
 * A model is written for "the tokens I was given". Everything token-wise is plain code on ops
 * (op.h); tokens meet only in the calls of xd_hooks. A parallel method is a link in that chain;
 * the last link is the plain kernel. Rows are B*n: only attention and modulation know B.
 *
 * Errors are sticky: after the first failure ops compute nothing, but links still take part
 * in every message, so that ranks stay in step. */
#ifndef XD_EXEC_EXEC_H
#define XD_EXEC_EXEC_H

#include <stdatomic.h>
#include "backend/backend.h"
#include "base/arena.h"
#include "base/err.h"
#include "exec/tokens.h"
#include "tensor/tensor.h"

typedef struct xd_exec xd_exec;
typedef struct xd_hooks  xd_hooks;

typedef enum xd_over { XD_OVER_TOKENS, XD_OVER_FEATURES } xd_over;

/* One link; a NULL entry passes on to the next link. */
struct xd_hooks {
    const char *name;
    /* Attention of my tokens over everybody's: fills a->out (and a->lse). */
    void (*attn)(xd_exec *x, const xd_hooks *m, xd_attn_args *a);
    /* A convolution whose image rows may be spread over ranks. */
    void (*conv)(xd_exec *x, const xd_hooks *m, xd_conv *a);
    /* In-place sum of f32 over the ranks that share tokens or features. */
    void (*sum)(xd_exec *x, const xd_hooks *m, xd_over over, xd_tensor io);
    /* Rows of images [T,H,W,C] beside mine: at most `lo` above and `hi` below them, less at the
     * image's edges. Taken from the arena. */
    void (*halo)(xd_exec *x, const xd_hooks *m, xd_tensor in, int lo, int hi, xd_tensor *above,
                xd_tensor *below);
    /* Group-norm partials [R,G,2] of my rows of an image `wide` pixels wide -> sums [G,2] over all
     * rows, added in row order whoever holds them; *rows becomes the rows of everybody. */
    void (*rowsum)(xd_exec *x, const xd_hooks *m, int64_t wide, xd_tensor partial, xd_tensor sums,
                   int64_t *rows);
    const xd_hooks *next;
    void         *priv;
    size_t        bytes;        /* of the device that it took when it was opened                */
};
extern const xd_hooks xd_hooks_local;       /* the end of every chain: one rank                   */

struct xd_exec {
    xd_dev          *dev;       /* how to compute                                             */
    xd_stream       *st;        /* when                                                       */
    xd_arena        *tmp;       /* where; rewound by the engine after each block              */
    const xd_hooks    *hooks;       /* with whom                                                  */
    const xd_layout *lay;
    xd_dtype         act;       /* type of activations: the compute type                      */
    int64_t          B;         /* samples in the batch                                       */
    int              patch;     /* which patch these tokens are, or XD_ALL                    */
    int              sp;        /* whose share                                                */
    int              step, pass, layer, site;   /* site: attentions so far in this block      */
    int              exact;     /* a warm-up step: nothing stale may be used                  */
    size_t           band;      /* bytes that some rows of a map shall have where a whole map is not
                                 * needed; 0: what is best                                    */
    const atomic_int *cancel; /* becomes nonzero when the request is to end, or NULL        */
    /* Called before every op, to hear of failures elsewhere and to tell of one here; or NULL. */
    void           (*watch)(void *watcher, xd_exec *x);
    void            *watcher;
    xd_err           err;       /* the first failure                                          */
};

/* A fresh context on a device: all tokens, one rank, batch 1. */
void xd_exec_init(xd_exec *x, xd_dev *dev, xd_arena *tmp, xd_dtype act);

int     xd_ok(const xd_exec *x);                        /* nothing failed so far              */
int     xd_counting(const xd_exec *x);                  /* addresses must not be followed      */
/* Fails the context when `cond` is false. Always compiled. Returns cond. */
int     xd_check(xd_exec *x, int cond, const char *fmt, ...) XD_PRINTF(3, 4);
void    xd_exec_fail(xd_exec *x, xd_status code, const char *fmt, ...) XD_PRINTF(3, 4);
int64_t xd_n(const xd_exec *x, xd_stream_id s);         /* rows I hold of a stream             */
/* Global index in its stream of my row `row`. */
int64_t xd_where(const xd_exec *x, xd_stream_id s, int64_t row);

#endif
