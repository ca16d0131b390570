/* launch.h - the program starts itself on several ranks, and watches over them until they end */
#ifndef XD_CLI_LAUNCH_H
#define XD_CLI_LAUNCH_H

#include "xdit/tools.h"

typedef struct xd_launch {
    int    ranks;
    int    argc;                /* of the command's arguments                                  */
    char **argv;
    const char *command;        /* "generate"                                                  */
    int    start_timeout;       /* seconds in which all ranks must meet; 0: any; below: 60      */
} xd_launch;

/* Columns of the terminal that a rank's standard error ends on behind its pipe; 0: none. */
int  xd_launch_columns(void);

/* Ranks to start for a plan and --nproc N (0: not given); 1: this process is all, or one of
 * those that a launcher has started. Refuses plans that so many cannot run. */
xd_status xd_launch_ranks(const xd_parallel *p, int nproc, int *ranks, xd_err *e);

/* What a rank (0: also one that is alone) that has failed says, and its exit code: a failure that
 * all ranks know is said by rank 0, one that only another rank may know, by it. */
int xd_launch_failed(xd_status s, const xd_err *e, int rank);
/* The exit code of a command: that of its failure, said as above, or `code`, once all that it
 * printed is written. Does not return when messages failed. */
int xd_launch_end(xd_status s, const xd_err *e, int rank, int code);

/* The row of --start_timeout; its field is -1 where it is not given. */
#define XD_LAUNCH_TIMEOUT(field) \
    { "start_timeout", XD_OPT_INT, field, 0, 86400, NULL, "SECONDS", \
      "abort if the ranks have not connected after SECONDS; 0: never (default 60; 0 under mpirun " \
      "or srun)" }
/* Variables of an MPI launcher that is not there, as in a shell that outlived a job: MPI would
 * not start. */
xd_status xd_launch_stray(xd_err *e);
/* In a rank that was started by another program: it ends when --start_timeout has passed and the
 * ranks have not met, and when a host that it speaks with is lost (links.h). */
void xd_launch_await(int start_timeout, int rank);

/* Will the ranks that this process starts all be on this host? Batch systems spread them. */
int xd_launch_here(void);

/* Runs `ranks` copies of this program under the MPI launcher and returns the exit code of the
 * run. Signals that end the program cancel the request of all ranks, a second one ends the ranks.
 * XD_OK means that they ran; errors, that they could not be started. */
xd_status xd_launch_run(const xd_launch *l, int *code, xd_err *e);

#endif
