/* links.c - connections of a rank to other hosts; see links.h */
#define _GNU_SOURCE             /* struct tcp_info */
#include "cli/links.h"

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

/* An idle connection is asked after IDLE_S and then every ASK_S: the third question has no answer
 * after 8 s. What was sent is repeated after 0.2 s and then twice as late each time: the fifth
 * time after 6 s, the sixth after 13. The system itself gives up after ENOUGH questions, by when
 * this is long said. Ranks but 0 wait LATER_S, the difference of these times. */
enum { IDLE_S = 4, ASK_S = 2, ENOUGH = 60, REPEATS = 5, QUESTIONS = 3, LATER_S = 8 };
enum { STACK = 256 << 10 };

/* ---- a connection ---------------------------------------------------------------------------- */

static int is_this_host(const struct sockaddr_storage *a)
{
    const struct sockaddr_in  *v4 = (const struct sockaddr_in *)a;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a;
    if (a->ss_family == AF_INET)
        return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    return a->ss_family != AF_INET6 || IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

/* Has the other side of a connection confirmed nothing for long? */
static int is_lost(int fd, struct sockaddr_storage *peer)
{
    struct tcp_info t = { 0 };
    socklen_t       n = sizeof *peer, size = sizeof t;
    int             on = 1, idle = IDLE_S, ask = ASK_S, enough = ENOUGH;
    if (getpeername(fd, (struct sockaddr *)peer, &n) != 0 || is_this_host(peer) ||
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, &t, &size) != 0)
        return 0;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &ask, sizeof ask);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &enough, sizeof enough);
    return t.tcpi_state == TCP_ESTABLISHED &&
           (t.tcpi_retransmits >= REPEATS || t.tcpi_probes >= QUESTIONS);
}

static void name_of(const struct sockaddr_storage *a, char *host, int size)
{
    const struct sockaddr_in  *v4 = (const struct sockaddr_in *)a;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a;
    const void *of = a->ss_family == AF_INET ? (const void *)&v4->sin_addr : &v6->sin6_addr;
    if (!inet_ntop(a->ss_family, of, host, (socklen_t)size))
        snprintf(host, (size_t)size, "?");
}

int xd_links_lost(char *host, int size)
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

/* ---- a thread that watches ------------------------------------------------------------------ */

/* A launcher ends all ranks when the first has ended, so that others give rank 0 time to speak. */
static void *watch_links(void *arg)
{
    int  rank = (int)(intptr_t)arg;
    char host[INET6_ADDRSTRLEN];
    while (!xd_links_lost(host, sizeof host))
        nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL);
    if (rank)
        nanosleep(&(struct timespec){ .tv_sec = LATER_S }, NULL);
    fprintf(stderr, "xdit: rank %d: the connection to host %s is lost: its ranks can no longer be "
            "reached, and the run ends\n", rank, host);
    xd_output_sweep();
    _exit(1);
}

/* Without a thread the launcher is waited for. */
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
        xd_log(XD_LOG_DEBUG, "no thread to look after connections");
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
}
