/* cli.c - ends commands, prints their output, and stores the start time of the process; see
 * cli.h */
#include "cli/cli.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "launch/roster.h"

static const char STARTED[] = "XDIT_STARTED"; /* environment variable with the start time of the
                                                   process, in seconds of the monotonic clock */
static double     started_s;

int xd_cli_exit(xd_status s, const xd_err *e)
{
    if (s == XD_OK)
        return XD_EXIT_OK;
    fprintf(stderr, "xdit: %s\n", e->msg[0] ? e->msg : xd_status_name(s));
    xd_roster_report(XD_ROSTER_ERROR);
    return s == XD_EINVAL ? XD_EXIT_USAGE : XD_EXIT_FAILED;
}

/* Prints a text and a newline, with ? in place of control characters. */
static void print_clean(const char *text)
{
    char *clean = strdup(text);
    if (!clean)
        return;
    xd_clean(clean, "\n");
    puts(clean);
    free(clean);
}

void xd_cli_line(void *cookie, const char *line)
{
    (void)cookie;
    print_clean(line);
}

void xd_cli_name(const char *name)
{
    if (isatty(STDOUT_FILENO))
        print_clean(name);
    else
        puts(name);
}

int xd_cli_flush(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return XD_EXIT_OK;
    fprintf(stderr, "xdit: cannot write to standard output: %s\n", strerror(errno));
    xd_roster_report(XD_ROSTER_ERROR);
    return XD_EXIT_FAILED;
}

int xd_cli_end(xd_status s, const xd_err *e)
{
    int flushed = xd_cli_flush();
    return s == XD_OK ? flushed : xd_cli_exit(s, e);
}

/* An MPI launcher kills all ranks when the first rank fails. Ranks that print nothing wait until
 * rank 0 has printed the error, because the launcher would otherwise kill rank 0 first. */
int xd_cli_failed(xd_status s, const xd_err *e, int rank)
{
    char message[sizeof e->msg + 32];
    int  who = rank > 0 ? rank : e->rank;
    int  silent = rank > 0 && (e->rank >= 0 || s == XD_EINVAL || s == XD_ECANCELLED);
    if (who > 0)
        snprintf(message, sizeof message, "rank %d: %s", who, e->msg);
    else
        snprintf(message, sizeof message, "%s", e->msg);
    if (!silent) {
        fprintf(stderr, "xdit: %s\n", e->msg[0] ? message : xd_status_name(s));
        xd_roster_report(XD_ROSTER_ERROR);
    } else
        nanosleep(&(struct timespec){ .tv_sec = 2 }, NULL);
    return s == XD_EINVAL ? XD_EXIT_USAGE : XD_EXIT_FAILED;
}

int xd_cli_end_rank(xd_status s, const xd_err *e, int rank, int code)
{
    if (s != XD_OK)
        code = xd_cli_failed(s, e, rank);
    if (code == XD_EXIT_OK)
        code = xd_cli_flush();
    if (s == XD_ECOMM) /* _exit skips MPI's exit handler, which would wait for other ranks */
        _exit(code);
    return code;
}

/* Stores an estimate of the process' start time: the present time minus the CPU time that the
 * process has used so far. If the environment variable XDIT_STARTED is set to a start time, stores
 * that start time; a parent process sets the variable for ranks and for measurements. */
void xd_cli_note_start(void)
{
    struct timespec t = { 0 };
    const char     *given = getenv(STARTED);
    char            text[32];
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    double then = given ? atof(given) : NAN;
    started_s = isfinite(then) ? then : xd_now_s() - (double)t.tv_sec - 1e-9 * (double)t.tv_nsec;
    snprintf(text, sizeof text, "%.6f", started_s);
    setenv(STARTED, text, 1);
}

double xd_cli_started_s(void)
{
    return started_s;
}
