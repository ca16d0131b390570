/* worker_watch.h - detects a worker that hangs and must be killed.
 *
 * Every rank sends a heartbeat (XD_FRAME_ALIVE) each second with its CPU time. Missing heartbeats
 * mean that the rank was stopped or its host is overloaded. A worker that has a task and uses no
 * CPU time is blocked, for example by a disk that does not respond. Long steps and loading of
 * weights use CPU time, so they do not count as hanging. An endless loop is detected when a
 * cancelled task does not end. Seconds in which the server itself was suspended do not count as
 * silence of the worker. */
#ifndef XD_SERVE_WORKER_WATCH_H
#define XD_SERVE_WORKER_WATCH_H

#include "serve/worker_dispatch.h"

typedef struct xd_worker_watch {
    double timeout_s; /* seconds of silence after which the worker is killed */
    /* time of the last check whether the worker hangs, on the clock xd_now_s */
    double checked_s;
    double silent_s[XD_WORKER_RANKS]; /* seconds since the last frame of each rank */
    double cpu_s[XD_WORKER_RANKS];    /* CPU seconds in the last heartbeat of each rank */
    double idle_s;            /* seconds since the worker, while it had a task, last used CPU time
                                   or sent a report */
    double since_report_s;    /* seconds since the last frame about a task */
    double report_interval_s; /* seconds between the last two frames about tasks */
} xd_worker_watch;

/* Resets the measured times for a new worker. */
void   xd_worker_watch_begin(xd_worker_watch *w, double timeout_s);
/* Records that a rank has sent a frame. xd_worker_watch_received must be called for every received
 * frame. */
void   xd_worker_watch_received(xd_worker_watch *w, int rank, const xd_frame *f);
/* Returns the larger of two times in seconds: the longest time since the last frame of a connected
 * rank; and, for a worker with a task, the time since the worker last used CPU time or sent a
 * report. */
double xd_worker_watch_silence(const xd_worker_watch *w, const xd_dispatch *d);
/* Checks whether the worker hangs, that is makes no progress. xd_worker_watch_check must be called
 * several times a second. Returns 1 if the worker must be killed, and writes the reason to
 * `why`. */
int    xd_worker_watch_check(xd_worker_watch *w, xd_dispatch *d, char *why, size_t size);

#endif
