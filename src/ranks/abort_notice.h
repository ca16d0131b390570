/* abort_notice.h - a rank that has failed tells all others at once, so that they stop computing.
 *
 * Ranks agree on the outcome of a step when the step after it has ended, which may be minutes
 * later. An abort_notice is a message of its own: who hears it, between two ops, fails with the sentence of
 * the rank that rang, computes nothing more and still takes part in every message, so that the
 * agreement comes soon. In a request that fails every rank rings once and hears everybody once,
 * hence no abort_notice is left over for the next one. */
#ifndef XD_RANKS_ABORT_NOTICE_H
#define XD_RANKS_ABORT_NOTICE_H

#include "comm/comm.h"
#include "exec/exec.h"

typedef struct xd_abort_notice xd_abort_notice;

/* Over the ranks of c; with one there is none (*a = NULL, which all calls accept). Collective. */
xd_status xd_abort_notice_open(xd_abort_notice **a, xd_comm *c, xd_err *e);
void      xd_abort_notice_close(xd_abort_notice **a);
/* Tells the failure of this rank in `e`, unless it has been told or was heard of another. */
void      xd_abort_notice_send(xd_abort_notice *a, const xd_err *e);
/* Makes x fail when another rank has, and tells when x has failed. */
void      xd_abort_notice_watch(xd_abort_notice *a, xd_exec *x);
/* After the ranks have agreed on a failure: ready for the next request. Collective. */
xd_status xd_abort_notice_reset(xd_abort_notice *a, xd_err *e);

#endif
