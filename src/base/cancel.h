/* cancel.h - cancels a running request by a flag that the computing thread polls, with a reason for
 * the error message. */
#ifndef XD_BASE_CANCEL_H
#define XD_BASE_CANCEL_H

#include <stdatomic.h>

#include "base/err.h"

/* Cancellation flag of a request; initialize it with {0}. Any thread may set the flag, and the
 * computing thread polls it. */
typedef struct xd_canceller {
    atomic_int state; /* 0: the request is not cancelled */
    char       why[sizeof((xd_err *)0)->msg];
} xd_canceller;

/* Clears the cancellation flag for the next request. */
void      xd_cancel_reset(xd_canceller *c);
/* Cancels the request; only the first call has an effect. why: the error message; NULL:
 * "cancelled". xd_cancel_set is async-signal-safe if `why` is NULL. */
void      xd_cancel_set(xd_canceller *c, const char *why);
/* Returns nonzero if the request was cancelled. c may be NULL. */
int       xd_cancel_requested(const xd_canceller *c);
/* Returns XD_ECANCELLED with the message if the request was cancelled. c may be NULL. */
xd_status xd_cancel_check(const xd_canceller *c, xd_err *e);

#endif
