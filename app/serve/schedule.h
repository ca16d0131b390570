/* schedule.h - the order of queued tasks
 *
 * Shortest remaining time first, with rules for fairness: waiting improves a task's score, an owner
 * (API key) that has used more time than others is put back, and a near deadline counts as little
 * remaining time. All times are seconds of all ranks together. */
#ifndef XD_SERVE_SCHEDULE_H
#define XD_SERVE_SCHEDULE_H

#include "serve/task.h"

/* Seconds of waiting that improve a task's score by one second, so that a long task is not
 * postponed for ever. While it runs, its bonus is used up, so that short tasks can preempt it. */
#define XD_SCHEDULE_WAIT 4.0
/* Half-life, in seconds, of the time that an owner has used. */
#define XD_SCHEDULE_HALF 600.0

typedef struct xd_schedule_owner { char *name; double used_s, updated_s; } xd_schedule_owner;

typedef struct xd_schedule {
    xd_schedule_owner *owner;   /* [nowners]                                                   */
    int                nowners;
    double             default_s;       /* seconds of a task without a prediction              */
} xd_schedule;

void   xd_schedule_free(xd_schedule *s);
/* Charges an owner for a task that took this time and ended at `now`. */
void   xd_schedule_charge(xd_schedule *s, const char *owner, double seconds, double now);
/* Returns the predicted remaining seconds of a task. */
double xd_schedule_remaining(const xd_schedule *s, const xd_task *t);
/* Returns the score of a task: tasks with a lower score run first. */
double xd_schedule_score(const xd_schedule *s, const xd_task *t, double now);
/* Nonzero if the task t should interrupt `running`. */
int    xd_schedule_preempts(const xd_schedule *s, const xd_task *t, const xd_task *running,
                            double now);
/* Nonzero if n such tasks finish sooner when each of `ranks` ranks runs tasks of its own.
 * `together` and `alone`: seconds of one task on all ranks and on one. */
int    xd_schedule_should_split(int n, int ranks, double together, double alone);

#endif
