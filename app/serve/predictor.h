/* predictor.h - how long tasks take: the planner's word, corrected by tasks that have ended */
#ifndef XD_SERVE_PREDICTOR_H
#define XD_SERVE_PREDICTOR_H

#include "cli/open_flags.h"
#include "serve/task.h"

typedef struct xd_predictor xd_predictor;

/* Starts a thread that predicts tasks as they come. `open` (borrowed) is how the worker opens
 * models, on so many ranks; 0: they are not known yet. */
xd_status xd_predictor_start(xd_predictor **p, xd_tasks *tasks, const xd_open_flags *open,
                             xd_err *e);
/* From now on there are so many ranks. */
void      xd_predictor_ranks(xd_predictor *p, int ranks);
/* A task has taken so many seconds, of all ranks together or of one `alone`. */
void      xd_predictor_learn(xd_predictor *p, const xd_task *task, int alone, double seconds);
void      xd_predictor_stop(xd_predictor **p);

#endif
