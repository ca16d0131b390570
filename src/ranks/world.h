/* world.h - the ranks of a run: all ranks, those that the plan uses, and agreement between them
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
    xd_abort_notice *abort_notice;      /* between `used`; NULL with one rank                  */
    int       lowest;     /* lowest rank of `host`, as a rank of `used`; set with the memory plan */
    int       idle;             /* 1: the plan does not use this rank                          */
} xd_world;

/* Waits for one message. A failure is XD_ECOMM with the communicator's error message. Local. */
xd_status xd_world_wait(xd_comm *c, xd_req r, xd_err *e);

/* Combines the status of all used ranks. All return the error of the lowest failing rank, with its
 * message and rank number. */
xd_status xd_world_agree(const xd_world *w, xd_status mine, xd_err *e);
/* As xd_world_agree, over the ranks of c. `me`: the rank number to report for a failure of this
 * rank. A rank's own failure has priority over one that a rank only passes on. */
xd_status xd_world_agree_in(xd_comm *c, int me, xd_status mine, xd_err *e);
/* Returns 1 if `mine` is nonzero on every used rank. Returns 0 if a message fails; the next
 * agreement reports that failure. */
int       xd_world_all(const xd_world *w, int mine);
/* Agrees on the sticky error of an execution context, over the ranks of c, a group of `used`. */
void      xd_world_settle(const xd_world *w, xd_comm *c, xd_exec *x);
/* Connects a context to the abort notice: it fails when another rank has failed, and its own
 * failure is sent to the others. Local. */
void      xd_world_watch(const xd_world *w, xd_exec *x);
/* Returns the status to report for a failure on which the ranks did not agree: XD_ECOMM, since the
 * ranks can no longer be synchronized; `s` for a rank that works alone or is idle. Local. */
xd_status xd_world_judge(const xd_world *w, xd_status s, xd_err *e);
/* Returns the bytes that all used ranks have sent since this rank's counter was `since`; -1:
 * unknown. */
int64_t   xd_world_sent(const xd_world *w, int64_t since);
/* Broadcasts bytes from rank 0 of the used ranks. */
xd_status xd_world_broadcast(const xd_world *w, void *p, int64_t bytes, xd_err *e);

#endif
