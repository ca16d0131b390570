/* xdit_compat.h - accepts flags of xDiT, and explains how to start ranks without torchrun */
#ifndef XD_CLI_XDIT_COMPAT_H
#define XD_CLI_XDIT_COMPAT_H

#include "cli/xdit_flags.h"

typedef struct xd_compat {      /* flags of xDiT on the command line that have no effect in xdit */
    int                 n;
    const xd_xdit_flag *flag[XD_XDIT_FLAGS_MAX];
} xd_compat;

/* Accepts a flag of xDiT; used as xd_opt_spec.other_flag, where `cookie` is an xd_compat. Refuses
 * flags that change the image and are not supported. */
xd_status xd_compat_flag(void *cookie, const char *name, int *values, xd_err *e);
/* For each flag of xDiT on the command line, prints a line about the flag's effect in xdit. If
 * `quiet` is set, prints only warnings. */
void xd_compat_report(const xd_compat *f, int quiet);

/* If torchrun started this process as one of several, rank 0 prints how to start ranks with xdit,
 * and the exit code is returned. Otherwise returns 0. */
int       xd_compat_torchrun(const char *command);

#endif
