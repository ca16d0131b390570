/* readahead.c - runs a background thread that reads parts of files into the page cache.
 *
 * The thread requests small pieces of a file (POSIX_FADV_WILLNEED), because the system silently
 * truncates larger requests to the readahead window of the disk. Requests for some MiB are in
 * flight at a time. To limit the amount in flight, the thread regularly reads one byte of a piece
 * that it requested DEPTH steps ago, and so waits until that piece is in the page cache. This read
 * also loads the piece if the request had no effect. The thread copies nothing, and data that is
 * already cached costs about 10 ms per GB.
 *
 * The thread maps and allocates no memory. The thread's stack is small, because address space may
 * be limited. */
#define _POSIX_C_SOURCE 200809L /* for posix_fadvise, sigset_t */
#include "base/readahead.h"
#include "base/file.h"
#include "base/signals.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    PIECE = 128 << 10, /* bytes per request: a disk's smallest usual readahead */
    STEP = 1 << 20,    /* bytes requested between two waits */
    DEPTH = 8,         /* number of steps that are requested but not yet waited for */
    STACK = 64 << 10
};

typedef struct range {
    int    fd;
    size_t at, bytes;
} range;
typedef struct mark {
    int    fd;
    size_t at;
} mark; /* position of the last byte of a step */

struct xd_readahead {
    range              *r;
    int                 n, cap;
    size_t              bytes, limit;
    const xd_canceller *cancel;
    int                 running;
    pthread_t           thread;
    pthread_mutex_t     guard; /* mutex of all following fields of this struct */
    pthread_cond_t      change;
    size_t              requested, used;
    int                 stop;
};

xd_readahead *xd_readahead_open(size_t limit, const xd_canceller *cancel)
{
    xd_readahead *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->limit = limit;
    a->cancel = cancel;
    pthread_mutex_init(&a->guard, NULL);
    pthread_cond_init(&a->change, NULL);
    return a;
}

/* Adds a range of a file to the queue. Adjacent ranges of a file are merged. If memory runs out,
 * this range and all later ranges are not read ahead. */
void xd_readahead_add(xd_readahead *a, int fd, size_t at, size_t bytes)
{
    range *last = a->n ? &a->r[a->n - 1] : NULL;
    a->bytes += bytes;
    if (last && last->fd == fd && last->at + last->bytes == at) {
        last->bytes += bytes;
        return;
    }
    if (a->n == a->cap) {
        int    cap = a->cap ? 2 * a->cap : 256;
        range *r = realloc(a->r, (size_t)cap * sizeof *r);
        if (!r)
            return;
        a->r = r;
        a->cap = cap;
    }
    a->r[a->n++] = (range){ fd, at, bytes };
}

size_t xd_readahead_bytes(const xd_readahead *a)
{
    return a->bytes;
}

size_t xd_readahead_cold_bytes(const xd_readahead *a)
{
    size_t cold = 0;
    for (const range *r = a->r; r < a->r + a->n; r++)
        cold += xd_file_cold_bytes(r->fd, r->at, r->bytes);
    return cold;
}

/* Waits until n more bytes may be requested. Returns 0 if the readahead thread must stop. */
static int wait_for_space(xd_readahead *a, size_t n)
{
    pthread_mutex_lock(&a->guard);
    while (!a->stop && a->requested + n > a->used + a->limit)
        pthread_cond_wait(&a->change, &a->guard);
    int going = !a->stop && !xd_cancel_requested(a->cancel);
    a->requested += going ? n : 0;
    pthread_mutex_unlock(&a->guard);
    return going;
}

/* Waits until the data of one step is in the page cache, by reading the step's last byte, which is
 * at the file position `m`. Returns 0 if the read fails; the caller that uses the file later will
 * report the error. */
static int read_mark(mark m)
{
    char c;
    return pread(m.fd, &c, 1, (off_t)m.at) == 1;
}

static void *read_ahead(void *arg)
{
    xd_readahead *a = arg;
    mark          way[DEPTH];
    size_t        steps = 0, since = 0;
    for (const range *r = a->r; r < a->r + a->n; r++)
        for (size_t done = 0, n; done < r->bytes; done += n) {
            n = r->bytes - done < PIECE ? r->bytes - done : PIECE;
            if (!wait_for_space(a, n))
                return NULL;
            posix_fadvise(r->fd, (off_t)(r->at + done), (off_t)n, POSIX_FADV_WILLNEED);
            if ((since += n) < STEP)
                continue;
            since = 0;
            mark *m = &way[steps++ % DEPTH];
            if (steps > DEPTH && !read_mark(*m))
                return NULL;
            *m = (mark){ r->fd, r->at + done + n - 1 };
        }
    return NULL;
}

void xd_readahead_start(xd_readahead *a)
{
    pthread_attr_t attr;
    sigset_t       all, old;
    if (!a->n || a->running || pthread_attr_init(&attr) != 0)
        return;
    pthread_attr_setstacksize(&attr, STACK);
    xd_signals_for_caller(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    a->running = pthread_create(&a->thread, &attr, read_ahead, a) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
}

void xd_readahead_used(xd_readahead *a, size_t upto)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->guard);
    a->used = upto > a->used ? upto : a->used;
    pthread_cond_signal(&a->change);
    pthread_mutex_unlock(&a->guard);
}

size_t xd_readahead_requested(xd_readahead *a)
{
    pthread_mutex_lock(&a->guard);
    size_t n = a->requested;
    pthread_mutex_unlock(&a->guard);
    return n;
}

static void end_thread(xd_readahead *a)
{
    pthread_mutex_lock(&a->guard);
    a->stop = 1;
    pthread_cond_signal(&a->change);
    pthread_mutex_unlock(&a->guard);
    if (a->running)
        pthread_join(a->thread, NULL);
    a->running = 0;
}

void xd_readahead_again(xd_readahead *a)
{
    end_thread(a);
    a->stop = 0;
    a->requested = a->used = 0;
    xd_readahead_start(a);
}

void xd_readahead_close(xd_readahead **at)
{
    xd_readahead *a = *at;
    if (!a)
        return;
    end_thread(a);
    pthread_mutex_destroy(&a->guard);
    pthread_cond_destroy(&a->change);
    free(a->r);
    free(a);
    *at = NULL;
}
