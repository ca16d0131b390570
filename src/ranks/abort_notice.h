/* abort_notice.h - sends a message with which a failed rank makes all other ranks stop computing at
 * once.
 *
 * Without abort notices, ranks learn of another rank's failure only when they combine the status of
 * a step at the end of the next step, perhaps minutes later. An abort notice is a separate message,
 * for which ranks poll between two operations of a network. A rank that receives an abort notice
 * fails with the sender's error message. The receiver of an abort notice computes nothing more but
 * still takes part in every other message, so that all ranks soon reach the point where they
 * combine their status. In a failed request every rank sends one notice to every other rank and
 * receives one notice from every other rank, so that all notices are received before the next
 * request begins. */
#ifndef XD_RANKS_ABORT_NOTICE_H
#define XD_RANKS_ABORT_NOTICE_H

#include "comm/comm.h"
#include "exec/exec.h"

typedef struct xd_abort_notice xd_abort_notice;

/* Prepares to exchange abort notices between the ranks of c. If c has only one rank, sets *a to
 * NULL, which all functions accept. All ranks of c must call xd_abort_notice_open. */
xd_status xd_abort_notice_open(xd_abort_notice **a, xd_comm *c, xd_err *e);
void      xd_abort_notice_close(xd_abort_notice **a);
/* Sends this rank's failure `e` to the other ranks, at most once per request. xd_abort_notice_send
 * does nothing if this rank has already received a notice. */
void      xd_abort_notice_send(xd_abort_notice *a, const xd_err *e);
/* Connects an execution context to the abort notices: a received notice makes the context fail, and
 * the context's own failure sends a notice. */
void      xd_abort_notice_watch(xd_abort_notice *a, xd_exec *x);
/* After a failed request, prepares to exchange abort notices in the next request. Call
 * xd_abort_notice_reset after all ranks know of a failure; all ranks must call it. */
xd_status xd_abort_notice_reset(xd_abort_notice *a, xd_err *e);

#endif
