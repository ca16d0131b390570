/* xdit_compat.h - accepts flags of xDiT, and explains how to start ranks without torchrun */
#ifndef XD_CLI_XDIT_COMPAT_H
#define XD_CLI_XDIT_COMPAT_H

#include "cli/xdit_flags.h"

typedef struct xd_compat { /* flags of xDiT on the command line that have no effect in xdit */
    int                 n;
    const xd_xdit_flag *flag[XD_XDIT_FLAGS_MAX];
} xd_compat;

/* Accepts a flag of xDiT. xd_compat_flag is used as xd_opt_spec.other_flag of the parser; its
 * `cookie` is an xd_compat. Refuses a flag that changes the image and that xdit does not
 * support. */
xd_status xd_compat_flag(void *cookie, const char *name, int *values, xd_err *e);
/* For each flag of xDiT that has no effect in xdit, prints a line with the reason. If `quiet` is
 * set, prints only warnings. */
void      xd_compat_report(const xd_compat *f, int quiet);

/* If torchrun started this process as one of several, rank 0 prints how to start several ranks with
 * xdit. xd_compat_torchrun then returns the exit code. If torchrun has not started this process,
 * returns 0. */
int xd_compat_torchrun(const char *command);

#endif
