/* cmd_serve.c - the command xdit serve. The command xdit serve checks the command line, and then
 * replaces its process by the program xdit-server of the same directory (execv). Only xdit-server
 * is linked with libmicrohttpd. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "launch/launch.h"
#include "serve/serve_flags.h"

static xd_status find_server(char *path, size_t size, xd_err *e)
{
    static const char name[] = "xdit-server";
    ssize_t           n = readlink("/proc/self/exe", path, size - sizeof name - 1);
    if (n <= 0)
        return xd_fail(e, XD_EIO, "cannot find the file of this program: %s", strerror(errno));
    path[n] = 0;
    setenv("XDIT_PROGRAM", path, 1);
    strcpy(strrchr(path, '/') + 1, name);
    if (access(path, X_OK) == 0)
        return XD_OK;
    return xd_fail(e, XD_EUNSUPPORTED,
                   "the server %s is not installed: install the package "
                   "xdit-server, or build with libmicrohttpd",
                   path);
}

/* Refuses to run under mpirun, where every rank would be a server on the same port. Rank 0 prints
 * the error. */
static int refuse_launcher(void)
{
    xd_err e = { 0 };
    int    rank = 0, ranks = xd_launched_ranks();
    xd_launched(&rank);
    xd_status s = xd_fail(&e, XD_EINVAL,
                          "xdit serve starts its ranks itself: remove the MPI "
                          "launcher and give --nproc %d",
                          ranks);
    if (rank > 0) /* rank 0 prints the error first, because a launcher kills all ranks when the
                     first rank exits */
        sleep(1);
    return rank > 0 ? XD_EXIT_USAGE : xd_cli_exit(s, &e);
}

static int run_command(int argc, char **argv)
{
    if (xd_launched_ranks() > 1)
        return refuse_launcher();

    xd_serve_flags f;
    xd_err         e = { 0 };
    char           path[4096], **v = calloc((size_t)argc + 2, sizeof *v);
    xd_status      s = xd_serve_flags_read(&f, argc, argv, &e);
    xd_serve_flags_free(&f);
    if (s == XD_OK)
        s = v ? find_server(path, sizeof path, &e) : xd_fail(&e, XD_ENOMEM, "no memory");
    if (s == XD_OK) {
        v[0] = path;
        memcpy(v + 1, argv, (size_t)argc * sizeof *v);
        execv(path, v);
        s = xd_fail(&e, XD_EIO, "cannot start %s: %s", path, strerror(errno));
    }
    free(v);
    return xd_cli_exit(s, &e);
}

const xd_command xd_cmd_serve = {
    .name = "serve",
    .summary = "serve image and video generation over HTTP",
    .run = run_command,
    .help = xd_serve_flags_help,
};
