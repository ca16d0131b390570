/* ping.c - starts a program on several hosts, to find out which hosts can be reached; see ping.h */
#define _POSIX_C_SOURCE 200809L /* kill, nanosleep */
#include "launch/ping.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "launch/launch.h"

/* seconds within which a host must answer; a login by ssh takes seconds on a busy host */
enum { PING_S = 15 };

/* Starts the launcher for one host, in a process group of its own. Returns the process id of the
 * launcher; -1: it could not be started. */
static pid_t start(const char *launcher, const char *host)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    int null = open("/dev/null", O_RDWR);
    setpgid(0, 0);
    for (int fd = 0; fd < 3; fd++)
        dup2(null, fd);
    for (int fd = 3; fd < 64; fd++)
        close(fd);
    signal(SIGPIPE, SIG_DFL);
    if (XDIT_MPI == 1 && geteuid() == 0)
        execl(launcher, launcher, "-n", "1", "--allow-run-as-root", "--host", host, "true",
              (char *)NULL);
    else
        execl(launcher, launcher, "-n", "1", XDIT_MPI == 1 ? "--host" : "-hosts", host, "true",
              (char *)NULL);
    _exit(127);
}

int xd_ping_hosts(xd_hosts *h)
{
    const struct timespec pause = { 0, 50000000 };
    char                  launcher[4096];
    xd_err                e = { 0 };
    pid_t                *pid = calloc((size_t)h->n + 1, sizeof *pid);
    int                   open = 0, lost = 0, status;
    double                end_s = xd_now_s() + PING_S;
    if (!pid || xd_launch_program(launcher, sizeof launcher, &e) != XD_OK) {
        free(pid);
        return 0;
    }
    for (int i = 0; i < h->n; i++)
        if (!h->v[i].lost && (pid[i] = start(launcher, h->v[i].name)) > 0)
            open++;
    while (open && xd_now_s() < end_s) {
        for (int i = 0; i < h->n; i++) {
            if (pid[i] <= 0 || waitpid(pid[i], &status, WNOHANG) != pid[i])
                continue;
            pid[i] = 0;
            open--;
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
                lost += h->v[i].lost = 1;
        }
        nanosleep(&pause, NULL);
    }
    for (int i = 0; i < h->n; i++)
        if (pid[i] > 0) {
            kill(-pid[i], SIGKILL);
            waitpid(pid[i], &status, 0);
            lost += h->v[i].lost = 1;
        }
    free(pid);
    return lost;
}
