/* worker_process.h - starts the worker process, sends it tasks, and restarts it after a crash.
 *
 * A thread chooses the next task (worker_dispatch.h), sends the task to `xdit worker`, and records
 * the progress and results that the worker reports. When the worker dies, its started tasks fail
 * and a new worker is started at once. A worker that dies before it is ready is restarted after a
 * growing pause. A worker that hangs is killed (worker_watch.h). */
#ifndef XD_SERVE_WORKER_PROCESS_H
#define XD_SERVE_WORKER_PROCESS_H

#include <signal.h>

#include "serve/predictor.h"
#include "serve/task.h"

typedef struct xd_worker_process xd_worker_process;

typedef struct xd_worker_state {
    int    ready;    /* 1: rank 0 of the worker is connected; 0: the worker is starting */
    double silent;   /* longest silence of the worker in seconds (worker_watch.h) */
    int    ranks;    /* number of ranks of the worker; 0: not known yet */
    int    restarts; /* number of restarts after a crash */
    int    models;   /* number of open models */
    double resident; /* resident bytes of rank 0 */
    double seconds;  /* total seconds of all tasks */
    double parts[4]; /* total seconds of all tasks for text encoding, loading, denoising
                                   and decoding */
} xd_worker_state;

typedef struct xd_worker_args {
    xd_tasks     *tasks;
    xd_predictor *predictor;
    const char   *program, *dir; /* the program, which is run as `program worker --connect
                                           SOCKET args`; directory of the socket */
    int           nargs;
    char        **args;      /* [nargs] arguments of the worker */
    double        timeout_s; /* seconds of silence after which the worker is killed */
    /* all ranks must connect to the server within timeout_s + start_s seconds; negative: no time
     * limit */
    double        start_s;
} xd_worker_args;

/* Starts the thread that sends tasks, and the first worker. The record `a` and its strings must
 * stay valid until xd_worker_stop. */
xd_status xd_worker_start(xd_worker_process **w, const xd_worker_args *a, xd_err *e);
/* Waits until the first worker is ready, or *stop is set. XD_EIO: the worker ended before it was
 * ready, and has printed the reason. */
xd_status xd_worker_await(xd_worker_process *w, const volatile sig_atomic_t *stop, xd_err *e);
void      xd_worker_get_state(xd_worker_process *w, xd_worker_state *state);
/* Waits for running tasks up to `seconds`, or until *hurry (the number of termination signals)
 * exceeds 1. Then cancels the tasks that still run, stops the worker, and kills the worker if it
 * does not exit. */
void      xd_worker_stop(xd_worker_process **w, double seconds, const volatile sig_atomic_t *hurry);

#endif
