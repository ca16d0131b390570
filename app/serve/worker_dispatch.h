/* worker_dispatch.h - chooses the next task for the worker, and the ranks that run it
 *
 * Usually all ranks run one task. A queued task may preempt it: the worker runs the new task
 * between two steps of the running one. If several tasks of one model are queued and this is
 * faster, the ranks are split: each runs tasks of its own. When these are done, the ranks are
 * joined again. Only the thread of worker_process.c calls these functions. */
#ifndef XD_SERVE_WORKER_DISPATCH_H
#define XD_SERVE_WORKER_DISPATCH_H

#include "serve/frame.h"
#include "serve/schedule.h"

/* Maxima: ranks, running tasks, remembered models whose ranks cannot be split, bytes of a name. */
enum { XD_WORKER_RANKS = 1024, XD_WORKER_RUNS = XD_WORKER_RANKS + 8, XD_WORKER_MODELS = 16,
       XD_WORKER_NAME = 128 };

typedef struct xd_worker_run {  /* a task that was sent to the worker                          */
    xd_task *task;              /* the run has a reference                                     */
    int      rank;              /* the split rank that runs it; -1: all ranks                  */
    int      started;           /* the worker has sent a frame about it                        */
    int      cancelled;         /* XD_FRAME_CANCEL was sent                                    */
    double   cancel_wait_s, cancel_limit_s;     /* seconds since then; see worker_watch.c       */
} xd_worker_run;

typedef enum xd_worker_mode {
    XD_WORKER_JOINED,           /* all ranks run one task                                      */
    XD_WORKER_SPLITTING,        /* XD_FRAME_SPLIT was sent; not all ranks have replied          */
    XD_WORKER_SPLIT             /* each rank runs tasks of its own                             */
} xd_worker_mode;

typedef struct xd_dispatch {
    xd_tasks      *tasks;
    int            fd[XD_WORKER_RANKS];     /* connection of each rank; -1: none               */
    int            ranks, connected;        /* ranks of the worker, 0: unknown; connected ones   */
    xd_worker_run  runs[XD_WORKER_RUNS];    /* [nruns], in the order in which they were sent     */
    int            nruns;
    xd_worker_mode mode;
    int            split_replies;           /* number of replies to XD_FRAME_SPLIT             */
    char           can_split[XD_WORKER_RANKS];      /* 1: the rank can run tasks of its own     */
    char           split_model[XD_WORKER_NAME];     /* model of all tasks of split ranks         */
    double         split_shortest_s;        /* seconds on one rank of the shortest of these     */
    char           unsplittable[XD_WORKER_MODELS][XD_WORKER_NAME];      /* [nunsplittable] models */
    int            nunsplittable;
    xd_schedule    schedule;
} xd_dispatch;

/* Returns the run of the task with this id; NULL: the worker does not have it. */
xd_worker_run *xd_dispatch_find(xd_dispatch *d, const char *id);
/* Removes a run and releases its task. */
void           xd_dispatch_remove(xd_dispatch *d, xd_worker_run *r);
/* Handles a rank's reply to XD_FRAME_SPLIT. */
void           xd_dispatch_split_reply(xd_dispatch *d, int rank, const xd_frame *f);
/* Sends XD_FRAME_CANCEL for running tasks that were cancelled or have passed their deadline. */
void           xd_dispatch_cancel(xd_dispatch *d);
/* Sends the next tasks, if the worker can accept some. */
void           xd_dispatch_next(xd_dispatch *d);

#endif
