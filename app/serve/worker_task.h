/* worker_task.h - one task on the ranks of a worker, and what the server is told of it */
#ifndef XD_SERVE_WORKER_TASK_H
#define XD_SERVE_WORKER_TASK_H

#include "serve/worker_inbox.h"
#include "serve/worker_models.h"

typedef struct xd_task_run {
    xd_inbox         *inbox;
    xd_worker_models *models;
    int               speaks;   /* this rank tells the server                                  */
    int               omit_folders;     /* as in xd_request                                    */
    xd_opened        *alone;    /* this rank computes it by itself, with this model; NULL: all do */
    /* Between two steps, on all ranks; not called where `alone` is set. */
    xd_status       (*on_turn)(void *cookie, xd_err *e);
    void             *cookie;
    /* Of the task. */
    xd_running        running;
    xd_task_flags     flags;
    int               images, previews; /* that it makes; that were written so far               */
} xd_task_run;

/* Runs the task of a frame, on all ranks unless `alone`. A failure is told to the server. XD_ECOMM:
 * the ranks are out of step, and *e says why. */
xd_status xd_task_run_frame(xd_task_run *t, const xd_frame *frame, int cancelled, xd_err *e);
/* Tells the server of the memory of this process. */
void      xd_task_run_memory(const xd_task_run *t);

#endif
