/* foreign.h - what people bring along from xDiT: its flags, and torchrun */
#ifndef XD_CLI_FOREIGN_H
#define XD_CLI_FOREIGN_H

#include "cli/xdit_flags.h"

typedef struct xd_foreign {     /* flags of xDiT that were given and do nothing here           */
    int                 n;
    const xd_xdit_flag *flag[XD_XDIT_FLAGS_MAX];
} xd_foreign;

/* For xd_opt_spec.foreign; `cookie` is an xd_foreign. Refuses flags without which the result would
 * be another one. */
xd_status xd_foreign_take(void *cookie, const char *name, int *values, xd_err *e);
/* Says in one line each what became of them; `quiet`: only what is not built. */
void      xd_foreign_say(const xd_foreign *f, int quiet);

/* Has torchrun (or what sets the same variables) started this process as one of several? Then it
 * says on rank 0 how ranks are started here and returns the exit code, else 0. */
int       xd_foreign_torchrun(const char *command);

#endif
