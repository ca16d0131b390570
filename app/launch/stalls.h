/* stalls.h - detects ranks that make no progress, from process states and from the denoising steps
 * that ranks report to the roster.
 *
 * A rank makes no progress if its process is stopped (SIGSTOP, a debugger, a frozen container), or
 * if no rank ends a denoising step: ranks wait for each other in every step, so one rank delays all
 * ranks. */
#ifndef XD_LAUNCH_STALLS_H
#define XD_LAUNCH_STALLS_H

#include "launch/roster.h"

typedef struct xd_stalls {
    double timeout;   /* seconds for which a rank may make no progress; 0: no limit */
    double checked_s; /* time of the last check of all ranks */
    /* end time of the step after which the processor times of all ranks were read */
    double sampled_s;
} xd_stalls;

/* Returns the entry of a rank that has made no progress for longer than the timeout, and writes a
 * sentence about the rank to `why`; NULL: all ranks make progress. A long denoising step counts as
 * lack of progress only if it exceeds the timeout and takes five times as long as the slowest step
 * so far. xd_stalls_find must be called after all arrived events of ranks were read
 * (xd_roster_read). */
const xd_member *xd_stalls_find(xd_stalls *s, xd_roster *r, char *why, size_t size);

#endif
