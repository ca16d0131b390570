/* worker_process.h - the process that generates: started, fed with tasks, replaced when it dies
 *
 * A thread of its own decides which task goes first (schedule.h), sends tasks to `xdit worker` and
 * notes what that says of them. When the worker dies, the tasks that it had begun fail with a
 * sentence and the next worker is started at once; one that dies before it was ready is started
 * again after a growing pause. One that hangs is killed (worker_watch.h). */
#ifndef XD_SERVE_WORKER_PROCESS_H
#define XD_SERVE_WORKER_PROCESS_H

#include <signal.h>

#include "serve/predictor.h"
#include "serve/task.h"

typedef struct xd_worker_process xd_worker_process;

typedef struct xd_worker_state {
    int    ready;               /* a worker waits for tasks, or works                           */
    double silent;              /* seconds since it gave a sign of life                        */
    int    ranks;               /* 0: not known yet                                            */
    int    restarts;            /* workers that were started because one had died              */
    int    models;              /* that are open                                               */
    double resident;            /* bytes of rank 0                                             */
    double seconds;             /* that all tasks together have taken                           */
    double parts[4];            /* of these: text, load, denoise, decode                       */
} xd_worker_state;

typedef struct xd_worker_args {
    xd_tasks     *tasks;
    xd_predictor *predictor;
    const char   *program, *dir;        /* `program worker --connect ... args`; dir of the socket */
    int           nargs;
    char        **args;
    double        patience;     /* seconds without a sign of life, before a worker is killed   */
    double        start_s;      /* seconds until its ranks have met, besides; negative: any    */
} xd_worker_args;

xd_status xd_worker_start(xd_worker_process **w, const xd_worker_args *a, xd_err *e);
/* Waits for the first worker, or until *stop. XD_EIO: it ended before it was ready, and has said
 * why. */
xd_status xd_worker_await(xd_worker_process *w, const volatile sig_atomic_t *stop, xd_err *e);
void      xd_worker_look(xd_worker_process *w, xd_worker_state *state);
/* Lets running tasks end for `seconds`, or until *hurry is above 1, then cancels them; ends the
 * process, which is killed where it does not heed that. */
void      xd_worker_stop(xd_worker_process **w, double seconds,
                         const volatile sig_atomic_t *hurry);

#endif
