/* worker_dispatch.h - chooses the next task for the worker, and the ranks that run the task.
 *
 * Usually all ranks of the worker run one task together. A queued task may preempt the running
 * task: the worker runs the new task between two steps of the running task. If several tasks of one
 * model are queued, the ranks may be split, when this is faster: each rank then runs its own tasks
 * alone. When the tasks of split ranks are done, all ranks work together on one task again. Only
 * the thread of worker_process.c that sends tasks calls the functions of this header. */
#ifndef XD_SERVE_WORKER_DISPATCH_H
#define XD_SERVE_WORKER_DISPATCH_H

#include "serve/frame.h"
#include "serve/schedule.h"

/* XD_WORKER_RANKS is the maximum number of ranks of a worker. XD_WORKER_RUNS is the maximum number
 * of tasks that the worker has at a time. XD_WORKER_MODELS is the number of models for which the
 * server remembers that ranks cannot be split. XD_WORKER_NAME is the maximum size of a model's name
 * in bytes. */
enum {
    XD_WORKER_RANKS = 1024,
    XD_WORKER_RUNS = XD_WORKER_RANKS + 8,
    XD_WORKER_MODELS = 16,
    XD_WORKER_NAME = 128
};

typedef struct xd_worker_run { /* state of a task that was sent to the worker */
    /* the task that was sent; this record holds a reference to the task */
    xd_task *task;
    int      rank;      /* the split rank that runs the task; -1: all ranks */
    int      started;   /* 1: the worker has sent a frame about this task */
    int      cancelled; /* 1: XD_FRAME_CANCEL was sent for this task */
    /* seconds since the task was cancelled; number of seconds after which a cancelled task counts
     * as hanging (worker_watch.c) */
    double   cancel_wait_s, cancel_limit_s;
} xd_worker_run;

typedef enum xd_worker_mode {
    XD_WORKER_JOINED,    /* all ranks run one task together */
    XD_WORKER_SPLITTING, /* the server waits until all ranks have replied to XD_FRAME_SPLIT */
    XD_WORKER_SPLIT      /* each rank runs its own tasks alone */
} xd_worker_mode;

typedef struct xd_dispatch {
    xd_tasks      *tasks;
    /* socket of each rank's connection to the server; -1: the rank is not connected */
    int            fd[XD_WORKER_RANKS];
    int            ranks, connected;     /* number of ranks of the worker, 0: unknown; number of
                                               connected ranks */
    xd_worker_run  runs[XD_WORKER_RUNS]; /* [nruns] tasks that the worker has received and not
                                               ended, in the order of sending */
    int            nruns;
    xd_worker_mode mode;
    int            split_replies;               /* number of replies to XD_FRAME_SPLIT */
    char           can_split[XD_WORKER_RANKS];  /* 1 for each rank that has replied that it can
                                                       run tasks alone */
    char           split_model[XD_WORKER_NAME]; /* model of all tasks that split ranks run */
    double         split_shortest_s;            /* predicted seconds of the shortest task of split
                                               ranks, on one rank */
    /* [nunsplittable] names of models for which the ranks cannot be split. */
    char           unsplittable[XD_WORKER_MODELS][XD_WORKER_NAME];
    int            nunsplittable;
    xd_schedule    schedule;
} xd_dispatch;

/* Returns the entry of d->runs for the task with this id; NULL: the worker does not have such a
 * task. */
xd_worker_run *xd_dispatch_find(xd_dispatch *d, const char *id);
/* Removes an entry from d->runs and releases the entry's task. */
void           xd_dispatch_remove(xd_dispatch *d, xd_worker_run *r);
/* Handles a rank's reply to XD_FRAME_SPLIT. */
void           xd_dispatch_split_reply(xd_dispatch *d, int rank, const xd_frame *f);
/* Sends XD_FRAME_CANCEL for running tasks that were cancelled or have passed their deadline. */
void           xd_dispatch_cancel(xd_dispatch *d);
/* Sends queued tasks to the worker, if the worker can accept further tasks. */
void           xd_dispatch_next(xd_dispatch *d);

#endif
