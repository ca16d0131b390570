/* stop.c - handlers of signals; see stop.h. The signal handlers call only async-signal-safe
 * functions. */
#define _POSIX_C_SOURCE 200809L /* timer_create */
#include "launch/stop.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "launch/roster.h"

static _Atomic(xd_engine *)  watched;
static volatile sig_atomic_t received; /* first termination signal that was received; 0: none */

static void on_signal(int sig)
{
    xd_engine *g = atomic_load(&watched);
    if (received || !g || xd_out_streams()) { /* exit without cancelling if output is written to a
                                                  pipe, because writing to a pipe without a reader
                                                  would block */
        xd_output_sweep();
        _exit(128 + sig);
    }
    received = sig;
    xd_cancel(g);
}

static void on_end(int sig)
{
    xd_output_sweep();
    _exit(128 + sig);
}

/* ---- SIGBUS, raised for a missing page of a mapped file -------------------------------------- */

typedef struct line {
    char   v[4600];
    size_t n;
} line;

static void write_text(line *l, const char *text)
{
    while (*text && l->n < sizeof l->v)
        l->v[l->n++] = *text++;
}

/* Parses a hexadecimal number that ends before `end`. */
static uintptr_t read_hex(const char *p, char end)
{
    uintptr_t v = 0;
    for (; *p && *p != end; p++)
        v = v * 16 + (uintptr_t)(*p <= '9' ? *p - '0' : *p - 'a' + 10);
    return v;
}

/* Returns the file name in a line of /proc/self/maps if the memory mapping of this line contains
 * the page; else NULL. */
static const char *file_of(const char *row, uintptr_t page)
{
    const char *dash = strchr(row, '-'), *name = strchr(row, '/');
    return dash && name && page >= read_hex(row, '-') && page < read_hex(dash + 1, ' ') ? name
                                                                                        : NULL;
}

/* Finds the file that is mapped at the page. If a file is mapped at the page, writes the name of
 * the file to `row` and returns 1; otherwise returns 0. */
static int find_file(uintptr_t page, char *row, size_t size)
{
    char    buf[1024];
    size_t  n = 0;
    ssize_t got;
    int     fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && (got = read(fd, buf, sizeof buf)) > 0)
        for (ssize_t i = 0; i < got; i++) {
            if (buf[i] != '\n') {
                row[n] = buf[i];
                n += n < size - 1;
                continue;
            }
            row[n] = 0;
            n = 0;
            const char *name = file_of(row, page);
            if (name) {
                memmove(row, name, strlen(name) + 1);
                close(fd);
                return 1;
            }
        }
    if (fd >= 0)
        close(fd);
    return 0;
}

/* Handles SIGBUS: a page of a mapped file is missing, so the engine cannot continue. The first
 * thread that receives SIGBUS prints the error and ends the process; other threads that receive
 * SIGBUS wait until the process ends. */
static void on_lost_page(int sig, siginfo_t *info, void *context)
{
    static atomic_flag reported = ATOMIC_FLAG_INIT;
    static char        row[4200];
    static line        l;
    (void)sig;
    (void)context;
    while (atomic_flag_test_and_set(&reported))
        pause();
    int known = info->si_code > 0 && find_file((uintptr_t)info->si_addr, row, sizeof row);
    write_text(&l, "xdit: ");
    if (known && (strncmp(row, "/dev/shm/", 9) == 0 || strncmp(row, "/memfd:", 7) == 0))
        write_text(&l,
                   "no memory for messages between ranks: /dev/shm, or the memory of this host, is "
                   "full");
    else if (known)
        write_text(&l, row),
            write_text(&l, " was truncated while it was in use, or cannot be read: restore the "
                           "complete file and run again");
    else
        write_text(&l, "a file of the model was truncated while it was in use, or /dev/shm is "
                       "full");
    write_text(&l, "\n");
    ssize_t written = write(STDERR_FILENO, l.v, l.n);
    (void)written;
    xd_roster_report(XD_ROSTER_ERROR);
    xd_output_sweep();
    _exit(1);
}

void xd_stop_arm_sigbus(void)
{
    struct sigaction lost = { .sa_sigaction = on_lost_page, .sa_flags = SA_SIGINFO };
    sigemptyset(&lost.sa_mask);
    sigaction(SIGBUS, &lost, NULL);
}

/* ---- handling of the limit of CPU time ------------------------------------------------------- */

static char time_line[96];

static void on_time(int sig)
{
    (void)sig;
    ssize_t written = write(STDERR_FILENO, time_line, strlen(time_line));
    (void)written;
    xd_roster_report(XD_ROSTER_ERROR);
    xd_output_sweep();
    _exit(1);
}

/* Handles the limit of CPU time. The kernel sends SIGXCPU at the soft limit and SIGKILL at the hard
 * limit. If the two limits are equal, a timer sends SIGXCPU at 90 % of the limit, but at least 0.3
 * s before the limit. */
void xd_stop_arm_sigxcpu(void)
{
    struct sigaction act = { .sa_handler = on_time };
    struct sigevent  event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGXCPU };
    struct rlimit    l;
    timer_t          timer;
    if (getrlimit(RLIMIT_CPU, &l) != 0 || l.rlim_cur == RLIM_INFINITY)
        return;
    snprintf(time_line, sizeof time_line,
             "xdit: the limit of %llu s of CPU time is reached (ulimit -t)\n",
             (unsigned long long)l.rlim_cur);
    sigemptyset(&act.sa_mask);
    sigaction(SIGXCPU, &act, NULL);
    if (l.rlim_cur == l.rlim_max && timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer) == 0) {
        long long         all = (long long)(l.rlim_cur < 1000000 ? l.rlim_cur : 1000000) * 1000,
                          ms = all - (all > 3000 ? all / 10 : 300);
        struct itimerspec at = { .it_value = { ms / 1000, ms % 1000 * 1000000 } };
        timer_settime(timer, TIMER_ABSTIME, &at, NULL);
    }
}

/* Handles SIGUSR1, which cancels the request. The launcher's parent process repeats SIGUSR1 until
 * all ranks have ended; only the first SIGUSR1 has an effect. */
static void on_cancel(int sig)
{
    (void)sig;
    if (!received)
        on_signal(SIGINT);
}

void xd_stop_arm_rank(void)
{
    struct sigaction cancel = { .sa_handler = on_cancel, .sa_flags = SA_RESTART };
    struct sigaction end = { .sa_handler = on_end, .sa_flags = SA_RESTART };
    xd_stop_arm();
    sigemptyset(&cancel.sa_mask);
    sigemptyset(&end.sa_mask);
    sigaction(SIGUSR1, &cancel, NULL);
    sigaction(SIGTERM, &end, NULL);
}

/* Handles SIGINT and SIGTERM even if they were ignored: shells start background commands of a
 * script with SIGINT ignored, but a SIGINT that somebody sends to such a process is meant for
 * it. */
void xd_stop_arm(void)
{
    struct sigaction act = { .sa_handler = on_signal, .sa_flags = SA_RESTART }, old;
    sigemptyset(&act.sa_mask);
    sigaddset(&act.sa_mask, SIGINT);
    sigaddset(&act.sa_mask, SIGTERM);
    sigaddset(&act.sa_mask, SIGHUP);
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    if (sigaction(SIGHUP, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &act, NULL);
}

void xd_stop_watch(xd_engine *g)
{
    atomic_store(&watched, g);
}

int xd_stop_signal(void)
{
    xd_engine *g = atomic_load(&watched);
    if (received && g)
        xd_cancel(g);
    return received;
}
