/* predictor.h - predicts the duration of tasks. The planner of the library predicts the durations,
 * and the measured durations of earlier tasks are used to correct the predictions. */
#ifndef XD_SERVE_PREDICTOR_H
#define XD_SERVE_PREDICTOR_H

#include "cli/open_flags.h"
#include "serve/task.h"

typedef struct xd_predictor xd_predictor;

/* Creates a predictor. The argument `open` has the options with which the worker opens models; the
 * predictor uses it until xd_predictor_close. */
xd_status xd_predictor_open(xd_predictor **p, xd_tasks *tasks, const xd_open_flags *open,
                            xd_err *e);
/* Sets the number of ranks of the worker. The first call of xd_predictor_ranks starts the thread
 * that predicts queued tasks. */
void      xd_predictor_ranks(xd_predictor *p, int ranks);
/* Records the measured time of a task, to improve later predictions. `alone` is 1 if a single rank
 * ran the task, and 0 if all ranks ran it. */
void xd_predictor_learn(xd_predictor *p, const xd_task *task, int alone, const xd_task_time *t);
/* Frees the predictor. xd_tasks_shut_down, which makes the predictor's thread end, must be called
 * before xd_predictor_close. */
void xd_predictor_close(xd_predictor **p);

#endif
