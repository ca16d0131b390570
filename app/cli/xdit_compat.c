/* xdit_compat.c - accepts flags of xDiT, and refuses processes started by torchrun; see
 * xdit_compat.h */
#include "cli/xdit_compat.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cli/cli.h"
#include "xdit/tools.h"

xd_status xd_compat_flag(void *cookie, const char *name, int *values, xd_err *e)
{
    xd_compat          *f = cookie;
    const xd_xdit_flag *flag = xd_xdit_flag_find(name);
    *values = -1;
    if (!flag || flag->kind == XD_FLAG_SAME || flag->kind == XD_FLAG_OTHER)
        return XD_OK;
    if (flag->kind == XD_FLAG_REFUSED)
        return xd_fail(e, XD_EUNSUPPORTED, "--%s of xDiT (%s): %s", flag->name, flag->there,
                       flag->here);
    *values = !flag->value || flag->value == 'b' ? 0 : flag->value <= 'Z' ? 2 : 1;
    for (int i = 0; i < f->n; i++)
        if (f->flag[i] == flag)
            return XD_OK;
    if (f->n < XD_XDIT_FLAGS_MAX)
        f->flag[f->n++] = flag;
    return XD_OK;
}

void xd_compat_report(const xd_compat *f, int quiet)
{
    for (int i = 0; i < f->n; i++) {
        const xd_xdit_flag *flag = f->flag[i];
        if (flag->kind == XD_FLAG_SLOWER || flag->kind == XD_FLAG_VALUE)
            fprintf(stderr, "xdit: warning: --%s: %s\n", flag->name, flag->here);
        else if (!quiet)
            fprintf(stderr, "xdit: --%s has no effect: %s\n", flag->name, flag->here);
    }
}

static int env_number(const char *name)
{
    const char *v = getenv(name);
    return v && *v ? atoi(v) : -1;
}

/* torchrun kills all processes when the first one fails. Ranks other than 0 wait, so that torchrun
 * does not kill rank 0 before it has printed how to start ranks. */
int xd_compat_torchrun(const char *command)
{
    int rank = env_number("RANK"), world = env_number("WORLD_SIZE");
    if (xd_launched(NULL) || rank < 0 || world < 2 || env_number("LOCAL_RANK") < 0 ||
        !(getenv("TORCHELASTIC_RUN_ID") || getenv("MASTER_ADDR")))
        return 0;
    if (rank == 0)
        fprintf(stderr,
                "xdit: torchrun started %d processes, which xdit cannot connect: use xdit %s "
                "--nproc %d on one host, or mpirun --hostfile FILE -n %d xdit %s on several\n",
                world, command, world, world, command);
    else
        nanosleep(&(struct timespec){ .tv_sec = 2 }, NULL);
    return XD_EXIT_USAGE;
}
