/* link.h - parallel methods: each is one link of the chain at which tokens meet.
 *
 * The registry lists the links, head of the chain first; order is meaning. One rank needs none,
 * so the list is empty until there are ranks to speak of. */
#ifndef XD_PARALLEL_LINK_H
#define XD_PARALLEL_LINK_H

#include "exec/exec.h"
#include "parallel/topo.h"

typedef struct xd_link {        /* the one const that a method exports                         */
    const char *name;           /* "ulysses"                                                   */
    /* The link in front of `next` for this topology; *out stays `next` when the topology has no
     * use for it. */
    xd_status (*open)(const xd_topo *t, const xd_mix *next, const xd_mix **out, xd_err *e);
    void      (*close)(const xd_mix *m);
} xd_link;

extern const xd_link *const xd_links[];         /* NULL at the end                             */

#endif
