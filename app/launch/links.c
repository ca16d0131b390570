/* links.c - detects lost connections of a rank to other hosts; see links.h */
#define _GNU_SOURCE /* struct tcp_info */
#include "launch/links.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/signals.h"
#include "xdit/tools.h"

/* TCP keepalive probes an idle connection after IDLE_S seconds and then every PROBE_S seconds. The
 * connection counts as lost when PROBES probes are unanswered, after 8 s. TCP retransmits sent data
 * after 0.2 s and then with doubled delays: the fifth time after 6 s, the sixth time after 13 s.
 * The connection counts as lost after RETRANSMITS retransmissions. The kernel itself would close
 * the connection only after MAX_PROBES probes, which is much later. A rank that is sending data to
 * the lost host notices the loss after 6 s. A rank that begins to send data just before its last
 * keepalive probe notices the loss after 8 + 6 s. Ranks other than 0 wait for LATER_S seconds
 * before they report a lost host, so that rank 0 reports first. LATER_S is the difference between
 * 14 s and 6 s, the longest and the shortest time until a rank notices the loss. */
enum { IDLE_S = 4, PROBE_S = 2, MAX_PROBES = 60, RETRANSMITS = 5, PROBES = 3, LATER_S = 8 };
enum { STACK = 256 << 10 };

/* ---- checks of one TCP connection ------------------------------------------------------------ */

static int is_this_host(const struct sockaddr_storage *a)
{
    const struct sockaddr_in  *v4 = (const struct sockaddr_in *)a;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a;
    if (a->ss_family == AF_INET)
        return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    return a->ss_family != AF_INET6 || IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

/* Returns 1 if the peer of a TCP connection has acknowledged nothing for some 10 s, and sets *peer
 * to the peer's address. is_lost also enables TCP keepalive on the connection. */
static int is_lost(int fd, struct sockaddr_storage *peer)
{
    struct tcp_info t = { 0 };
    socklen_t       n = sizeof *peer, size = sizeof t;
    int             on = 1, idle = IDLE_S, interval = PROBE_S, count = MAX_PROBES;
    if (getpeername(fd, (struct sockaddr *)peer, &n) != 0 || is_this_host(peer) ||
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, &t, &size) != 0)
        return 0;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    return t.tcpi_state == TCP_ESTABLISHED &&
           (t.tcpi_retransmits >= RETRANSMITS || t.tcpi_probes >= PROBES);
}

static void name_of(const struct sockaddr_storage *a, char *host, int size)
{
    const struct sockaddr_in  *v4 = (const struct sockaddr_in *)a;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a;
    const void *of = a->ss_family == AF_INET ? (const void *)&v4->sin_addr : &v6->sin6_addr;
    if (!inet_ntop(a->ss_family, of, host, (socklen_t)size))
        snprintf(host, (size_t)size, "?");
}

/* Checks the TCP connections of this process, and enables keepalive on them. If a host has
 * acknowledged nothing for some 10 s, returns 1 and writes the host's address to `host`; else
 * returns 0. */
static int find_lost_host(char *host, int size)
{
    struct sockaddr_storage peer;
    struct dirent          *d;
    int                     lost = 0;
    DIR                    *dir = opendir("/proc/self/fd");
    while (dir && !lost && (d = readdir(dir)))
        if (d->d_name[0] != '.' && is_lost((int)strtol(d->d_name, NULL, 10), &peer)) {
            name_of(&peer, host, size);
            lost = 1;
        }
    if (dir)
        closedir(dir);
    return lost;
}

/* ---- thread that checks connections ---------------------------------------------------------- */

/* Runs in a thread: checks the connections of this rank. A launcher kills all ranks when the first
 * rank exits, so the other ranks let rank 0 report a lost host first. */
static void *watch_links(void *arg)
{
    int  rank = (int)(intptr_t)arg;
    char host[INET6_ADDRSTRLEN];
    while (!find_lost_host(host, sizeof host))
        nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL);
    if (rank)
        nanosleep(&(struct timespec){ .tv_sec = LATER_S }, NULL);
    fprintf(stderr,
            "xdit: rank %d: lost the connection to host %s: its ranks cannot be reached, "
            "and the run ends\n",
            rank, host);
    xd_output_sweep();
    _exit(1);
}

/* If the thread that checks connections cannot be started, a run with a lost host ends only when
 * the launcher notices the loss. */
void xd_links_watch(int rank)
{
    pthread_attr_t attr;
    pthread_t      thread;
    sigset_t       all, old;
    if (pthread_attr_init(&attr) != 0)
        return;
    pthread_attr_setstacksize(&attr, STACK);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    xd_signals_for_caller(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    if (pthread_create(&thread, &attr, watch_links, (void *)(intptr_t)rank) != 0)
        xd_log(XD_LOG_DEBUG, "cannot start a thread that checks connections");
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
}
