/* restart.h - chooses how the ranks of xdit generate start again after one of them was lost: the
 * number of ranks, the plan and the command line. */
#ifndef XD_CLI_RESTART_H
#define XD_CLI_RESTART_H

#include "cli/resume.h"
#include "launch/hosts.h"
#include "launch/launch.h"

typedef struct xd_restart {
    const char      *dir;        /* folder of --checkpoint; NULL: ranks are not started again */
    int              most, done; /* number of allowed restarts; number of restarts so far */
    int              spare;      /* number of ranks on this host that a restart may replace */
    xd_hosts        *hosts;      /* hosts of the ranks; n 0: this host */
    const xd_resume *options;    /* options of xdit generate */
    /* the request, whose memory is predicted; `parallel`: the plan of the request */
    xd_advise_args   ask;
    double           peak; /* predicted bytes of memory of the present plan; 0: unknown */
    /* command line of the next start of the ranks */
    char             resume[4096], nproc[32], plan[128];
    /* moved: 1 if ranks or plan differ from those of the command line; streams: 1 if the next
     * start has --offload stream */
    int              moved, streams;
    char           **argv, *on; /* on: hosts of the ranks */
} xd_restart;

/* Returns 1 if the ranks of the launch `l` are to be started again after the loss, and sets the
 * number of ranks and the arguments of `l`; the arguments belong to `r`. If a rank was killed for
 * lack of memory, the fastest plan that needs less memory is chosen, if such a plan exists. After
 * another loss of a rank, the first restart has the same number of ranks, and each later restart
 * has one rank less. Prints one line that tells how the ranks start again. */
int  xd_restart_next(xd_restart *r, xd_launch *l, xd_loss loss);
void xd_restart_free(xd_restart *r);

#endif
