/* stop.c - signals. Everything in the handler is async-signal-safe. */
#include "cli/stop.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#include "base/file.h"

static _Atomic(xd_engine *)  watched;
static volatile sig_atomic_t came;

static void on_signal(int sig)
{
    xd_engine *g = atomic_load(&watched);
    if (came || !g || xd_out_streams()) {       /* a pipe without a reader is waited for             */
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

/* A page that was mapped is not there any more. Nothing of the engine can go on, or be asked. */
static void on_lost_page(int sig)
{
    static const char what[] = "xdit: a file of the model was cut off while it was in use, or /dev/shm is full\n";
    ssize_t           said = write(STDERR_FILENO, what, sizeof what - 1);
    (void)sig;
    (void)said;
    xd_output_sweep();
    _exit(1);
}

/* The launcher is told again until all ranks have ended: once cancelled, a rank finishes in its own time. */
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
    struct sigaction lost = { .sa_handler = on_lost_page };
    sigemptyset(&lost.sa_mask);
    sigemptyset(&act.sa_mask);
    sigaddset(&act.sa_mask, SIGINT);
    sigaddset(&act.sa_mask, SIGTERM);
    sigaddset(&act.sa_mask, SIGHUP);
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGBUS, &lost, NULL);
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
