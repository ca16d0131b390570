/* roll.c - the roll of the ranks; see roll.h */
#define _GNU_SOURCE             /* struct ucred, accept4 */
#include "cli/roll.h"

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
#include "cli/below.h"

static const char ROLL[] = "XDIT_ROLL";         /* the socket's name, in the environment of ranks */

/* The launcher has so long to end the run by itself, as it does after most deaths: while ranks
 * start, later, and after the last that was heard of a rank that has never said a word. */
static const double SOON_S = 3, LATE_S = 15, SILENT_S = 5, SILENT_A_RANK_S = 0.25;

typedef struct note { int32_t what, rank; } note;

/* A name that is in no directory begins with a zero byte. */
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

/* ---- a rank ---------------------------------------------------------------------------------- */

static int mine = -1, my_rank;

static void on_met(void)
{
    xd_roll_say(XD_ROLL_MET);
}

void xd_roll_say(xd_roll_word what)
{
    note n = { (int32_t)what, my_rank };
    if (mine >= 0 && send(mine, &n, sizeof n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return;                 /* who started this process has gone, and is asked for nothing   */
}

void xd_roll_join(int rank)
{
    const char        *name = getenv(ROLL);
    struct sockaddr_un a;
    int                fd = name && *name ? socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0) : -1;
    if (fd < 0)
        return;
    if (connect(fd, (struct sockaddr *)&a, make_address(&a, name)) != 0) {
        close(fd);
        return;
    }
    mine = fd;
    my_rank = rank;
    xd_roll_say(XD_ROLL_HELLO);
    xd_connected_hook(on_met);
    unsetenv(ROLL);             /* it is this process's roll, and not its children's           */
}

int xd_roll_joined(void)
{
    return mine >= 0;
}

/* ---- who starts ranks ------------------------------------------------------------------------ */

void xd_roll_open(xd_roll *r, int ranks)
{
    struct sockaddr_un a;
    char               name[64];
    *r = (xd_roll){ .listener = -1, .ranks = ranks, .began_s = xd_now_s() };
    r->changed_s = r->began_s;
    snprintf(name, sizeof name, "xdit.%ld.%lld", (long)getpid(), (long long)xd_now_ns());
    r->m = calloc((size_t)ranks, sizeof *r->m);
    int fd = r->m ? socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
    if (fd >= 0 && bind(fd, (struct sockaddr *)&a, make_address(&a, name)) == 0 &&
        listen(fd, ranks) == 0 && setenv(ROLL, name, 1) == 0) {
        r->listener = fd;
        return;
    }
    if (fd >= 0)
        close(fd);
    unsetenv(ROLL);
}

void xd_roll_close(xd_roll *r)
{
    for (int i = 0; i < r->n; i++)
        if (r->m[i].fd >= 0)
            close(r->m[i].fd);
    if (r->listener >= 0)
        close(r->listener);
    free(r->m);
    unsetenv(ROLL);
    *r = (xd_roll){ .listener = -1 };
}

int xd_roll_fds(const xd_roll *r, struct pollfd *p)
{
    int k = 0;
    if (r->listener >= 0 && r->n < r->ranks)
        p[k++] = (struct pollfd){ .fd = r->listener, .events = POLLIN };
    for (int i = 0; i < r->n; i++)
        if (r->m[i].fd >= 0)
            p[k++] = (struct pollfd){ .fd = r->m[i].fd, .events = POLLIN };
    return k;
}

/* How a process is ending or has ended, while its parent has not asked: the last field of its
 * line in /proc. */
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

static void add_member(xd_roll *r)
{
    struct ucred who;
    socklen_t    size = sizeof who;
    int          fd = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 || who.uid != geteuid()) {
        close(fd);              /* somebody else's process                                      */
        return;
    }
    r->m[r->n++] = (xd_member){ .fd = fd, .rank = -1, .pid = who.pid, .status = -1 };
    r->changed_s = xd_now_s();
}

static void receive_notice(xd_roll *r, xd_member *m)
{
    note    n;
    ssize_t k;
    while ((k = recv(m->fd, &n, sizeof n, 0)) == (ssize_t)sizeof n) {
        m->rank = n.rank;
        m->met |= n.what == XD_ROLL_MET;
        m->bye |= n.what == XD_ROLL_BYE;
        r->said |= n.what == XD_ROLL_SAID;
        r->changed_s = xd_now_s();
    }
    if (k < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    m->status = status_of(m->pid);
    m->gone_s = r->changed_s = xd_now_s();
    close(m->fd);
    m->fd = -1;
}

void xd_roll_take(xd_roll *r, const struct pollfd *p, int n)
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
                receive_notice(r, &r->m[i]);
    }
}

