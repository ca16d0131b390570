/* restart.h - chooses how the ranks of xdit generate start again after one of them was lost: the
 * number of ranks, the plan and the command line. */
#ifndef XD_CLI_RESTART_H
#define XD_CLI_RESTART_H

#include "cli/resume.h"
#include "launch/launch.h"

typedef struct xd_restart {
    const char      *dir;        /* folder of --checkpoint; NULL: ranks do not start again */
    int              most, done; /* number of restarts allowed, and made */
    const xd_resume *options;    /* options of the command */
    xd_advise_args   ask;        /* the request, for predicted memory; `parallel`: its plan */
    double           peak;       /* predicted bytes of the present plan; 0: not known */
    /* The command line of the next start. */
    char             resume[4096], nproc[32], plan[128];
    char           **argv;
} xd_restart;

/* Returns 1 if the ranks that `l` has run start again after the loss, and sets the number of ranks
 * and the arguments of `l`; they belong to `r`. After a loss for lack of memory, the fastest plan
 * that needs less is chosen; there may be none. Otherwise the second restart has one rank less, and
 * so have the following. Prints a line about the decision. */
int  xd_restart_next(xd_restart *r, xd_launch *l, xd_loss loss);
void xd_restart_free(xd_restart *r);

#endif
