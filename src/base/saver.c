/* saver.c - implements the background thread that saves snapshots; see saver.h */
#define _POSIX_C_SOURCE 200809L /* sigset_t */
#include "base/saver.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/signals.h"

enum { STACK = 256 << 10 };

struct xd_saver {
    xd_saver_ops    ops;
    pthread_t       thread;
    int             running;
    pthread_mutex_t guard; /* mutex of all following fields of this struct */
    pthread_cond_t  change;
    /* waiting: the snapshot to save next; saved: a snapshot that was saved. NULL: none. */
    void           *waiting, *saved;
    int             busy, stop; /* busy: 1 while a snapshot is saved */
    xd_status       status;     /* of the last save that failed */
    xd_err          err;
};

xd_saver *xd_saver_open(const xd_saver_ops *ops)
{
    xd_saver *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->ops = *ops;
    pthread_mutex_init(&s->guard, NULL);
    pthread_cond_init(&s->change, NULL);
    return s;
}

static void drop(xd_saver *s, void **snapshot)
{
    if (*snapshot)
        s->ops.drop(*snapshot);
    *snapshot = NULL;
}

/* Saves the snapshot that waits. The caller holds the mutex, which is released meanwhile. */
static void save_waiting(xd_saver *s)
{
    void  *now = s->waiting;
    xd_err e = { 0 };
    s->waiting = NULL;
    s->busy = 1;
    pthread_mutex_unlock(&s->guard);
    xd_status status = s->ops.save(now, &e);
    pthread_mutex_lock(&s->guard);
    drop(s, &s->saved);
    s->saved = now;
    if (status != XD_OK) {
        s->status = status;
        s->err = e;
    }
    s->busy = 0;
    pthread_cond_broadcast(&s->change);
}

static void *run_saver(void *arg)
{
    xd_saver *s = arg;
    pthread_mutex_lock(&s->guard);
    while (s->waiting || !s->stop) {
        if (s->waiting)
            save_waiting(s);
        else
            pthread_cond_wait(&s->change, &s->guard);
    }
    pthread_mutex_unlock(&s->guard);
    return NULL;
}

static void start_thread(xd_saver *s)
{
    pthread_attr_t attr;
    sigset_t       all, old;
    if (s->running || pthread_attr_init(&attr) != 0)
        return;
    pthread_attr_setstacksize(&attr, STACK);
    xd_signals_for_caller(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    s->running = pthread_create(&s->thread, &attr, run_saver, s) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
}

void *xd_saver_reuse(xd_saver *s)
{
    pthread_mutex_lock(&s->guard);
    void **from = s->waiting ? &s->waiting : &s->saved, *snapshot = *from;
    *from = NULL;
    pthread_mutex_unlock(&s->guard);
    return snapshot;
}

void xd_saver_put(xd_saver *s, void *snapshot)
{
    start_thread(s);
    pthread_mutex_lock(&s->guard);
    drop(s, &s->waiting);
    s->waiting = snapshot;
    if (!s->running)
        save_waiting(s);
    pthread_cond_broadcast(&s->change);
    pthread_mutex_unlock(&s->guard);
}

void xd_saver_wait(xd_saver *s)
{
    pthread_mutex_lock(&s->guard);
    while (s->waiting || s->busy)
        pthread_cond_wait(&s->change, &s->guard);
    pthread_mutex_unlock(&s->guard);
}

xd_status xd_saver_status(xd_saver *s, xd_err *e)
{
    pthread_mutex_lock(&s->guard);
    xd_status status = s->status;
    if (status != XD_OK)
        *e = s->err;
    s->status = XD_OK;
    pthread_mutex_unlock(&s->guard);
    return status;
}

void xd_saver_close(xd_saver **at)
{
    xd_saver *s = *at;
    if (!s)
        return;
    pthread_mutex_lock(&s->guard);
    s->stop = 1;
    pthread_cond_broadcast(&s->change);
    pthread_mutex_unlock(&s->guard);
    if (s->running)
        pthread_join(s->thread, NULL);
    drop(s, &s->saved);
    pthread_mutex_destroy(&s->guard);
    pthread_cond_destroy(&s->change);
    free(s);
    *at = NULL;
}