int xd_roll_met(const xd_roll *r)
{
    int met = 0;
    for (int i = 0; i < r->n; i++)
        met += r->m[i].met;
    return met == r->ranks;
}

/* ---- judging --------------------------------------------------------------------------------- */

void xd_roll_kill(const xd_roll *r, pid_t launcher)
{
    for (int i = 0; i < r->n; i++)
        if (r->m[i].fd >= 0 && r->m[i].pid > 0)         /* it lives: its number is nobody else's */
            kill(r->m[i].pid, SIGKILL);
    xd_below_signal(launcher, SIGKILL);
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
                 "rank %d (process %ld) has ended, and the launcher does not report how",
                 m->rank, (long)m->pid);
}

int xd_roll_gone(const xd_roll *r, char *why, size_t size)
{
    const xd_member *first = NULL;
    for (int i = 0; i < r->n; i++) {
        const xd_member *m = &r->m[i];
        if (m->fd < 0 && !m->bye && m->status > 0 && (!first || m->gone_s < first->gone_s))
            first = m;
    }
    if (first)
        describe_member(first, why, size);
    return first != NULL;
}

/* "1, 3 and 5 more" of the ranks that were not heard of. */
static void name_missing(const xd_roll *r, char *text, size_t size)
{
    enum { NAMED = 4 };
    size_t n = 0;
    int    named = 0, missing = r->ranks - r->n;
    text[0] = 0;
    for (int rank = 0; rank < r->ranks && named < NAMED && n < size; rank++) {
        int heard = 0;
        for (int i = 0; i < r->n; i++)
            heard |= r->m[i].rank == rank;
        if (!heard)
            n += (size_t)snprintf(text + n, size - n, "%s%d", named++ ? ", " : "", rank);
    }
    if (missing > named && n < size)
        snprintf(text + n, size - n, " and %d more", missing - named);
}

/* A rank that has ended before it could say a word. */
static int has_lost_one(xd_roll *r, pid_t launcher, double now, char *why, size_t size)
{
    char who[96];
    int  leaves = r->n < r->ranks ? xd_below_signal(launcher, 0) : -1;
    if (leaves != r->leaves)
        r->changed_s = now;
    r->leaves = leaves;
    r->most = leaves > r->most ? leaves : r->most;
    /* Not below the launcher, or on their way: a busy machine takes its time between two starts,
     * which one of many ranks that was never counted is given. */
    int    begun = r->n || r->most >= r->ranks, counted = leaves < r->most || r->most >= r->ranks;
    double silent = counted ? SILENT_S : SILENT_S + SILENT_A_RANK_S * r->ranks;
    if (!begun || leaves < 0 || leaves >= r->ranks || now - r->changed_s < silent)
        return 0;
    name_missing(r, who, sizeof who);
    snprintf(why, size,
             "rank %s has ended while it was started, and the launcher does not report how",
             who);
    return 1;
}

static int is_late(const xd_roll *r, double now, double limit, char *why, size_t size)
{
    char who[96];
    if (limit <= 0 || now - r->began_s < limit)
        return 0;
    name_missing(r, who, sizeof who);
    snprintf(why, size,
             "%d ranks have not met within %g s of their start: %s%s; mpirun -n 2 hostname shows "
             "whether the "
             "launcher works, and --start_timeout gives more time",
             r->ranks, limit, who[0] ? "nothing was heard of rank " : "all of them live and wait",
             who);
    return 1;
}

int xd_roll_over(xd_roll *r, pid_t launcher, double limit, char *why, size_t size)
{
    double now = xd_now_s();
    int    met = xd_roll_met(r);
    if (r->listener < 0)
        return 0;
    for (int i = 0; i < r->n; i++) {
        const xd_member *m = &r->m[i];
        if (m->fd >= 0 || m->bye || now - m->gone_s < (met ? LATE_S : SOON_S))
            continue;
        describe_member(m, why, size);
        if (!met && strlen(why) + 40 < size)
            strcat(why, " while the ranks were starting");
        return 1;
    }
    return !met && (has_lost_one(r, launcher, now, why, size) || is_late(r, now, limit, why, size));
}
