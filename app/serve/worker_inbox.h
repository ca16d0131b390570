/* worker_inbox.h - the connection of a rank of the worker to the server: what came and is not done
 * yet, and who is to be told of a cancelled task */
#ifndef XD_SERVE_WORKER_INBOX_H
#define XD_SERVE_WORKER_INBOX_H

#include <pthread.h>
#include <stdatomic.h>

#include "serve/frame.h"
#include "xdit/xdit.h"

/* A task between its frame and its end. Those that wait for a turn are below the one that runs. */
typedef struct xd_running {
    struct xd_running *below;
    char               id[64];
    xd_engine         *engine;  /* NULL: it has not come to an engine yet                      */
    atomic_int         cancelled;
} xd_running;

/* The id of the task of a frame, which stands in its first argument; "": there is none. */
const char *xd_inbox_task_id(const xd_frame *f);

typedef struct xd_inbox_item {
    struct xd_inbox_item *next;
    xd_frame              frame;
    int                   cancelled;    /* a task that is not wanted any more                   */
} xd_inbox_item;

typedef struct xd_inbox {
    int             fd;         /* -1: this rank has no connection                             */
    pthread_mutex_t lock, sending;
    pthread_cond_t  came;
    xd_inbox_item  *first, **end;
    xd_running     *top;        /* the task that runs                                          */
    int             ended;      /* the server has gone, or has said so                         */
} xd_inbox;

void      xd_inbox_init(xd_inbox *in);
/* Connects to the server's socket and starts the thread that reads it. xd_inbox_beat starts the one
 * that tells the server that this process lives, once it has said who it is. */
xd_status xd_inbox_connect(xd_inbox *in, const char *path, xd_err *e);
void      xd_inbox_beat(xd_inbox *in);
/* The next frame of the server. wait 0: *f has no kind where none has come. Wakes up with no kind
 * when the server ends. *cancelled: its task is not wanted any more. Free it with xd_frame_free. */
void      xd_inbox_take(xd_inbox *in, int wait, xd_frame *f, int *cancelled);
/* Sends a frame; what cannot be sent is noticed by the thread that reads. */
xd_status xd_inbox_tell(xd_inbox *in, xd_frame_kind kind, const char *const *v, int n);
/* The task runs, on top of those that wait; xd_inbox_over takes it away again. */
void      xd_inbox_begin(xd_inbox *in, xd_running *r, const char *id, int cancelled);
void      xd_inbox_over(xd_inbox *in, xd_running *r);
/* The engine that computes it; NULL: none any more. */
void      xd_inbox_engine(xd_inbox *in, xd_running *r, xd_engine *g);
/* Cancels again: a request to cancel that came before the library began is forgotten by it. */
void      xd_inbox_again(xd_inbox *in, xd_running *r);

#endif
