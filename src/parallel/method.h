/* method.h - defines parallel methods, which distribute attention over ranks. Each open parallel
 * method is an entry in a stack of hooks, which are functions that replace attention and other
 * operations on several tokens.
 *
 * A stack of hooks is opened for one network (transformer, VAE or text encoder) and one layout of
 * tokens, and closed with that network. A parallel method that the groups of ranks do not need adds
 * no entry. All ranks of a group exchange the same sequence of messages even after an error. A
 * failed rank keeps sending and receiving, with buffers that the method allocates when it is
 * opened. */
#ifndef XD_PARALLEL_METHOD_H
#define XD_PARALLEL_METHOD_H

#include "exec/exec.h"
#include "parallel/topo.h"

typedef enum xd_method_use { XD_FOR_DIT, XD_FOR_VAE, XD_FOR_TEXT } xd_method_use;

typedef struct xd_method_args {
    xd_method_use         what;
    const xd_topo        *topo;
    /* For a transformer: layout of the tokens over ranks and patches. For a VAE: layout of the
     * latents' rows, which are split over the ranks of the group `rows`. */
    const xd_layout      *lay;
    xd_dev               *dev; /* device; while memory is counted, a device that computes nothing */
    xd_dtype              act; /* compute type */
    /* For a transformer: number of key heads of this tensor-parallel rank (heads), query heads per
     * key head (group), and elements per head (head_dim). */
    int64_t               heads, group, head_dim;
    int                   sites; /* for a transformer: number of self-attention layers per block */
    /* transformer: blocks [first, last) of this rank's pipeline stage */
    int                   first, last;
    int                   npass; /* for a transformer: guidance passes per step, on all cfg ranks */
    /* For a transformer: 1 if ring parallelism uses the previous step's keys and values
     * (DistriFusion). */
    int                   displaced;
    /* For a transformer: [t,h,w] size of the attention window in image tokens (0: the complete
     * axis); NULL: no window. */
    const int64_t        *window;
    int                   prefix;  /* 1: the network is a transformer that calls xd_attn_after */
    int                   grouped; /* 1: the network is a transformer that calls xd_attn_grouped */
    /* 1: the network is a transformer with linear attention (xd_attn_linear) */
    int                   linear;
    /* For a transformer: number of channels, on this rank, of the convolution over tokens; 0: no
     * such convolution. */
    int64_t               conv_ch;
    /* number of channels of the convolution over frames; 0: no such convolution */
    int64_t               frames_ch;
    /* For a transformer: table that tells which attention outputs are reused (fast_attn.h); NULL:
     * no output is reused. */
    struct xd_attn_table *ways;
    xd_comm              *rows; /* for a VAE: ranks that split the image's rows, or NULL */
} xd_method_args;

/* a parallel method; each method's source file exports only one such struct */
typedef struct xd_method {
    const char *name; /* name of the method, "ulysses" */
    /* Opens the method's hooks, which are called before the hooks `next`. Sets *out to NULL if the
     * method is not needed. */
    xd_status   (*open)(const xd_method_args *a, const xd_hooks *next, xd_hooks **out, xd_err *e);
    void        (*close)(xd_hooks *m);
} xd_method;

/* All parallel methods, in the order in which a stack calls their hooks; the array ends with
 * NULL. */
extern const xd_method *const xd_methods[];

enum { XD_MAXMETHODS = 14 };
typedef struct xd_method_stack {
    const xd_hooks         *head;    /* first entry of the stack, for xd_exec.hooks */
    const xd_method *const *methods; /* the list of methods of this stack, which ends with NULL */
    xd_hooks               *open[XD_MAXMETHODS];
    /* bytes of device memory that the parallel methods use until they are closed */
    size_t                  bytes;
} xd_method_stack;
xd_status xd_method_stack_open(xd_method_stack *c, const xd_method_args *a, xd_err *e);
/* Opens a stack of the given parallel methods in place of the methods in xd_methods. Refuses more
 * than XD_MAXMETHODS methods. */
xd_status xd_method_stack_open_of(xd_method_stack *c, const xd_method *const *methods,
                                  const xd_method_args *a, xd_err *e);
/* Opens the stack for a transformer on one rank that computes the layout of x in one patch, and
 * sets x->hooks. */
void      xd_method_stack_open_alone(xd_method_stack *c, xd_exec *x, int grouped, int prefix);
void      xd_method_stack_close(xd_method_stack *c);
/* Returns the buffer that a failed rank uses for its messages instead of its tensor at `p`: `p`
 * itself if it is in the arena, else the start of the arena. The contents of a failed rank's
 * message buffer are invalid. The arena is normally larger than any tensor; if `bytes` exceeds it,
 * the cause is logged and all ranks are aborted. */
void     *xd_failed_buffer(xd_exec *x, void *p, size_t bytes, xd_comm *c);

#endif
