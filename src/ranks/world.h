/* world.h - defines the groups of ranks of a run (all ranks, and those that the plan uses), and
 * declares functions by which ranks combine their status.
 *
 * All ranks that a function's comment names must call the function together, unless the comment
 * says that the call is local. */
#ifndef XD_RANKS_WORLD_H
#define XD_RANKS_WORLD_H

#include "comm/comm.h"
#include "exec/exec.h"
#include "ranks/abort_notice.h"

typedef struct xd_world {
    xd_comm *all, *used; /* all: group of all ranks; used: group of the ranks that the plan uses */
    xd_comm *host;       /* group of the used ranks that are on this host */
    /* abort notices between the ranks of `used`; NULL if there is only one rank */
    xd_abort_notice *abort_notice;
    /* Lowest rank number of the used ranks on this host; set when memory is planned. */
    int              lowest;
    int              idle; /* 1: the plan does not use this rank */
} xd_world;

/* Waits for the completion of one message. Returns XD_ECOMM, with the communicator's error message,
 * if the message could not be sent or received. Other ranks need not call xd_world_wait. */
xd_status xd_world_wait(xd_comm *c, xd_req r, xd_err *e);

/* Combines the status of all used ranks. If any rank has failed, all ranks return the error of the
 * lowest failing rank, with its error message and number. */
xd_status xd_world_agree(const xd_world *w, xd_status mine, xd_err *e);
/* Combines the status of the ranks of c: if any rank has failed, all return its error. `me` is the
 * number by which error messages name this rank. A failure that a rank has detected itself has
 * priority over a failure that a rank only passes on. */
xd_status xd_world_agree_in(xd_comm *c, int me, xd_status mine, xd_err *e);
/* Returns 1 if the argument `mine` is nonzero on every used rank. xd_world_all also returns 0 if
 * the communication fails; the next xd_world_agree then reports the error. */
int       xd_world_all(const xd_world *w, int mine);
/* Combines the sticky errors of an execution context over the ranks of c, a group of the used
 * ranks: if the context of one rank has failed, the contexts of all these ranks fail. */
void      xd_world_settle(const xd_world *w, xd_comm *c, xd_exec *x);
/* Connects an execution context to the abort notices: a notice that another rank has failed makes
 * the context fail, and the context's own failure is sent to the other ranks. xd_world_watch sends
 * no messages itself. */
void      xd_world_watch(const xd_world *w, xd_exec *x);
/* Returns the status with which this rank reports its failure `s` if the failure was not exchanged
 * with the other ranks. Returns XD_ECOMM, because the ranks may now be at different messages. On a
 * rank that works alone or that the plan does not use, returns `s`. xd_world_judge sends no
 * messages. */
xd_status xd_world_judge(const xd_world *w, xd_status s, xd_err *e);
/* Returns the number of bytes that all used ranks together have sent since this rank's byte counter
 * had the value `since`, or -1 if the number is unknown. */
int64_t   xd_world_sent(const xd_world *w, int64_t since);
/* Broadcasts `bytes` bytes from rank 0 to all used ranks. */
xd_status xd_world_broadcast(const xd_world *w, void *p, int64_t bytes, xd_err *e);

#endif
