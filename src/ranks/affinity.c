/* affinity.c - binds every rank to a share of its host's cores.
 *
 * A rank is bound to a set of cores, but its threads are not bound to single cores, so that the
 * system may still move a thread away from a busy core. The rank's threads write new memory pages
 * first, so the pages are in memory that is local to the rank's cores. All ranks compute the same
 * division from the same system files, so they need no communication. */
#include "ranks/affinity.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpus.h"
#include "base/log.h"
#include "comm/comm.h"

typedef struct host {
    int       rank, ranks, threads;
    xd_cpuset cpus;
} host;

xd_status xd_affinity_check(const char *bind, xd_err *e)
{
    static const char *const ways[] = { "auto", "cores", "none" };
    for (size_t i = 0; bind && i < sizeof ways / sizeof *ways; i++)
        if (strcmp(bind, ways[i]) == 0)
            return XD_OK;
    return bind ? xd_fail(e, XD_EINVAL, "bind is \"%s\"; it can be one of: auto cores none", bind)
                : XD_OK;
}

/* Returns the environment variable with which the user has bound threads, or NULL. */
static const char *user_binding(void)
{
    static const char *const names[] = { "OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY",
                                         "KMP_AFFINITY" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *v = getenv(names[i]);
        if (v && *v && strcmp(v, "false") != 0 && strcmp(v, "FALSE") != 0)
            return names[i];
    }
    return NULL;
}

/* Computes this rank's share of the host's cores. Returns 0 if the share has fewer CPUs than the
 * rank has threads. */
static int cut_share(const xd_cpus *c, const host *h, xd_cpuset *mine)
{
    xd_cpuset other;
    if (h->ranks == 1)
        return xd_cpus_spread(c, h->threads, mine);
    for (int r = 0; r < h->ranks; r++)
        if (xd_cpus_share(c, r, h->ranks, &other) < h->threads)
            return 0;
    return xd_cpus_share(c, h->rank, h->ranks, mine);
}

/* Binds this rank to its share of the host's cores. Returns 1 if the rank was bound, otherwise 0
 * with the reason in `why`. */
static int bind_to_share(const host *h, char why[160])
{
    xd_cpuset mine;
    xd_cpus   c;
    int       cores;
    if (!xd_cpus_read(&c, NULL, &h->cpus)) {
        snprintf(why, 160, "out of memory");
        return 0;
    }
    int n = cut_share(&c, h, &mine);
    cores = c.cores;
    xd_cpus_free(&c);
    if (!n)
        snprintf(why, 160, "%d rank%s of %d thread%s %s more than the %d core%s there are",
                 h->ranks, h->ranks == 1 ? "" : "s", h->threads, h->threads == 1 ? "" : "s",
                 h->ranks == 1 ? "needs" : "need", cores, cores == 1 ? "" : "s");
    else if (!xd_cpuset_bind(&mine))
        snprintf(why, 160, "the system refused it: %s", strerror(errno));
    else
        return 1;
    return 0;
}

void xd_affinity_bind(const char *bind, int threads)
{
    host        h = { .threads = threads };
    char        why[160] = "", text[128];
    const char *user = user_binding();
    int         cores = bind && strcmp(bind, "cores") == 0;
    if (!bind || strcmp(bind, "none") == 0)
        return;
    int alike = xd_comm_host(&h.rank, &h.ranks, &h.cpus);
    if (!cores && h.ranks < 2)
        return;
    if (user)
        snprintf(why, sizeof why, "%s is set", user);
    else if (!alike)
        snprintf(why, sizeof why, "the launcher has bound the ranks already");
    else if ((int64_t)h.ranks * threads > xd_cpuset_count(&h.cpus))
        snprintf(why, sizeof why, "%d threads are more than the %d cpus", h.ranks * threads,
                 xd_cpuset_count(&h.cpus));
    if (why[0] || !bind_to_share(&h, why))
        xd_log(cores ? XD_LOG_WARN : XD_LOG_DEBUG, "ranks of this host are not bound to cores: %s",
               why);
    else if (h.ranks == 1 && xd_cpuset_mine(&h.cpus))
        xd_log(XD_LOG_DEBUG, "rank %d on cpus %s", h.rank,
               xd_cpuset_text(&h.cpus, text, sizeof text));
}
