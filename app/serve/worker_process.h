/* worker_process.h - the process that generates: started, fed with tasks, replaced when it dies
 *
 * A thread of its own decides which task goes first (schedule.h), sends tasks to `xdit worker` and
 * notes what that says of them. When the worker dies, the tasks that it had begun fail with a
 * sentence and the next worker is started at once; one that dies before it was ready is started
 * again after a growing pause. */
#ifndef XD_SERVE_WORKER_PROCESS_H
#define XD_SERVE_WORKER_PROCESS_H

#include "serve/predictor.h"
#include "serve/task.h"

typedef struct xd_worker_process xd_worker_process;

typedef struct xd_worker_state {
    int    ready;               /* a worker waits for tasks, or works                           */
    int    ranks;               /* 0: not known yet                                            */
    int    restarts;            /* workers that were started because one had died              */
    int    models;              /* that are open                                               */
    double resident;            /* bytes of rank 0                                             */
    double seconds;             /* that all tasks together have taken                           */
    double parts[4];            /* of these: text, load, denoise, decode                       */
} xd_worker_state;

/* Starts `program worker --connect ... args`. `dir` gets the socket. */
xd_status xd_worker_start(xd_worker_process **w, xd_tasks *tasks, xd_predictor *predictor,
                          const char *program, const char *dir, int nargs, char **args, xd_err *e);
/* Waits for the first worker. XD_EIO: it ended before it was ready, and has said why. */
xd_status xd_worker_await(xd_worker_process *w, xd_err *e);
void      xd_worker_look(xd_worker_process *w, xd_worker_state *state);
/* Lets running tasks end for `seconds`, then cancels them; ends the process. */
void      xd_worker_stop(xd_worker_process **w, double seconds);

#endif
