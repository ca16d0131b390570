/* worker_connection.h - connects one rank of the worker to the server. The connection has a queue
 * of received frames and a stack of running tasks. A frame from the server may cancel a running
 * task.
 *
 * One thread receives frames, a second thread sends heartbeats, and the main thread runs tasks. */
#ifndef XD_SERVE_WORKER_CONNECTION_H
#define XD_SERVE_WORKER_CONNECTION_H

#include <pthread.h>
#include <stdatomic.h>

#include "serve/frame.h"
#include "xdit/xdit.h"

/* A running task. In the stack of running tasks, the tasks that a task has interrupted are below
 * this task. */
typedef struct xd_running {
    struct xd_running *below;
    char               id[64];
    /* engine that generates the task's images; NULL: the task has no engine yet */
    xd_engine         *engine;
    atomic_int         cancelled;
} xd_running;

/* Returns the id of the task in a frame of the kind XD_FRAME_RUN. The first argument in the frame
 * is "--id=ID"; if that argument is missing, returns an empty string. */
const char *xd_frame_task_id(const xd_frame *f);

typedef struct xd_received_frame {
    struct xd_received_frame *next;
    xd_frame                  frame;
    int                       cancelled; /* 1: the frame is XD_FRAME_RUN and its task was
                                                   cancelled */
} xd_received_frame;

typedef struct xd_connection {
    /* socket of the connection to the server; -1: this rank is not connected */
    int                fd;
    pthread_mutex_t    lock; /* mutex that protects the queue of frames and the stack of tasks */
    pthread_mutex_t    sending;
    /* condition variable that is signalled for each received frame */
    pthread_cond_t     arrived;
    xd_received_frame *first, **end; /* queue of received frames */
    xd_running        *top;          /* top of the stack of running tasks */
    int                ended;        /* 1: the server has disconnected or sent XD_FRAME_QUIT */
} xd_connection;

void      xd_connection_init(xd_connection *c);
/* Connects to the server's socket and starts the thread that receives frames. */
xd_status xd_connection_open(xd_connection *c, const char *path, xd_err *e);
/* Starts the thread that sends XD_FRAME_ALIVE each second. xd_connection_start_heartbeat must be
 * called after XD_FRAME_READY was sent. */
void      xd_connection_start_heartbeat(xd_connection *c);
/* Sets *f to the next received frame; the caller frees it with xd_frame_free. If `wait` is 0 and no
 * frame is in the queue, sets f->kind to 0 at once. If `wait` is 1, waits for a frame, and sets
 * f->kind to 0 only if the server has disconnected. *cancelled becomes 1 if the task of the frame
 * was cancelled. */
void      xd_connection_next_frame(xd_connection *c, int wait, xd_frame *f, int *cancelled);
/* Sends a frame to the server; does nothing if this rank is not connected to the server.
 * xd_connection_send is thread-safe. */
xd_status xd_connection_send(xd_connection *c, xd_frame_kind kind, const char *const *v, int n);
/* push_task pushes a task on the stack of running tasks. pop_task removes the top task from the
 * stack. */
void      xd_connection_push_task(xd_connection *c, xd_running *r, const char *id, int cancelled);
void      xd_connection_pop_task(xd_connection *c, xd_running *r);
/* Sets the engine that is stopped when the server cancels the task; NULL: there is no engine to
 * stop. */
void      xd_connection_set_engine(xd_connection *c, xd_running *r, xd_engine *g);
/* Calls xd_cancel again if the running task was cancelled. A single call of xd_cancel is not
 * enough, because the engine ignores a cancellation before xd_generate has begun. */
void      xd_connection_repeat_cancel(xd_connection *c, xd_running *r);

#endif
