/* launch.h - the program starts itself on several ranks, and watches over them until they end */
#ifndef XD_CLI_LAUNCH_H
#define XD_CLI_LAUNCH_H

#include "base/err.h"

typedef struct xd_launch {
    int    ranks;
    int    argc;                /* of the command's arguments                                  */
    char **argv;
    const char *command;        /* "generate"                                                  */
} xd_launch;

/* Columns of the terminal that a rank's standard error ends on behind its pipe; 0: none. */
int  xd_launch_columns(void);

/* Runs `ranks` copies of this program under the MPI launcher and returns the exit code of the
 * run. Signals that end the program cancel the request of all ranks, a second one ends the ranks.
 * XD_OK means that they ran; errors, that they could not be started. */
xd_status xd_launch_run(const xd_launch *l, int *code, xd_err *e);

#endif
