/* stop.c - signals. Everything in the handler is async-signal-safe. */
#define _POSIX_C_SOURCE 200809L /* timer_create */
#include "cli/stop.h"

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
#include "cli/roll.h"

static _Atomic(xd_engine *)  watched;
static volatile sig_atomic_t came;

static void on_signal(int sig)
{
    xd_engine *g = atomic_load(&watched);
    if (came || !g || xd_out_streams()) {  /* a pipe without a reader is waited for */
        xd_output_sweep();
        _exit(128 + sig);
    }
    came = sig;
    xd_cancel(g);
}

static void on_end(int sig)
{
    xd_output_sweep();
    _exit(128 + sig);
}

/* ---- a page that was mapped and is not there any more ---------------------------------------- */

typedef struct line { char v[4600]; size_t n; } line;

static void write_text(line *l, const char *text)
{
    while (*text && l->n < sizeof l->v)
        l->v[l->n++] = *text++;
}

/* The number that ends before `end`, in hexadecimal. */
static uintptr_t read_hex(const char *p, char end)
{
    uintptr_t v = 0;
    for (; *p && *p != end; p++)
        v = v * 16 + (uintptr_t)(*p <= '9' ? *p - '0' : *p - 'a' + 10);
    return v;
}

/* Is the page in the mapping that a line of /proc/self/maps tells of? Its file's name, or NULL. */
static const char *file_of(const char *row, uintptr_t page)
{
    const char *dash = strchr(row, '-'), *name = strchr(row, '/');
    return dash && name && page >= read_hex(row, '-') && page < read_hex(dash + 1, ' ') ? name
                                                                                        : NULL;
}

/* Finds the file whose page it is: 1, and its name is in `row`. */
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

/* Nothing of the engine can go on, or be asked. The first thread speaks and ends the process;
 * others wait for that. */
static void on_lost_page(int sig, siginfo_t *info, void *context)
{
    static atomic_flag spoken = ATOMIC_FLAG_INIT;
    static char        row[4200];
    static line        l;
    (void)sig;
    (void)context;
    while (atomic_flag_test_and_set(&spoken))
        pause();
    int known = info->si_code > 0 && find_file((uintptr_t)info->si_addr, row, sizeof row);
    write_text(&l, "xdit: ");
    if (known && (strncmp(row, "/dev/shm/", 9) == 0 || strncmp(row, "/memfd:", 7) == 0))
        write_text(&l,
                   "memory for messages between ranks is missing: /dev/shm, or the memory of this "
                   "host, is full");
    else if (known)
        write_text(&l, row),
            write_text(&l, " was cut off while it was in use, or cannot be read: run it again "
                           "with the whole file");
    else
        write_text(&l, "a file of the model was cut off while it was in use, or /dev/shm is full");
    write_text(&l, "\n");
    ssize_t said = write(STDERR_FILENO, l.v, l.n);
    (void)said;
    xd_roll_say(XD_ROLL_SAID);
    xd_output_sweep();
    _exit(1);
}

void xd_stop_arm_lost(void)
{
    struct sigaction lost = { .sa_sigaction = on_lost_page, .sa_flags = SA_SIGINFO };
    sigemptyset(&lost.sa_mask);
    sigaction(SIGBUS, &lost, NULL);
}

/* ---- processor time -------------------------------------------------------------------------- */

static char time_line[96];

static void on_time(int sig)
{
    (void)sig;
    ssize_t said = write(STDERR_FILENO, time_line, strlen(time_line));
    (void)said;
    xd_roll_say(XD_ROLL_SAID);
    xd_output_sweep();
    _exit(1);
}

/* The system sends SIGXCPU at the soft limit and kills at the hard one. Where both are the same a
 * timer sends it at nine tenths, and at least 0.3 s before: threads use it up together. */
void xd_stop_arm_time(void)
{
    struct sigaction act = { .sa_handler = on_time };
    struct sigevent  event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGXCPU };
    struct rlimit    l;
    timer_t          timer;
    if (getrlimit(RLIMIT_CPU, &l) != 0 || l.rlim_cur == RLIM_INFINITY)
        return;
    snprintf(time_line, sizeof time_line,
             "xdit: the %llu s of processor time that are allowed (ulimit -t) are used up\n",
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

/* The launcher is told again until all ranks have ended: once cancelled, a rank finishes in its
 * own time. */
static void on_cancel(int sig)
{
    (void)sig;
    if (!came)
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

/* SIGINT and SIGTERM are taken even where they were ignored: a shell starts background commands
 * of a script with SIGINT ignored, and who sends it to one means it. */
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

int xd_stop_asked(void)
{
    xd_engine *g = atomic_load(&watched);
    if (came && g)
        xd_cancel(g);
    return came;
}
