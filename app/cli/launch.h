/* launch.h - the program starts itself on several ranks, and watches over them until they end */
#ifndef XD_CLI_LAUNCH_H
#define XD_CLI_LAUNCH_H

#include "xdit/xdit.h"

typedef struct xd_launch {
    int    ranks;
    int    argc;                /* of the command's arguments                                  */
    char **argv;
    const char *command;        /* "generate"                                                  */
} xd_launch;

/* Columns of the terminal that a rank's standard error ends on behind its pipe; 0: none. */
int  xd_launch_columns(void);

/* Ranks to start for a plan and --nproc N (0: not given); 1: this process is all, or one of those that a
 * launcher has started. Refuses plans that so many cannot run. */
xd_status xd_launch_ranks(const xd_parallel *p, int nproc, int *ranks, xd_err *e);

/* What a rank (0: also one that is alone) that has failed says, and its exit code: a failure that
 * all ranks know is said by rank 0, one that only another rank may know, by it. */
int xd_launch_failed(xd_status s, const xd_err *e, int rank);
/* The exit code of a command: that of its failure, said as above, or `code`, once all that it printed is
 * written. Does not return when messages failed. */
int xd_launch_end(xd_status s, const xd_err *e, int rank, int code);

/* Bytes that the launcher's files and the messages of so many ranks on one host take at most, and those that
 * a directory has free: behind them pages are missing when they are touched. */
double xd_launch_need(int ranks);
double xd_launch_space(const char *dir);

/* Will the ranks that this process starts all be on this host? Batch systems spread them. */
int xd_launch_here(void);

/* Runs `ranks` copies of this program under the MPI launcher and returns the exit code of the
 * run. Signals that end the program cancel the request of all ranks, a second one ends the ranks.
 * XD_OK means that they ran; errors, that they could not be started. */
xd_status xd_launch_run(const xd_launch *l, int *code, xd_err *e);

#endif
