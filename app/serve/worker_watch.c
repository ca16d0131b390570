/* worker_watch.c - measures the silence of ranks and the time that cancelled tasks take to end */
#include "serve/worker_watch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

/* A cancelled task must end within CANCEL_S seconds plus the last interval between two reports,
 * which is usually a step. At most MAX_STEP_S seconds of the time between two checks are counted,
 * so that time in which the server was suspended does not count as silence. */
static const double CANCEL_S = 10, MAX_STEP_S = 1;
/* minimum increase of CPU time, in seconds, that counts as work, because the CPU clock is not
 * exact */
static const double BUSY_S = 1e-3;

void xd_worker_watch_begin(xd_worker_watch *w, double timeout_s)
{
    *w = (xd_worker_watch){ .timeout_s = timeout_s, .checked_s = xd_now_s() };
}

void xd_worker_watch_received(xd_worker_watch *w, int rank, const xd_frame *f)
{
    w->silent_s[rank] = 0;
    if (f->kind != XD_FRAME_ALIVE) {
        w->report_interval_s = w->since_report_s;
        w->since_report_s = w->idle_s = 0;
    } else if (f->n >= 1) {
        double cpu_s = atof(f->v[0]);
        if (cpu_s - w->cpu_s[rank] < BUSY_S)
            return;
        w->cpu_s[rank] = cpu_s;
        w->idle_s = 0;
    }
}

double xd_worker_watch_silence(const xd_worker_watch *w, const xd_dispatch *d)
{
    double most = d->nruns ? w->idle_s : 0;
    for (int i = 0; i < d->ranks && i < XD_WORKER_RANKS; i++)
        most = d->fd[i] >= 0 ? fmax(most, w->silent_s[i]) : most;
    return most;
}

/* Returns nonzero if ranks compute this task now; returns 0 if another task has interrupted this
 * task. */
static int is_worked_on(const xd_dispatch *d, const xd_worker_run *r)
{
    const xd_worker_run *top = NULL;
    for (int i = 0; i < d->nruns; i++)
        top = d->runs[i].rank < 0 && d->runs[i].started ? &d->runs[i] : top;
    return r->started && (r->rank >= 0 || r == top);
}

static void count_seconds(xd_worker_watch *w, xd_dispatch *d)
{
    double now = xd_now_s(), s = fmin(now - w->checked_s, MAX_STEP_S);
    w->checked_s = now;
    w->since_report_s += s;
    w->idle_s = d->nruns ? w->idle_s + s : 0;
    for (int i = 0; i < XD_WORKER_RANKS; i++)
        w->silent_s[i] += s;
    for (int i = 0; i < d->nruns; i++) {
        xd_worker_run *r = &d->runs[i];
        if (!r->cancelled)
            continue;
        if (r->cancel_wait_s == 0)
            r->cancel_limit_s = fmax(w->report_interval_s, w->since_report_s);
        r->cancel_wait_s += s;
    }
}

int xd_worker_watch_check(xd_worker_watch *w, xd_dispatch *d, char *why, size_t size)
{
    count_seconds(w, d);
    double silent = xd_worker_watch_silence(w, d), limit = fmin(CANCEL_S, w->timeout_s);
    int    dead = silent >= w->timeout_s;
    for (int i = 0; i < d->nruns && !dead; i++) {
        const xd_worker_run *r = &d->runs[i];
        dead = r->cancel_wait_s >= limit && silent >= limit;
        if (dead || r->cancel_wait_s < limit + r->cancel_limit_s || !is_worked_on(d, r))
            continue;
        snprintf(why, size, "a cancelled request did not end within %.0f s, and it was killed",
                 r->cancel_wait_s);
        return 1;
    }
    if (dead)
        snprintf(why, size, "it gave no sign of life for %.0f s and was killed", silent);
    return dead;
}
