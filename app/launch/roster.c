/* roster.c - tracks ranks over socket connections; see roster.h */
#define _GNU_SOURCE /* struct ucred, accept4 */
#include "launch/roster.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/connected.h"
#include "launch/descendants.h"

static const char ROSTER[] = "XDIT_ROLL"; /* environment variable with the name of the
                                                     roster's socket */

/* After most deaths of ranks the launcher ends the run itself. After the death of a rank, the
 * launcher has a time limit to end the run: START_GRACE_S seconds if ranks are still starting,
 * RUN_GRACE_S seconds if all ranks have started. A rank that never connected to the roster counts
 * as dead after SILENT_S seconds without any change, plus SILENT_PER_RANK_S seconds for each
 * rank. */
static const double START_GRACE_S = 3, RUN_GRACE_S = 15, SILENT_S = 5, SILENT_PER_RANK_S = 0.25;

typedef struct notice { int32_t event, rank; } notice;

/* Makes the address of a socket with an abstract name, which begins with a zero byte. Returns the
 * length of the socket address. */
static socklen_t make_address(struct sockaddr_un *a, const char *name)
{
    size_t n = strlen(name);
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    if (n > sizeof a->sun_path - 1)
        n = sizeof a->sun_path - 1;
    memcpy(a->sun_path + 1, name, n);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

/* ---- functions that a rank calls ------------------------------------------------------------- */

/* connection: socket of this rank's connection to the roster; -1: not connected */
static int connection = -1, my_rank;

static void on_connected(void)
{
    xd_roster_report(XD_ROSTER_CONNECTED);
}

void xd_roster_report(xd_roster_event event)
{
    notice n = { (int32_t)event, my_rank };
    if (connection >= 0 && send(connection, &n, sizeof n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return; /* the parent process has ended, so that nobody reads the roster's socket */
}

void xd_roster_join(int rank)
{
    const char        *name = getenv(ROSTER);
    struct sockaddr_un a;
    int                fd = name && *name ? socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0) : -1;
    if (fd < 0)
        return;
    if (connect(fd, (struct sockaddr *)&a, make_address(&a, name)) != 0) {
        close(fd);
        return;
    }
    connection = fd;
    my_rank = rank;
    xd_roster_report(XD_ROSTER_STARTED);
    xd_connected_hook(on_connected);
    unsetenv(ROSTER); /* child processes of this rank must not connect to the roster */
}

int xd_roster_joined(void)
{
    return connection >= 0;
}

/* ---- functions that the process that starts ranks calls -------------------------------------- */

void xd_roster_open(xd_roster *r, int ranks)
{
    struct sockaddr_un a;
    char               name[64];
    *r = (xd_roster){ .listener = -1, .ranks = ranks, .start_s = xd_now_s() };
    r->changed_s = r->start_s;
    snprintf(name, sizeof name, "xdit.%ld.%lld", (long)getpid(), (long long)xd_now_ns());
    r->m = calloc((size_t)ranks, sizeof *r->m);
    int fd = r->m ? socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
    if (fd >= 0 && bind(fd, (struct sockaddr *)&a, make_address(&a, name)) == 0 &&
        listen(fd, ranks) == 0 && setenv(ROSTER, name, 1) == 0) {
        r->listener = fd;
        return;
    }
    if (fd >= 0)
        close(fd);
    unsetenv(ROSTER);
}

void xd_roster_close(xd_roster *r)
{
    for (int i = 0; i < r->n; i++)
        if (r->m[i].fd >= 0)
            close(r->m[i].fd);
    if (r->listener >= 0)
        close(r->listener);
    free(r->m);
    unsetenv(ROSTER);
    *r = (xd_roster){ .listener = -1 };
}

int xd_roster_fds(const xd_roster *r, struct pollfd *p)
{
    int k = 0;
    if (r->listener >= 0 && r->n < r->ranks)
        p[k++] = (struct pollfd){ .fd = r->listener, .events = POLLIN };
    for (int i = 0; i < r->n; i++)
        if (r->m[i].fd >= 0)
            p[k++] = (struct pollfd){ .fd = r->m[i].fd, .events = POLLIN };
    return k;
}

/* Returns the exit status of a process that its parent has not waited for, from the last field of
 * /proc/PID/stat; -1: unknown. */
static int status_of(pid_t pid)
{
    char  path[64], line[1024];
    FILE *f;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    if (pid <= 0 || !(f = fopen(path, "r")))
        return -1;
    size_t n = fread(line, 1, sizeof line - 1, f);
    fclose(f);
    line[n] = 0;
    char *last = strrchr(line, ' ');
    return last ? atoi(last + 1) : -1;
}

static void add_member(xd_roster *r)
{
    struct ucred who;
    socklen_t    size = sizeof who;
    int          fd = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 || who.uid != geteuid()) {
        close(fd); /* the roster refuses connections from processes of other users */
        return;
    }
    r->m[r->n++] = (xd_member){ .fd = fd, .rank = -1, .pid = who.pid, .status = -1 };
    r->changed_s = xd_now_s();
}

static void note_step(xd_member *m, int event, double now)
{
    if (event == XD_ROSTER_STAGE)
        m->step_s = 0;
    if (event != XD_ROSTER_STEP)
        return;
    if (m->step_s > 0 && now - m->step_s > m->slowest_s)
        m->slowest_s = now - m->step_s;
    m->step_s = now;
}

static void receive_notices(xd_roster *r, xd_member *m)
{
    notice  n;
    ssize_t k;
    while ((k = recv(m->fd, &n, sizeof n, 0)) == (ssize_t)sizeof n) {
        m->rank = n.rank;
        m->connected |= n.event == XD_ROSTER_CONNECTED;
        m->done |= n.event == XD_ROSTER_DONE;
        r->error_reported |= n.event == XD_ROSTER_ERROR;
        r->changed_s = xd_now_s();
        note_step(m, n.event, r->changed_s);
    }
    if (k < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    m->status = status_of(m->pid);
    m->died_s = r->changed_s = xd_now_s();
    close(m->fd);
    m->fd = -1;
}

void xd_roster_read(xd_roster *r, const struct pollfd *p, int n)
{
    for (int k = 0; k < n; k++) {
        if (!p[k].revents)
            continue;
        if (p[k].fd == r->listener) {
            add_member(r);
            continue;
        }
        for (int i = 0; i < r->n; i++)
            if (r->m[i].fd == p[k].fd)
                receive_notices(r, &r->m[i]);
    }
}

static int all_connected(const xd_roster *r)
{
    int connected = 0;
    for (int i = 0; i < r->n; i++)
        connected += r->m[i].connected;
    return connected == r->ranks;
}

/* ---- failures -------------------------------------------------------------------------------- */

void xd_roster_kill(const xd_roster *r, pid_t launcher)
{
    for (int i = 0; i < r->n; i++)
        if (r->m[i].fd >= 0 && r->m[i].pid > 0) /* a connected rank still runs, so no other
                                                           process has its pid */
            kill(r->m[i].pid, SIGKILL);
    xd_descendants_signal(launcher, SIGKILL);
}

static void describe_member(const xd_member *m, char *text, size_t size)
{
    int s = m->status;
    if (s > 0 && WIFSIGNALED(s))
        snprintf(text, size, "rank %d was killed by signal %d", m->rank, WTERMSIG(s));
    else if (s > 0 && WIFEXITED(s) && WEXITSTATUS(s) > 128)
        snprintf(text, size, "rank %d was ended by signal %d", m->rank, WEXITSTATUS(s) - 128);
    else if (s >= 0 && WIFEXITED(s))
        snprintf(text, size, "rank %d ended with exit code %d", m->rank, WEXITSTATUS(s));
    else
        snprintf(text, size,
                 "rank %d (process %ld) has ended, and the launcher does not report why", m->rank,
                 (long)m->pid);
}

int xd_roster_first_death(const xd_roster *r, char *why, size_t size)
{
    const xd_member *first = NULL;
    for (int i = 0; i < r->n; i++) {
        const xd_member *m = &r->m[i];
        if (m->fd < 0 && !m->done && m->status > 0 && (!first || m->died_s < first->died_s))
            first = m;
    }
    if (first)
        describe_member(first, why, size);
    return first != NULL;
}

/* Lists the ranks that have not connected to the roster: "1, 3 and 5 more". */
static void name_missing(const xd_roster *r, char *text, size_t size)
{
    enum { NAMED = 4 };
    size_t n = 0;
    int    named = 0, missing = r->ranks - r->n;
    text[0] = 0;
    for (int rank = 0; rank < r->ranks && named < NAMED && n < size; rank++) {
        int known = 0;
        for (int i = 0; i < r->n; i++)
            known |= r->m[i].rank == rank;
        if (!known)
            n += (size_t)snprintf(text + n, size - n, "%s%d", named++ ? ", " : "", rank);
    }
    if (missing > named && n < size)
        snprintf(text + n, size - n, " and %d more", missing - named);
}

/* Returns 1 if a rank has ended before it connected to the roster, and writes a sentence about this
 * rank to `why`. */
static int died_in_start(xd_roster *r, pid_t launcher, double now, char *why, size_t size)
{
    char who[96];
    int  count = r->n < r->ranks ? xd_descendants_signal(launcher, 0) : -1;
    if (count != r->processes)
        r->changed_s = now;
    r->processes = count;
    r->max_processes = count > r->max_processes ? count : r->max_processes;
    /* all_started: 1 if the processes of all ranks have run at the same time, or if the number of
     * running processes has decreased. If all_started is 0, some ranks may not have been started
     * yet, because a busy machine waits between two starts. */
    int    begun = r->n || r->max_processes >= r->ranks,
           all_started = count < r->max_processes || r->max_processes >= r->ranks;
    double silent = all_started ? SILENT_S : SILENT_S + SILENT_PER_RANK_S * r->ranks;
    if (!begun || count < 0 || count >= r->ranks || now - r->changed_s < silent)
        return 0;
    name_missing(r, who, sizeof who);
    snprintf(why, size, "rank %s has ended during its start, and the launcher does not report why",
             who);
    return 1;
}

static int is_timed_out(const xd_roster *r, double now, double limit, char *why, size_t size)
{
    char who[96];
    if (limit <= 0 || now - r->start_s < limit)
        return 0;
    name_missing(r, who, sizeof who);
    snprintf(why, size,
             "%d ranks have not connected within %g s: %s%s; test the launcher by mpirun -n 2 "
             "hostname, or raise --start_timeout",
             r->ranks, limit, who[0] ? "missing is rank " : "all of them are waiting", who);
    return 1;
}

int xd_roster_failed(xd_roster *r, pid_t launcher, double limit, char *why, size_t size)
{
    double now = xd_now_s();
    int    connected = all_connected(r);
    if (r->listener < 0)
        return 0;
    for (int i = 0; i < r->n; i++) {
        const xd_member *m = &r->m[i];
        if (m->fd >= 0 || m->done || now - m->died_s < (connected ? RUN_GRACE_S : START_GRACE_S))
            continue;
        describe_member(m, why, size);
        if (!connected && strlen(why) + 40 < size)
            strcat(why, " while the ranks were starting");
        return 1;
    }
    return !connected &&
           (died_in_start(r, launcher, now, why, size) || is_timed_out(r, now, limit, why, size));
}
