/* worker_inbox.c - a thread reads the socket, queues what is to be done and cancels what runs;
 * another one tells the server that this process lives */
#define _POSIX_C_SOURCE 200809L  /* clock_gettime, nanosleep */
#include "serve/worker_inbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

void xd_inbox_init(xd_inbox *in)
{
    *in = (xd_inbox){ .fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER,
                      .sending = PTHREAD_MUTEX_INITIALIZER, .came = PTHREAD_COND_INITIALIZER };
    in->end = &in->first;
}

/* ---- the thread that reads ------------------------------------------------------------------ */

const char *xd_inbox_task_id(const xd_frame *f)
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

static void cancel_task(xd_inbox *in, const char *id)
{
    for (xd_running *r = in->top; r; r = r->below)
        if (strcmp(r->id, id) == 0)
            cancel_running(r);
    for (xd_inbox_item *i = in->first; i; i = i->next)
        if (i->frame.kind == XD_FRAME_RUN && strcmp(xd_inbox_task_id(&i->frame), id) == 0)
            i->cancelled = 1;
}

/* Takes the frame's content. Without memory the connection ends, and the server starts anew. */
static int queue_frame(xd_inbox *in, xd_frame *f)
{
    xd_inbox_item *i = calloc(1, sizeof *i);
    if (!i)
        return 0;
    i->frame = *f;
    *f = (xd_frame){ 0 };
    *in->end = i;
    in->end = &i->next;
    return 1;
}

static void *listen_to_server(void *arg)
{
    xd_inbox *in = arg;
    int       ended = 0;
    while (!ended) {
        xd_frame  f;
        xd_status s = xd_frame_receive(in->fd, &f, NULL);
        pthread_mutex_lock(&in->lock);
        if (s == XD_OK && f.kind == XD_FRAME_CANCEL && f.n)
            cancel_task(in, f.v[0]);
        else if (s == XD_OK && f.kind != XD_FRAME_QUIT && f.kind != XD_FRAME_CANCEL)
            s = queue_frame(in, &f) ? s : XD_ENOMEM;
        if (s != XD_OK || f.kind == XD_FRAME_QUIT)
            ended = in->ended = 1;
        for (xd_running *r = in->top; s != XD_OK && r; r = r->below)
            cancel_running(r);
        pthread_cond_signal(&in->came);
        pthread_mutex_unlock(&in->lock);
        xd_frame_free(&f);
    }
    return NULL;
}

xd_status xd_inbox_connect(xd_inbox *in, const char *path, xd_err *e)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    pthread_t          thread;
    if (strlen(path) >= sizeof at.sun_path)
        return xd_fail(e, XD_EINVAL, "--connect %s is longer than the name of a socket", path);
    strcpy(at.sun_path, path);
    in->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (in->fd < 0 || connect(in->fd, (struct sockaddr *)&at, sizeof at) != 0) {
        if (in->fd >= 0)
            close(in->fd);
        in->fd = -1;
        return xd_fail(e, XD_EIO, "cannot reach the server at %s: xdit serve starts workers by "
                       "itself", path);
    }
    if (pthread_create(&thread, NULL, listen_to_server, in) != 0)
        return xd_fail(e, XD_ENOMEM, "cannot start a thread");
    pthread_detach(thread);
    return XD_OK;
}

/* ---- signs of life --------------------------------------------------------------------------- */

static double read_clock_s(clockid_t id)
{
    struct timespec t = { 0 };
    clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Processor time but that of this thread: where it stands still, nothing is computed or read. */
static void *beat(void *arg)
{
    xd_inbox *in = arg;
    char      seconds[40];
    do {
        snprintf(seconds, sizeof seconds, "%.6f",
                 read_clock_s(CLOCK_PROCESS_CPUTIME_ID) - read_clock_s(CLOCK_THREAD_CPUTIME_ID));
        nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL);
    } while (xd_inbox_tell(in, XD_FRAME_ALIVE, (const char *[]){ seconds }, 1) == XD_OK);
    return NULL;
}

void xd_inbox_beat(xd_inbox *in)
{
    pthread_t thread;
    if (in->fd >= 0 && pthread_create(&thread, NULL, beat, in) == 0)
        pthread_detach(thread);
}

/* ---- the thread that generates -------------------------------------------------------------- */

void xd_inbox_take(xd_inbox *in, int wait, xd_frame *f, int *cancelled)
{
    *f = (xd_frame){ 0 };
    *cancelled = 0;
    pthread_mutex_lock(&in->lock);
    while (wait && !in->first && !in->ended)
        pthread_cond_wait(&in->came, &in->lock);
    xd_inbox_item *i = in->ended ? NULL : in->first;
    if (i) {
        in->first = i->next;
        in->end = in->first ? in->end : &in->first;
        *f = i->frame;
        *cancelled = i->cancelled;
    }
    pthread_mutex_unlock(&in->lock);
    free(i);
}

xd_status xd_inbox_tell(xd_inbox *in, xd_frame_kind kind, const char *const *v, int n)
{
    if (in->fd < 0)
        return XD_OK;
    pthread_mutex_lock(&in->sending);
    xd_status s = xd_frame_send(in->fd, kind, v, n, NULL);
    pthread_mutex_unlock(&in->sending);
    return s;
}

void xd_inbox_begin(xd_inbox *in, xd_running *r, const char *id, int cancelled)
{
    snprintf(r->id, sizeof r->id, "%s", id);
    r->engine = NULL;
    pthread_mutex_lock(&in->lock);
    atomic_store(&r->cancelled, cancelled);
    r->below = in->top;
    in->top = r;
    pthread_mutex_unlock(&in->lock);
}

void xd_inbox_over(xd_inbox *in, xd_running *r)
{
    pthread_mutex_lock(&in->lock);
    in->top = r->below;
    pthread_mutex_unlock(&in->lock);
}

void xd_inbox_engine(xd_inbox *in, xd_running *r, xd_engine *g)
{
    pthread_mutex_lock(&in->lock);
    r->engine = g;
    pthread_mutex_unlock(&in->lock);
}

void xd_inbox_again(xd_inbox *in, xd_running *r)
{
    pthread_mutex_lock(&in->lock);
    if (atomic_load(&r->cancelled) && r->engine)
        xd_cancel(r->engine);
    pthread_mutex_unlock(&in->lock);
}
