/* schedule.h - which task goes first
 *
 * Shortest remaining time first, with what keeps that fair: a task gains while it waits, an owner
 * whose tasks have taken more than those of others falls behind, a deadline that comes near counts
 * as little time left. The numbers are seconds of all ranks. */
#ifndef XD_SERVE_SCHEDULE_H
#define XD_SERVE_SCHEDULE_H

#include "serve/task.h"

/* A task gains a second for so many that it waits: a long one is not put off for ever. It uses up
 * what it has gained while it runs, so that short ones go on between its steps. */
#define XD_SCHEDULE_WAIT 4.0
/* What an owner has taken counts half after so many seconds. */
#define XD_SCHEDULE_HALF 600.0

typedef struct xd_schedule_owner { char *name; double taken, since; } xd_schedule_owner;

typedef struct xd_schedule {
    xd_schedule_owner *owner;   /* [nowners]                                                   */
    int                nowners;
    double             usual;   /* seconds of a task of which nothing is known                  */
} xd_schedule;

void   xd_schedule_free(xd_schedule *s);
/* A task of this owner has taken so many seconds, until `now`. */
void   xd_schedule_taken(xd_schedule *s, const char *owner, double seconds, double now);
/* Seconds that a task still takes. */
double xd_schedule_left(const xd_schedule *s, const xd_task *t);
/* Tasks with a lower score go first. */
double xd_schedule_score(const xd_schedule *s, const xd_task *t, double now);
/* Is it worth to let the task `t` go before the rest of `running`? */
int    xd_schedule_passes(const xd_schedule *s, const xd_task *t, const xd_task *running,
                          double now);
/* Does it pay that each of `ranks` ranks runs tasks by itself, of which there are n like this one?
 * `together` and `alone`: seconds of one by all ranks and by one. */
int    xd_schedule_apart(int n, int ranks, double together, double alone);

#endif
