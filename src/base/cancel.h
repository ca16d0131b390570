/* cancel.h - a request that is to end before its time, and why */
#ifndef XD_BASE_CANCEL_H
#define XD_BASE_CANCEL_H

#include <stdatomic.h>

#include "base/err.h"

/* Start with {0}. Any thread writes it, the one that computes reads it. */
typedef struct xd_canceller {
    atomic_int state;           /* 0: the request goes on                                      */
    char       why[sizeof((xd_err *)0)->msg];
} xd_canceller;

/* Prepares for the next request. */
void      xd_cancel_reset(xd_canceller *c);
/* The first call counts. why: the message of the failure; NULL: "cancelled". Async-signal-safe with
 * NULL. */
void      xd_cancel_set(xd_canceller *c, const char *why);
/* Nonzero: the request is to end. c may be NULL. */
int       xd_cancel_asked(const xd_canceller *c);
/* XD_ECANCELLED with the message where the request is to end. c may be NULL. */
xd_status xd_cancel_check(const xd_canceller *c, xd_err *e);

#endif
