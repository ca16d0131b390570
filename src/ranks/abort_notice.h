/* abort_notice.h - a message with which a failed rank makes all other ranks stop computing at once
 *
 * Without it, ranks learn of a failure when they agree on the outcome of a step, at the end of the
 * next step, perhaps minutes later. An abort notice is a separate message. A rank that receives it
 * (it polls between ops) fails with the sender's error message, computes nothing more and still
 * takes part in every message, so that the ranks soon agree. In a failed request every rank sends
 * one notice and receives one from every other rank, so that none remains for the next request. */
#ifndef XD_RANKS_ABORT_NOTICE_H
#define XD_RANKS_ABORT_NOTICE_H

#include "comm/comm.h"
#include "exec/exec.h"

typedef struct xd_abort_notice xd_abort_notice;

/* Opens notices between the ranks of c. *a is NULL if there is only one rank; all functions accept
 * NULL. Collective. */
xd_status xd_abort_notice_open(xd_abort_notice **a, xd_comm *c, xd_err *e);
void      xd_abort_notice_close(xd_abort_notice **a);
/* Sends this rank's failure `e` to the others, once; does nothing if this rank has already
 * received a notice. */
void      xd_abort_notice_send(xd_abort_notice *a, const xd_err *e);
/* Connects x: it fails when a notice arrives, and a notice is sent when it fails. */
void      xd_abort_notice_watch(xd_abort_notice *a, xd_exec *x);
/* Call after the ranks have agreed on a failure: prepares for the next request. Collective. */
xd_status xd_abort_notice_reset(xd_abort_notice *a, xd_err *e);

#endif
