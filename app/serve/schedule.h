/* schedule.h - determines the order in which queued tasks run.
 *
 * The task with the shortest remaining time runs first, but three rules keep the order fair. First,
 * the time that a task waits improves its score. Second, tasks of an owner (API key) whose earlier
 * tasks took more time than those of other owners get a worse score. Third, a task with a near
 * deadline is treated as if it had little remaining time. All times in this module are in seconds
 * of all ranks together: if one of n ranks runs a task alone for a second, the second counts
 * 1/n. */
#ifndef XD_SERVE_SCHEDULE_H
#define XD_SERVE_SCHEDULE_H

#include "serve/task.h"

/* Number of seconds of waiting that improve a task's score as much as one second less of remaining
 * time. Waiting improves the score, so that a long task is not postponed for ever. A long task that
 * was started because it waited long loses this advantage while it runs, so that short tasks can
 * interrupt it again. */
#define XD_SCHEDULE_WAIT 4.0
/* Half-life, in seconds, of the time that the tasks of an owner (API key) have used: after
 * XD_SCHEDULE_HALF seconds, the used time counts half. */
#define XD_SCHEDULE_HALF 600.0

typedef struct xd_schedule_owner {
    char  *name;
    double used_s, updated_s;
} xd_schedule_owner;

typedef struct xd_schedule {
    xd_schedule_owner *owner; /* [nowners] owners with their used time */
    int                nowners;
    /* Duration that is assumed for a task without a prediction, in seconds. */
    double             default_s;
} xd_schedule;

void   xd_schedule_free(xd_schedule *s);
/* Adds `seconds`, the duration of a task that ended at `now`, to the used time of the task's
 * owner. */
void   xd_schedule_charge(xd_schedule *s, const char *owner, double seconds, double now);
/* Returns the predicted remaining seconds of a task. */
double xd_schedule_remaining(const xd_schedule *s, const xd_task *t);
/* Returns the score of a task: tasks with a lower score run first. */
double xd_schedule_score(const xd_schedule *s, const xd_task *t, double now);
/* Returns nonzero if the task t should interrupt the task `running`. */
int    xd_schedule_preempts(const xd_schedule *s, const xd_task *t, const xd_task *running,
                            double now);
/* Compares two ways to run n equal tasks. Returns nonzero if the tasks finish sooner when each of
 * the `ranks` ranks runs some of the tasks alone than when all ranks run each task together.
 * `together` is the duration in seconds of one task on all ranks; `alone` is the duration of one
 * task on one rank. */
int    xd_schedule_should_split(int n, int ranks, double together, double alone);

#endif
