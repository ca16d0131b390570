/* cancel.c - cancels a run. The reason of a cancellation is written before the flag is set, so that
 * a thread that reads the flag sees the complete reason. */
#include "base/cancel.h"

#include <stdio.h>

enum { GOES_ON, IS_WRITTEN, CANCELLED, HAS_REASON };

void xd_cancel_reset(xd_canceller *c)
{
    atomic_store(&c->state, GOES_ON);
}

void xd_cancel_set(xd_canceller *c, const char *why)
{
    int none = GOES_ON;
    if (!atomic_compare_exchange_strong(&c->state, &none, why ? IS_WRITTEN : CANCELLED) || !why)
        return;
    snprintf(c->why, sizeof c->why, "%s", why);
    atomic_store(&c->state, HAS_REASON);
}

int xd_cancel_requested(const xd_canceller *c)
{
    return c && atomic_load(&c->state) >= CANCELLED;
}

xd_status xd_cancel_check(const xd_canceller *c, xd_err *e)
{
    if (!xd_cancel_requested(c))
        return XD_OK;
    return xd_fail(e, XD_ECANCELLED, "%s",
                   atomic_load(&c->state) == HAS_REASON ? c->why : "cancelled");
}
