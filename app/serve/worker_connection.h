/* worker_connection.h - the connection of one rank of the worker to the server: received frames,
 * and the running tasks that a frame may cancel
 *
 * One thread receives frames, one sends heartbeats, and the main thread runs tasks. */
#ifndef XD_SERVE_WORKER_CONNECTION_H
#define XD_SERVE_WORKER_CONNECTION_H

#include <pthread.h>
#include <stdatomic.h>

#include "serve/frame.h"
#include "xdit/xdit.h"

/* A running task. Tasks that it interrupted are below it in a stack. */
typedef struct xd_running {
    struct xd_running *below;
    char               id[64];
    xd_engine         *engine;  /* the engine that generates; NULL: none yet                   */
    atomic_int         cancelled;
} xd_running;

/* Returns the task id of a frame XD_FRAME_RUN, from its first argument "--id=ID"; "": none. */
const char *xd_frame_task_id(const xd_frame *f);

typedef struct xd_received_frame {
    struct xd_received_frame *next;
    xd_frame                  frame;
    int                       cancelled;        /* XD_FRAME_RUN: its task was cancelled         */
} xd_received_frame;

typedef struct xd_connection {
    int             fd;         /* -1: this rank is not connected                              */
    pthread_mutex_t lock;       /* of the queue and the stack                                  */
    pthread_mutex_t sending;
    pthread_cond_t  arrived;    /* signalled for each frame                                    */
    xd_received_frame *first, **end;    /* queue of received frames                             */
    xd_running     *top;        /* stack of running tasks                                      */
    int             ended;      /* the server has disconnected or sent XD_FRAME_QUIT            */
} xd_connection;

void      xd_connection_init(xd_connection *c);
/* Connects to the server's socket and starts the thread that receives frames. */
xd_status xd_connection_open(xd_connection *c, const char *path, xd_err *e);
/* Starts the thread that sends XD_FRAME_ALIVE each second. Call it after XD_FRAME_READY. */
void      xd_connection_start_heartbeat(xd_connection *c);
/* Returns the next frame, which xd_frame_free frees. Without a frame its kind is 0: at once if
 * `wait` is 0, else only when the server has disconnected. *cancelled: its task was cancelled. */
void      xd_connection_next_frame(xd_connection *c, int wait, xd_frame *f, int *cancelled);
/* Sends a frame; does nothing without a connection. Any thread. */
xd_status xd_connection_send(xd_connection *c, xd_frame_kind kind, const char *const *v, int n);
/* Pushes a task on the stack of running tasks; pop removes it. */
void      xd_connection_push_task(xd_connection *c, xd_running *r, const char *id, int cancelled);
void      xd_connection_pop_task(xd_connection *c, xd_running *r);
/* Sets the engine that a cancel frame stops; NULL: none. */
void      xd_connection_set_engine(xd_connection *c, xd_running *r, xd_engine *g);
/* Calls xd_cancel again for a cancelled task: the engine ignores a call before xd_generate. */
void      xd_connection_repeat_cancel(xd_connection *c, xd_running *r);

#endif
