/* link.h - parallel methods that change how tokens meet: each is one link of a chain.
 *
 * A chain is opened for one network (transformer, VAE or text encoder) and one layout of tokens, and
 * closed with it. A link that has nothing to do for this topology opens as nothing. Messages of a
 * link are the same sequence on all ranks of its group, whatever failed: after an error a link
 * still sends and receives, with its own buffers, which are taken when it is opened. */
#ifndef XD_PARALLEL_LINK_H
#define XD_PARALLEL_LINK_H

#include "exec/exec.h"
#include "parallel/topo.h"

typedef enum xd_chain_for { XD_FOR_DIT, XD_FOR_VAE, XD_FOR_TEXT } xd_chain_for;

typedef struct xd_link_args {
    xd_chain_for     what;
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
} xd_link_args;

typedef struct xd_link {        /* the one const that a method exports                         */
    const char *name;           /* "ulysses"                                                   */
    /* The link in front of `next`; *out = NULL when there is nothing to do. */
    xd_status (*open)(const xd_link_args *a, const xd_mix *next, xd_mix **out, xd_err *e);
    void      (*close)(xd_mix *m);
} xd_link;

extern const xd_link *const xd_links[];         /* head of the chain first; NULL at the end     */

enum { XD_MAXLINKS = 12 };
typedef struct xd_chain {
    const xd_mix *head;         /* what an xd_exec gets as its mix                              */
    const xd_link *const *links;        /* that it was opened with                              */
    xd_mix       *open[XD_MAXLINKS];
    size_t        bytes;        /* of the device that its links hold until it is closed         */
} xd_chain;
xd_status xd_chain_open(xd_chain *c, const xd_link_args *a, xd_err *e);
/* The same of other links than the registry's; a list of more than XD_MAXLINKS is refused. */
xd_status xd_chain_open_of(xd_chain *c, const xd_link *const *links, const xd_link_args *a,
                           xd_err *e);
void      xd_chain_close(xd_chain *c);
/* Where a rank that has failed sends from and receives to: `p` where it is memory of the arena, else
 * its beginning. What lies there is rubbish by then, on this rank; the arena is larger than any
 * tensor of the run (were it not, all ranks would be ended, saying the failure). */
void     *xd_link_park(xd_exec *x, void *p, size_t bytes, xd_comm *c);

#endif
