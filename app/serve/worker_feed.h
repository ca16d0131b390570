/* worker_feed.h - which task the worker gets next, and which of its ranks
 *
 * All ranks work on one task, and one that comes meanwhile may go before its rest: the worker takes
 * it between two steps. Where more tasks wait than one, and it is faster, each rank runs tasks of a
 * model by itself. One thread calls these functions; worker_process.c has it. */
#ifndef XD_SERVE_WORKER_FEED_H
#define XD_SERVE_WORKER_FEED_H

#include "serve/frame.h"
#include "serve/schedule.h"

/* XD_WORKER_MODELS: whose ranks cannot work by themselves, as far as is remembered. */
enum { XD_WORKER_RANKS = 1024, XD_WORKER_RUNS = XD_WORKER_RANKS + 8, XD_WORKER_MODELS = 16,
       XD_WORKER_NAME = 128 };

typedef struct xd_worker_run {  /* a task that the worker has                                  */
    xd_task *task;              /* held                                                        */
    int      rank;              /* that runs it by itself; -1: all ranks                       */
    int      begun, cancelled;  /* the worker has said so; it was told so                      */
    double   waited, patience;  /* of worker_watch.h: since it was told so, and how long it may  */
} xd_worker_run;

/* How the ranks work: together; each by itself, once all have said that they can. */
typedef enum xd_worker_mode {
    XD_WORKER_TOGETHER, XD_WORKER_ASKED, XD_WORKER_APART
} xd_worker_mode;

typedef struct xd_worker_feed {
    xd_tasks      *tasks;
    int            fd[XD_WORKER_RANKS];     /* connections of the ranks; -1: none              */
    int            ranks, connected;        /* 0: not known yet                                */
    xd_worker_run  runs[XD_WORKER_RUNS];    /* of all ranks, in the order in which they were sent */
    int            nruns;
    xd_worker_mode mode;
    int            answers;     /* of XD_FRAME_APART                                           */
    char           able[XD_WORKER_RANKS];   /* the rank can work by itself                     */
    char           apart_model[XD_WORKER_NAME];     /* of all tasks that ranks run by themselves */
    double         apart_shortest;  /* seconds alone of the shortest of them, as they began     */
    char           not_apart[XD_WORKER_MODELS][XD_WORKER_NAME];     /* models whose ranks cannot */
    int            nnot_apart;
    xd_schedule    schedule;
} xd_worker_feed;

/* The task of this id that the worker has; NULL: it has none. */
xd_worker_run *xd_worker_feed_find(xd_worker_feed *feed, const char *id);
void           xd_worker_feed_remove(xd_worker_feed *feed, xd_worker_run *r);
/* A rank answers with a frame XD_FRAME_APART whether it can work by itself. */
void           xd_worker_feed_apart(xd_worker_feed *feed, int rank, const xd_frame *f);
/* Tells the worker of its tasks that are not wanted any more, or come too late. */
void           xd_worker_feed_cancel(xd_worker_feed *feed);
/* Sends what it is to do next; nothing where it has enough to do. */
void           xd_worker_feed_next(xd_worker_feed *feed);

#endif
