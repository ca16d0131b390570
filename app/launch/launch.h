/* launch.h - starts several ranks of this program under the MPI launcher, and supervises them */
#ifndef XD_LAUNCH_LAUNCH_H
#define XD_LAUNCH_LAUNCH_H

#include "xdit/tools.h"

/* Exit codes: success, failure, wrong command line or request; 128 + n: ended by signal n. */
enum { XD_EXIT_OK = 0, XD_EXIT_FAILED = 1, XD_EXIT_USAGE = 2 };

typedef struct xd_launch {
    int    ranks;
    int    argc;                /* arguments of the command, without its name                  */
    char **argv;
    const char *command;        /* "generate"                                                  */
    int    start_timeout;       /* seconds for all ranks to connect; 0: no limit; negative: 60  */
} xd_launch;

/* In a rank: the width of the terminal that its standard error ends up on; 0: no terminal. */
int  xd_launch_columns(void);

/* Number of ranks to start for a plan and --nproc N (0: not given). 1: this process alone, or one
 * rank of a running launcher. XD_EINVAL: the plan does not work on that number of ranks. */
xd_status xd_launch_ranks(const xd_parallel *p, int nproc, int *ranks, xd_err *e);

/* The option --start_timeout; its field is -1 if the option is not given. */
#define XD_LAUNCH_TIMEOUT(field) \
    { "start_timeout", XD_OPT_INT, field, 0, 86400, NULL, "SECONDS", \
      "abort if the ranks have not connected after SECONDS; 0: never (default 60; 0 under mpirun " \
      "or srun)" }
/* Refuses an environment with variables of an MPI launcher that no longer runs, as in a shell that
 * outlived a job: MPI could not start. */
xd_status xd_launch_check_env(xd_err *e);
/* In a rank started by another program: ends the process if the ranks have not connected within
 * start_timeout seconds, or if the connection to another host is lost (links.h). */
void xd_launch_deadline(int start_timeout, int rank);

/* Returns 1 if the ranks that this process starts are all on this host. Batch systems spread them
 * over hosts. */
int xd_launch_here(void);

/* Runs `ranks` copies of this program under the MPI launcher; *code becomes the exit code of the
 * run. The first termination signal cancels the request of all ranks, the second ends them. Returns
 * XD_OK if the ranks ran, an error if they could not be started. */
xd_status xd_launch_run(const xd_launch *l, int *code, xd_err *e);

#endif
