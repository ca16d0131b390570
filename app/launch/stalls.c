/* stalls.c - detects ranks that make no progress; see stalls.h */
#include "launch/stalls.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

/* CHECK_S: seconds between two checks whether ranks make progress. SLOW: a denoising step is
 * expected to end within SLOW times the time of the slowest step so far. */
static const double CHECK_S = 0.25, SLOW = 5;

/* Reads the state and the processor time in ticks of a process. Returns the letter of the process
 * state in /proc; 0: the process is unknown. */
static char read_process(pid_t pid, double *ticks)
{
    char               path[64], line[1024], state = 0;
    unsigned long long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    FILE *f = pid > 0 ? fopen(path, "r") : NULL;
    if (!f)
        return 0;
    size_t n = fread(line, 1, sizeof line - 1, f);
    fclose(f);
    line[n] = 0;
    const char *name_end = strrchr(line, ')');
    if (name_end)
        sscanf(name_end + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &state, &user,
               &system);
    *ticks = (double)user + (double)system;
    return state;
}

static int is_running(const xd_member *m)
{
    return m->fd >= 0 && !m->done;
}

/* Reads the process states of all ranks, and returns a rank whose process has been stopped since a
 * time before `since`. */
static const xd_member *find_stopped(xd_roster *r, double now, double since)
{
    const xd_member *found = NULL;
    double           ticks;
    for (int i = 0; i < r->n; i++) {
        xd_member *m = &r->m[i];
        char       state = is_running(m) ? read_process(m->pid, &ticks) : 0;
        if (state != 'T' && state != 't')
            m->stopped_s = 0;
        else if (m->stopped_s <= 0)
            m->stopped_s = now;
        if (m->stopped_s > 0 && m->stopped_s <= since)
            found = m;
    }
    return found;
}

/* Records the processor time of all ranks once for each denoising step. */
static void sample_times(xd_stalls *s, xd_roster *r, double step_s)
{
    if (s->sampled_s == step_s)
        return;
    s->sampled_s = step_s;
    for (int i = 0; i < r->n; i++)
        read_process(r->m[i].pid, &r->m[i].ticks);
}

/* Returns the running rank that has used the least processor time since the call of sample_times.
 * The other ranks have computed their part of the step, and use processor time while they poll for
 * messages of this rank. */
static const xd_member *find_idle(const xd_roster *r)
{
    const xd_member *found = NULL;
    double           least = 0, ticks = 0;
    for (int i = 0; i < r->n; i++) {
        const xd_member *m = &r->m[i];
        if (!is_running(m))
            continue;
        read_process(m->pid, &ticks);
        if (!found || ticks - m->ticks < least) {
            found = m;
            least = ticks - m->ticks;
        }
    }
    return found;
}

/* Sets *last to the time of the last step of any rank, and *slowest to the seconds of the slowest
 * step. Returns 0 if any rank is in a stage other than denoising. */
static int read_steps(const xd_roster *r, double *last, double *slowest)
{
    *last = *slowest = 0;
    for (int i = 0; i < r->n; i++) {
        const xd_member *m = &r->m[i];
        if (m->step_s <= 0)
            return 0;
        *last = m->step_s > *last ? m->step_s : *last;
        *slowest = m->slowest_s > *slowest ? m->slowest_s : *slowest;
    }
    return r->n == r->ranks && *slowest > 0;
}

const xd_member *xd_stalls_find(xd_stalls *s, xd_roster *r, char *why, size_t size)
{
    double now = xd_now_s(), last, slowest;
    if (s->timeout <= 0 || r->listener < 0 || now - s->checked_s < CHECK_S)
        return NULL;
    s->checked_s = now;
    const xd_member *m = find_stopped(r, now, now - s->timeout);
    if (!m && read_steps(r, &last, &slowest)) {
        double most = slowest * SLOW > s->timeout ? slowest * SLOW : s->timeout;
        if (now - last > most / 2)
            sample_times(s, r, last);
        if (now - last <= most)
            return NULL;
        if (!(m = find_stopped(r, now, now)) && (m = find_idle(r))) {
            snprintf(why, size,
                     "no step has ended for %.1f s, and rank %d has used the least processor time "
                     "since (--rank_timeout)",
                     now - last, m->rank);
            return m;
        }
    }
    if (m)
        snprintf(why, size,
                 "rank %d is stopped and has stood still for more than %g s (--rank_timeout)",
                 m->rank, s->timeout);
    return m;
}
