/* predictor.h - predicts the duration of tasks. The predictions of the library's planner are
 * corrected by the measured durations of earlier tasks. */
#ifndef XD_SERVE_PREDICTOR_H
#define XD_SERVE_PREDICTOR_H

#include "cli/open_flags.h"
#include "serve/task.h"

typedef struct xd_predictor xd_predictor;

/* Creates a predictor. open: the options with which the worker opens models; borrowed. */
xd_status xd_predictor_open(xd_predictor **p, xd_tasks *tasks, const xd_open_flags *open,
                            xd_err *e);
/* Sets the number of ranks. The first call starts the thread that predicts queued tasks. */
void      xd_predictor_ranks(xd_predictor *p, int ranks);
/* Records the measured time of a task, to improve predictions. alone 1: one rank has run the task;
 * 0: all ranks. */
void      xd_predictor_learn(xd_predictor *p, const xd_task *task, int alone,
                             const xd_task_time *t);
/* Frees the predictor. Call this function after xd_tasks_shut_down, which ends the predictor's
 * thread. */
void      xd_predictor_close(xd_predictor **p);

#endif
