/* worker_watch.h - whether the worker still lives and works, and when it is to be killed
 *
 * Every rank says each second that it lives and how much processor time it has taken. A rank of
 * which nothing is heard is stopped, or its host has no time for it; a worker that has a task and
 * takes no processor time waits for what does not come, such as a disk that is gone. Long steps and
 * the loading of weights take processor time and are neither. A loop without end is known by a
 * cancelled task that does not end. Only seconds in which the server itself was awake count: it may
 * have been stopped together with the worker. */
#ifndef XD_SERVE_WORKER_WATCH_H
#define XD_SERVE_WORKER_WATCH_H

#include "serve/worker_feed.h"

typedef struct xd_worker_watch {
    double patience;            /* seconds without a sign of life, before it is killed         */
    double looked;              /* when it was last looked at                                  */
    double quiet[XD_WORKER_RANKS];      /* seconds since a rank was heard of                   */
    double taken[XD_WORKER_RANKS];      /* processor seconds that a rank has said last         */
    double still;               /* seconds in which tasks have not gone on                     */
    double last, pause;         /* since the last word about a task; between the last two      */
} xd_worker_watch;

/* A new worker is about to connect. */
void   xd_worker_watch_begin(xd_worker_watch *w, double patience);
/* A rank has sent a frame. */
void   xd_worker_watch_heard(xd_worker_watch *w, int rank, const xd_frame *f);
/* Seconds without a sign of life, of the rank that is silent for the longest time. */
double xd_worker_watch_silence(const xd_worker_watch *w, const xd_worker_feed *feed);
/* Counts the seconds since the last look, which is to be some tenths of a second ago. 1: the worker
 * is to be killed, and `why` is how it behaves. */
int    xd_worker_watch_look(xd_worker_watch *w, xd_worker_feed *feed, char *why, size_t size);

#endif
