/* worker_watch.c - signs of life, and cancelled tasks that do not end */
#include "serve/worker_watch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

/* A cancelled task has so long to end, and as long as the worker's last pause between two words,
 * which is a step, most often. Of a longer time between two looks one second counts. */
static const double TO_HEED_S = 10, MOST_S = 1;
static const double WORKS_S = 1e-3;     /* processor time that is more than the clock's error   */

void xd_worker_watch_begin(xd_worker_watch *w, double patience)
{
    *w = (xd_worker_watch){ .patience = patience, .looked = xd_now_s() };
}

void xd_worker_watch_heard(xd_worker_watch *w, int rank, const xd_frame *f)
{
    w->quiet[rank] = 0;
    if (f->kind != XD_FRAME_ALIVE) {
        w->pause = w->last;
        w->last = w->still = 0;
    } else if (f->n >= 1) {
        double taken = atof(f->v[0]);
        if (taken - w->taken[rank] < WORKS_S)
            return;
        w->taken[rank] = taken;
        w->still = 0;
    }
}

double xd_worker_watch_silence(const xd_worker_watch *w, const xd_worker_feed *feed)
{
    double most = feed->nruns ? w->still : 0;
    for (int i = 0; i < feed->ranks && i < XD_WORKER_RANKS; i++)
        most = feed->fd[i] >= 0 ? fmax(most, w->quiet[i]) : most;
    return most;
}

/* The tasks that the ranks work on; others wait for their turn. */
static int is_worked_on(const xd_worker_feed *feed, const xd_worker_run *r)
{
    const xd_worker_run *top = NULL;
    for (int i = 0; i < feed->nruns; i++)
        top = feed->runs[i].rank < 0 && feed->runs[i].begun ? &feed->runs[i] : top;
    return r->begun && (r->rank >= 0 || r == top);
}

static void count_seconds(xd_worker_watch *w, xd_worker_feed *feed)
{
    double now = xd_now_s(), s = fmin(now - w->looked, MOST_S);
    w->looked = now;
    w->last += s;
    w->still = feed->nruns ? w->still + s : 0;
    for (int i = 0; i < XD_WORKER_RANKS; i++)
        w->quiet[i] += s;
    for (int i = 0; i < feed->nruns; i++) {
        xd_worker_run *r = &feed->runs[i];
        if (!r->cancelled)
            continue;
        if (r->waited == 0)
            r->patience = fmax(w->pause, w->last);
        r->waited += s;
    }
}

int xd_worker_watch_look(xd_worker_watch *w, xd_worker_feed *feed, char *why, size_t size)
{
    count_seconds(w, feed);
    double silent = xd_worker_watch_silence(w, feed), heed = fmin(TO_HEED_S, w->patience);
    int    dead = silent >= w->patience;
    for (int i = 0; i < feed->nruns && !dead; i++) {
        const xd_worker_run *r = &feed->runs[i];
        dead = r->waited >= heed && silent >= heed;
        if (dead || r->waited < heed + r->patience || !is_worked_on(feed, r))
            continue;
        snprintf(why, size, "a cancelled request did not end within %.0f s, and it was killed",
                 r->waited);
        return 1;
    }
    if (dead)
        snprintf(why, size, "it gave no sign of life for %.0f s and was killed", silent);
    return dead;
}
