/* schedule.h - determines the order in which queued tasks run.
 *
 * The task with the shortest remaining time runs first, with three rules for fairness. Waiting
 * improves a task's score; tasks of an owner (API key) that has used more time than other owners
 * are put back; a near deadline counts as little remaining time. All times are in seconds of all
 * ranks together. */
#ifndef XD_SERVE_SCHEDULE_H
#define XD_SERVE_SCHEDULE_H

#include "serve/task.h"

/* Seconds of waiting that improve a task's score by one second, so that a long task is not
 * postponed for ever. While a long task runs, the bonus that it got by waiting is used up, so that
 * short tasks can preempt the task. */
#define XD_SCHEDULE_WAIT 4.0
/* Half-life, in seconds, of an owner's used time: the used time counts half after this time. */
#define XD_SCHEDULE_HALF 600.0

typedef struct xd_schedule_owner { char *name; double used_s, updated_s; } xd_schedule_owner;

typedef struct xd_schedule {
    xd_schedule_owner *owner;   /* [nowners] owners with their used time                       */
    int                nowners;
    double             default_s;       /* seconds that are assumed for a task without a
                                           prediction */
} xd_schedule;

void   xd_schedule_free(xd_schedule *s);
/* Adds the seconds of a task that ended at `now` to its owner's used time. */
void   xd_schedule_charge(xd_schedule *s, const char *owner, double seconds, double now);
/* Returns the predicted remaining seconds of a task. */
double xd_schedule_remaining(const xd_schedule *s, const xd_task *t);
/* Returns the score of a task: tasks with a lower score run first. */
double xd_schedule_score(const xd_schedule *s, const xd_task *t, double now);
/* Returns nonzero if the task t should interrupt the task `running`. */
int    xd_schedule_preempts(const xd_schedule *s, const xd_task *t, const xd_task *running,
                            double now);
/* Returns nonzero if n equal tasks finish sooner when each of `ranks` ranks runs its own tasks
 * alone. `together`: seconds of one task on all ranks; `alone`: seconds of one task on one rank. */
int    xd_schedule_should_split(int n, int ranks, double together, double alone);

#endif
