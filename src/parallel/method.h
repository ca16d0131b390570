/* method.h - parallel methods that change how tokens meet: each is one entry of a hook stack.
 *
 * A stack is opened for one network (transformer, VAE or text encoder) and one layout of tokens,
 * and closed with it. A method that has nothing to do for this topology adds no entry. A method's
 * messages are the same sequence on all ranks of its group, whatever has failed: after an error it
 * still sends and receives, with its own buffers, which it allocates when it is opened. */
#ifndef XD_PARALLEL_METHOD_H
#define XD_PARALLEL_METHOD_H

#include "exec/exec.h"
#include "parallel/topo.h"

typedef enum xd_method_use { XD_FOR_DIT, XD_FOR_VAE, XD_FOR_TEXT } xd_method_use;

typedef struct xd_method_args {
    xd_method_use     what;
    const xd_topo   *topo;
    const xd_layout *lay;       /* DIT: tokens; VAE: rows of the latents, cut over `rows`        */
    xd_dev          *dev;       /* the count device while counting                              */
    xd_dtype         act;       /* compute type                                                 */
    int64_t          heads, head_dim;   /* DIT: of one attention, on my tensor rank              */
    int              sites;     /* DIT: self-attentions of one block                            */
    int              first, last;       /* DIT: blocks of my stage                              */
    int              npass;     /* DIT: passes of a step, of all cfg ranks                      */
    int              displaced; /* DIT: the ring axis uses last step's K,V (DistriFusion)        */
    const int64_t   *window;    /* DIT: [t,h,w] image tokens that a tile of them sees, 0: all of an
                                   axis; NULL: it sees all                                      */
    struct xd_attn_table *ways; /* DIT: attentions that are shared (fast_attn.h); NULL: none      */
    xd_comm         *rows;      /* VAE: ranks that share the image's rows; NULL: none            */
} xd_method_args;

typedef struct xd_method {        /* the one constant that a method's file exports             */
    const char *name;           /* "ulysses"                                                   */
    /* Opens the hooks in front of `next`; *out = NULL if there is nothing to do. */
    xd_status (*open)(const xd_method_args *a, const xd_hooks *next, xd_hooks **out, xd_err *e);
    void      (*close)(xd_hooks *m);
} xd_method;

extern const xd_method *const xd_methods[];     /* in order of the stack; NULL at the end      */

enum { XD_MAXMETHODS = 12 };
typedef struct xd_method_stack {
    const xd_hooks *head;         /* for xd_exec.hooks                                          */
    const xd_method *const *methods;    /* the methods it was opened with                    */
    xd_hooks       *open[XD_MAXMETHODS];
    size_t        bytes;        /* device memory that the methods hold until close              */
} xd_method_stack;
xd_status xd_method_stack_open(xd_method_stack *c, const xd_method_args *a, xd_err *e);
/* Opens a stack of other methods than the registry's; more than XD_MAXMETHODS are refused. */
xd_status xd_method_stack_open_of(xd_method_stack *c, const xd_method *const *methods,
                                  const xd_method_args *a, xd_err *e);
void      xd_method_stack_close(xd_method_stack *c);
/* The buffer that a failed rank sends from and receives into: `p` if it is memory of the arena,
 * else the beginning of the arena. Its contents on this rank are invalid by then. The arena is
 * larger than any tensor of the run; if it were not, all ranks would be ended with the failure in
 * the log. */
void     *xd_failed_buffer(xd_exec *x, void *p, size_t bytes, xd_comm *c);

#endif
