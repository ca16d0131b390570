/* stalls.h - notices ranks that stand still, from the process states and the steps of the roster.
 *
 * A rank stands still if its process is stopped (SIGSTOP, a debugger, a frozen container), or if no
 * rank ends a step: ranks wait for each other in every step, so one of them holds up all. */
#ifndef XD_LAUNCH_STALLS_H
#define XD_LAUNCH_STALLS_H

#include "launch/roster.h"

typedef struct xd_stalls {
    double timeout;   /* seconds that a rank may stand still; 0: for ever */
    double checked_s; /* time of the last check */
    double sampled_s; /* time of the step after which the ranks' processor time was read */
} xd_stalls;

/* Returns the entry of a rank that has stood still for longer than the timeout, and writes a
 * sentence about it to `why`; NULL: there is none. Steps count as standing still only if they also
 * take five times as long as the slowest step so far. Call xd_stalls_find after all events that
 * have arrived were read. */
const xd_member *xd_stalls_find(xd_stalls *s, xd_roster *r, char *why, size_t size);

#endif
