/* test_cli_roster.c - when a launcher is given up that starts ranks slowly */
#define _POSIX_C_SOURCE 200809L /* kill, poll */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "launch/roster.h"

enum { RANKS = 8 };

/* Also where the test fails, which kills nobody. */
static void wait_for_end(void)
{
    alarm(20);
    for (;;)
        pause();
}

/* A process that stands for a launcher: rank 0 says hello, `more` others are started and silent. */
static pid_t launcher_of(int more)
{
    pid_t p = fork();
    if (p != 0)
        return p;
    for (int i = 0; i <= more; i++)
        if (fork() == 0) {
            if (i == 0)
                xd_roster_join(0);
            wait_for_end();
        }
    wait_for_end();
    return 0;
}

/* Looks for so many seconds; 1: the run is over, and why. */
static int over_within(xd_roster *r, pid_t launcher, double s, char *why, size_t size)
{
    struct pollfd p[RANKS + 1];
    double        began = xd_now_s();
    while (xd_now_s() - began < s) {
        int n = xd_roster_fds(r, p);
        poll(p, (nfds_t)n, 100);
        xd_roster_read(r, p, n);
        if (xd_roster_failed(r, launcher, 60, why, size))
            return 1;
    }
    return 0;
}

/* A busy machine starts ranks one after the other, with seconds between them. Those that were not
 * started yet have not ended. */
static void slow_starts_are_waited_for(void **state)
{
    xd_roster r = { .listener = -1, .ranks = RANKS };
    char      why[256] = "";
    (void)state;
    xd_roster_open(&r, RANKS);
    assert_true(r.listener >= 0);
    pid_t launcher = launcher_of(RANKS - 3);
    assert_true(launcher > 0);
    if (over_within(&r, launcher, 6.2, why, sizeof why))
        fail_msg("given up: %s", why);
    assert_int_equal(r.n, 1);
    assert_int_equal(r.max_processes, RANKS - 2);
    /* For ever is too long. */
    assert_int_equal(over_within(&r, launcher, 6, why, sizeof why), 1);
    assert_non_null(strstr(why, "has ended during its start"));
    xd_roster_kill(&r, launcher);
    kill(launcher, SIGKILL);
    waitpid(launcher, NULL, 0);
    xd_roster_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slow_starts_are_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
