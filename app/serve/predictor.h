/* predictor.h - how long tasks take: the planner's word, corrected by tasks that have ended */
#ifndef XD_SERVE_PREDICTOR_H
#define XD_SERVE_PREDICTOR_H

#include "cli/open_flags.h"
#include "serve/task.h"

typedef struct xd_predictor xd_predictor;

/* `open` (borrowed) is how the worker opens models. */
xd_status xd_predictor_open(xd_predictor **p, xd_tasks *tasks, const xd_open_flags *open,
                            xd_err *e);
/* There are so many ranks: from the first call on a thread predicts tasks as they come. */
void      xd_predictor_ranks(xd_predictor *p, int ranks);
/* A task has taken this time: `alone` 1: one rank's, else that of all ranks together. */
void      xd_predictor_learn(xd_predictor *p, const xd_task *task, int alone,
                             const xd_task_time *t);
/* The tasks have ended (xd_tasks_end). */
void      xd_predictor_close(xd_predictor **p);

#endif
