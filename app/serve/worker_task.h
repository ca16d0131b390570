/* worker_task.h - runs one task on the ranks of a worker and reports to the server */
#ifndef XD_SERVE_WORKER_TASK_H
#define XD_SERVE_WORKER_TASK_H

#include "serve/worker_connection.h"
#include "serve/worker_models.h"

typedef struct xd_task_run {
    xd_connection    *connection;
    xd_worker_models *models;
    int               reports;      /* 1: this rank reports to the server */
    int               omit_folders; /* 1: results do not contain folder names; see xd_request */
    /* open model with which this rank runs the task alone while ranks are split; NULL: all ranks
     * run the task together */
    xd_opened        *alone;
    /* Callback on all ranks that is called when the task lets other tasks run (on_turn of
     * xd_request). The callback is not called if `alone` is set. */
    xd_status         (*on_turn)(void *cookie, xd_err *e);
    void             *cookie;
    /* xd_task_run_frame sets the following fields. */
    xd_running        running;
    xd_task_flags     flags;
    /* number of images to generate; number of previews written so far */
    int               images, previews;
} xd_task_run;

/* Runs the task that a frame of the kind XD_FRAME_RUN describes, and reports the task's result or
 * failure to the server. All ranks run the task together, unless `alone` is set. XD_ECOMM: the
 * ranks can no longer work together, because their messages do not match; *e has the reason. */
xd_status xd_task_run_frame(xd_task_run *t, const xd_frame *frame, int cancelled, xd_err *e);

#endif
