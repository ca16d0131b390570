/* launch.h - starts several ranks of this program under the MPI launcher, and supervises them */
#ifndef XD_LAUNCH_LAUNCH_H
#define XD_LAUNCH_LAUNCH_H

#include "xdit/tools.h"

/* The program's exit codes for success, for a failure, and for a wrong command line or request. The
 * code 128 + n means that signal n ended the program. */
enum { XD_EXIT_OK = 0, XD_EXIT_FAILED = 1, XD_EXIT_USAGE = 2 };

/* Cause of the loss of a rank. MEMORY: the system killed the rank for lack of memory. STALLED: the
 * rank made no progress. */
typedef enum xd_loss { XD_LOSS_NONE, XD_LOSS_KILLED, XD_LOSS_MEMORY, XD_LOSS_STALLED } xd_loss;

typedef struct xd_launch {
    int         ranks;
    int         argc; /* arguments of the command, without its name */
    char      **argv;
    const char *command; /* name of the command, for example "generate" */
    /* Seconds within which all ranks must connect; 0: no limit; negative: 60. */
    int         start_timeout;
    double      rank_timeout; /* seconds for which a rank may make no progress; 0: no limit */
    /* receives the cause of the loss of a rank; NULL: the cause is not wanted */
    xd_loss    *loss;
} xd_launch;

/* Returns the width in columns of the terminal to which a rank's standard error is forwarded by the
 * program xdit that started the rank. Returns 0 if standard error is not forwarded to a
 * terminal. */
int xd_launch_columns(void);

/* Sets *ranks to the number of ranks to start for the plan `p` and the value `nproc` of the option
 * --nproc (0: the option is not given). If *ranks becomes 1, no launcher is needed: either this
 * process runs alone, or a launcher has already started it as a rank. XD_EINVAL: the plan is not
 * possible on that number of ranks. */
xd_status xd_launch_ranks(const xd_parallel *p, int nproc, int *ranks, xd_err *e);

/* Row of the option --start_timeout for an option table. The variable of the option --start_timeout
 * is -1 if the command line does not have the option. */
#define XD_LAUNCH_TIMEOUT(field) \
    { "start_timeout", XD_OPT_INT, field, 0, 86400, NULL, "SECONDS", \
      "time limit for ranks to connect; 0: no limit (default 60; 0 under mpirun or srun)" }
/* Returns an error if the environment has variables of an MPI launcher that no longer runs, as in a
 * shell that outlived its batch job. MPI could not start with variables of an ended launcher. */
xd_status xd_launch_check_env(xd_err *e);
/* Supervises a rank that another program started: ends the process if the ranks have not connected
 * within start_timeout seconds, or if the connection to another host is lost (links.h). */
void      xd_launch_deadline(int start_timeout, int rank);

/* Returns 1 if the ranks that this process starts are all on this host. If a batch system runs the
 * job, its launcher may place the ranks on several hosts. */
int xd_launch_here(void);

/* Runs `ranks` copies of this program under the MPI launcher; *code becomes the exit code of the
 * run. The first termination signal cancels the request on all ranks; the second kills the ranks.
 * Returns XD_OK if the ranks could be started, even if they failed later. */
xd_status xd_launch_run(const xd_launch *l, int *code, xd_err *e);

#endif
