/* cmd_serve.c - xdit serve: becomes the program xdit-server, which is linked with libmicrohttpd and
 * stands beside this one. What is wrong with the command line is said here. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/launch.h"
#include "serve/serve_flags.h"

static xd_status find_server(char *path, size_t size, xd_err *e)
{
    static const char name[] = "xdit-server";
    ssize_t           n = readlink("/proc/self/exe", path, size - sizeof name - 1);
    if (n <= 0)
        return xd_fail(e, XD_EIO, "this program cannot find its own file: %s", strerror(errno));
    path[n] = 0;
    setenv("XDIT_PROGRAM", path, 1);
    strcpy(strrchr(path, '/') + 1, name);
    if (access(path, X_OK) == 0)
        return XD_OK;
    return xd_fail(e, XD_EUNSUPPORTED, "the server is not installed: %s is missing (the package "
                   "xdit-server, or a build with libmicrohttpd)", path);
}

/* Every rank would be a server of its own, at the same port. Rank 0 says so. */
static int refuse_launcher(void)
{
    xd_err e = { 0 };
    int    rank = 0, ranks = xd_launched_ranks();
    xd_launched(&rank);
    xd_status s = xd_fail(&e, XD_EINVAL, "xdit serve starts its ranks by itself: leave the "
                          "launcher out and give --nproc %d", ranks);
    if (rank > 0)               /* a launcher ends the others when the first rank ends           */
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
    .summary = "generate for clients over HTTP",
    .run = run_command,
    .help = xd_serve_flags_help,
};
