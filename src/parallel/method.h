/* method.h - parallel methods that change how tokens meet: each is one link of a chain.
 *
 * A chain is opened for one network (transformer, VAE or text encoder) and one layout of tokens, and
 * closed with it. A link that has nothing to do for this topology opens as nothing. Messages of a
 * link are the same sequence on all ranks of its group, whatever failed: after an error a link
 * still sends and receives, with its own buffers, which are taken when it is opened. */
#ifndef XD_PARALLEL_METHOD_H
#define XD_PARALLEL_METHOD_H

#include "exec/exec.h"
#include "parallel/topo.h"

typedef enum xd_method_use { XD_FOR_DIT, XD_FOR_VAE, XD_FOR_TEXT } xd_method_use;

typedef struct xd_method_args {
    xd_method_use     what;
    const xd_topo   *topo;
    const xd_layout *lay;       /* DIT: tokens; VAE: rows of the latent are cut over `rows`      */
    xd_dev          *dev;       /* the count device while counting                              */
    xd_dtype         act;       /* compute type                                                 */
    int64_t          heads, head_dim;   /* DIT: of one attention, on my tensor rank              */
    int              sites;     /* DIT: self-attentions of one block                            */
    int              first, last;       /* DIT: blocks of my stage                              */
    int              npass;     /* DIT: passes of a step, of all cfg ranks                      */
    int              displaced; /* DIT: the ring axis uses last step's K,V (DistriFusion)        */
    xd_comm         *rows;      /* VAE: ranks that share the image's rows; NULL: none            */
} xd_method_args;

typedef struct xd_method {        /* the one const that a method exports                         */
    const char *name;           /* "ulysses"                                                   */
    /* The link in front of `next`; *out = NULL when there is nothing to do. */
    xd_status (*open)(const xd_method_args *a, const xd_hooks *next, xd_hooks **out, xd_err *e);
    void      (*close)(xd_hooks *m);
} xd_method;

extern const xd_method *const xd_methods[];         /* head of the chain first; NULL at the end     */

enum { XD_MAXMETHODS = 12 };
typedef struct xd_method_stack {
    const xd_hooks *head;         /* what an xd_exec gets as its mix                              */
    const xd_method *const *links;        /* that it was opened with                              */
    xd_hooks       *open[XD_MAXMETHODS];
    size_t        bytes;        /* of the device that its links hold until it is closed         */
} xd_method_stack;
xd_status xd_method_stack_open(xd_method_stack *c, const xd_method_args *a, xd_err *e);
/* The same of other links than the registry's; a list of more than XD_MAXMETHODS is refused. */
xd_status xd_chain_open_of(xd_method_stack *c, const xd_method *const *links, const xd_method_args *a,
                           xd_err *e);
void      xd_method_stack_close(xd_method_stack *c);
/* Where a rank that has failed sends from and receives to: `p` where it is memory of the arena, else
 * its beginning. What lies there is rubbish by then, on this rank; the arena is larger than any
 * tensor of the run (were it not, all ranks would be ended, saying the failure). */
void     *xd_failed_buffer(xd_exec *x, void *p, size_t bytes, xd_comm *c);

#endif
