/* worker_connection.c - the threads of a worker that receive the server's frames, cancel tasks and
 * send heartbeats */
#define _POSIX_C_SOURCE 200809L  /* clock_gettime, nanosleep */
#include "serve/worker_connection.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

void xd_connection_init(xd_connection *c)
{
    *c = (xd_connection){ .fd = -1,
                          .lock = PTHREAD_MUTEX_INITIALIZER,
                          .sending = PTHREAD_MUTEX_INITIALIZER,
                          .arrived = PTHREAD_COND_INITIALIZER };
    c->end = &c->first;
}

/* ---- thread that receives frames ------------------------------------------------------------ */

const char *xd_frame_task_id(const xd_frame *f)
{
    const char *eq = f->n ? strchr(f->v[0], '=') : NULL;
    return eq ? eq + 1 : "";
}

static void cancel_running(xd_running *r)
{
    atomic_store(&r->cancelled, 1);
    if (r->engine)
        xd_cancel(r->engine);
}

static void cancel_task(xd_connection *c, const char *id)
{
    for (xd_running *r = c->top; r; r = r->below)
        if (strcmp(r->id, id) == 0)
            cancel_running(r);
    for (xd_received_frame *i = c->first; i; i = i->next)
        if (i->frame.kind == XD_FRAME_RUN && strcmp(xd_frame_task_id(&i->frame), id) == 0)
            i->cancelled = 1;
}

/* Moves the received frame to the queue of frames. Returns 0 if memory is exhausted. If queue_frame
 * fails, the worker closes its connection to the server, and the server starts a new worker. */
static int queue_frame(xd_connection *c, xd_frame *f)
{
    xd_received_frame *i = calloc(1, sizeof *i);
    if (!i)
        return 0;
    i->frame = *f;
    *f = (xd_frame){ 0 };
    *c->end = i;
    c->end = &i->next;
    return 1;
}

static void *read_frames(void *arg)
{
    xd_connection *c = arg;
    int            ended = 0;
    while (!ended) {
        xd_frame  f;
        xd_status s = xd_frame_receive(c->fd, &f, NULL);
        pthread_mutex_lock(&c->lock);
        if (s == XD_OK && f.kind == XD_FRAME_CANCEL && f.n)
            cancel_task(c, f.v[0]);
        else if (s == XD_OK && f.kind != XD_FRAME_QUIT && f.kind != XD_FRAME_CANCEL)
            s = queue_frame(c, &f) ? s : XD_ENOMEM;
        if (s != XD_OK || f.kind == XD_FRAME_QUIT)
            ended = c->ended = 1;
        for (xd_running *r = c->top; s != XD_OK && r; r = r->below)
            cancel_running(r);
        pthread_cond_signal(&c->arrived);
        pthread_mutex_unlock(&c->lock);
        xd_frame_free(&f);
    }
    return NULL;
}

xd_status xd_connection_open(xd_connection *c, const char *path, xd_err *e)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    pthread_t          thread;
    if (strlen(path) >= sizeof at.sun_path)
        return xd_fail(e, XD_EINVAL, "--connect %s is too long for the path of a socket", path);
    strcpy(at.sun_path, path);
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&at, sizeof at) != 0) {
        if (c->fd >= 0)
            close(c->fd);
        c->fd = -1;
        return xd_fail(e, XD_EIO,
                       "cannot connect to the server at %s: use xdit serve, which "
                       "starts workers",
                       path);
    }
    if (pthread_create(&thread, NULL, read_frames, c) != 0)
        return xd_fail(e, XD_ENOMEM, "cannot start a thread");
    pthread_detach(thread);
    return XD_OK;
}

/* ---- heartbeats ------------------------------------------------------------------------------ */

static double read_clock_s(clockid_t id)
{
    struct timespec t = { 0 };
    clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Thread that sends heartbeats to the server. Each heartbeat has the CPU time of the process
 * without the CPU time of the thread that sends heartbeats. A worker whose CPU time in heartbeats
 * does not grow neither computes nor reads. */
static void *send_heartbeats(void *arg)
{
    xd_connection *c = arg;
    char           seconds[40];
    do {
        snprintf(seconds, sizeof seconds, "%.6f",
                 read_clock_s(CLOCK_PROCESS_CPUTIME_ID) - read_clock_s(CLOCK_THREAD_CPUTIME_ID));
        nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL);
    } while (xd_connection_send(c, XD_FRAME_ALIVE, (const char *[]){ seconds }, 1) == XD_OK);
    return NULL;
}

void xd_connection_start_heartbeat(xd_connection *c)
{
    pthread_t thread;
    if (c->fd >= 0 && pthread_create(&thread, NULL, send_heartbeats, c) == 0)
        pthread_detach(thread);
}

/* ---- functions for the thread that generates images ----------------------------------------- */

void xd_connection_next_frame(xd_connection *c, int wait, xd_frame *f, int *cancelled)
{
    *f = (xd_frame){ 0 };
    *cancelled = 0;
    pthread_mutex_lock(&c->lock);
    while (wait && !c->first && !c->ended)
        pthread_cond_wait(&c->arrived, &c->lock);
    xd_received_frame *i = c->ended ? NULL : c->first;
    if (i) {
        c->first = i->next;
        c->end = c->first ? c->end : &c->first;
        *f = i->frame;
        *cancelled = i->cancelled;
    }
    pthread_mutex_unlock(&c->lock);
    free(i);
}

xd_status xd_connection_send(xd_connection *c, xd_frame_kind kind, const char *const *v, int n)
{
    if (c->fd < 0)
        return XD_OK;
    pthread_mutex_lock(&c->sending);
    xd_status s = xd_frame_send(c->fd, kind, v, n, NULL);
    pthread_mutex_unlock(&c->sending);
    return s;
}

void xd_connection_push_task(xd_connection *c, xd_running *r, const char *id, int cancelled)
{
    snprintf(r->id, sizeof r->id, "%s", id);
    r->engine = NULL;
    pthread_mutex_lock(&c->lock);
    atomic_store(&r->cancelled, cancelled);
    r->below = c->top;
    c->top = r;
    pthread_mutex_unlock(&c->lock);
}

void xd_connection_pop_task(xd_connection *c, xd_running *r)
{
    pthread_mutex_lock(&c->lock);
    c->top = r->below;
    pthread_mutex_unlock(&c->lock);
}

void xd_connection_set_engine(xd_connection *c, xd_running *r, xd_engine *g)
{
    pthread_mutex_lock(&c->lock);
    r->engine = g;
    pthread_mutex_unlock(&c->lock);
}

void xd_connection_repeat_cancel(xd_connection *c, xd_running *r)
{
    pthread_mutex_lock(&c->lock);
    if (atomic_load(&r->cancelled) && r->engine)
        xd_cancel(r->engine);
    pthread_mutex_unlock(&c->lock);
}
