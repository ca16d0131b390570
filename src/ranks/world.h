/* world.h - the ranks of a run: who there is, who works on a request, and how they agree
 *
 * Every function is collective over the ranks it names, unless its comment says otherwise. */
#ifndef XD_RANKS_WORLD_H
#define XD_RANKS_WORLD_H

#include "comm/comm.h"
#include "exec/exec.h"
#include "ranks/abort_notice.h"

typedef struct xd_world {
    xd_comm  *all, *used;       /* all ranks; the ranks that the plan uses                     */
    xd_comm  *host;             /* the used ranks on this host                                 */
    xd_abort_notice *abort_notice;            /* of the used ranks; NULL with one rank                       */
    int       lowest;           /* lowest rank of `host`, counted in `used`; known with the memory plan */
    int       idle;             /* the plan does not use this rank                             */
} xd_world;

/* Waits for one message. A failure is XD_ECOMM, with the communicator's error in the sentence. Local. */
xd_status xd_world_wait(xd_comm *c, xd_req r, xd_err *e);

/* Every used rank gives its status; all return the failure of the lowest rank that has one, with the
 * sentence and rank of that failure. */
xd_status xd_world_agree(const xd_world *w, xd_status mine, xd_err *e);
/* The same among the ranks of c; `me` is the rank that a failure of this rank is reported under. A
 * failure that a rank only relays loses against a rank's own failure. */
xd_status xd_world_agree_in(xd_comm *c, int me, xd_status mine, xd_err *e);
/* The same for the sticky error of an execution context, over the ranks of c, a group of `used`. */
void      xd_world_settle(const xd_world *w, xd_comm *c, xd_exec *x);
/* Makes a context fail when another rank has failed, and tell the others of its own failure. Local. */
void      xd_world_watch(const xd_world *w, xd_exec *x);
/* The status of a failure that was not agreed on: XD_ECOMM, since the ranks are out of step. Local. */
xd_status xd_world_judge(const xd_world *w, xd_status s, xd_err *e);
/* Bytes that all used ranks have sent since each had sent `since`; -1: unknown. */
int64_t   xd_world_sent(const xd_world *w, int64_t since);
/* Broadcasts bytes from rank 0 of the used ranks. */
xd_status xd_world_broadcast(const xd_world *w, void *p, int64_t bytes, xd_err *e);

#endif
