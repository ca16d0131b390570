/* limits.c - checks for resource limits (ulimit) that are too low for Open MPI's launcher; see
 * limits.h.
 *
 * Measured with Open MPI 4.1: 2 ranks start with a limit of 36 open files but not with 32; 8 ranks
 * start with 64 but not with 56. Open MPI's shared memory for messages and for PMIx is in files of
 * 4 MiB plus one page. After MPI_Init a rank has mapped 151 MiB of address space, which includes
 * oneDNN's library; the size of the mapped address space is the same for 2 ranks and for 8 ranks.
 * With a limit of the address space of 144 to 150 MiB a rank fails or hangs in MPI_Init. With a
 * limit of the address space below 144 MiB a rank connects to other ranks, but cannot load a
 * model. */
#include "launch/limits.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

enum { FILES = 28, FILES_A_RANK = 5, SEGMENT = (4 << 20) + (64 << 10), SPACE = 152 << 20 };

/* Raises the soft limit of open files to `want`, but not above the hard limit. */
static void raise_files(struct rlimit *l, rlim_t want)
{
    struct rlimit more = *l;
    more.rlim_cur = l->rlim_max == RLIM_INFINITY || l->rlim_max > want ? want : l->rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &more) == 0)
        *l = more;
}

/* Returns the bytes of address space that this process has mapped; a rank maps the same number of
 * bytes when it starts. */
static rlim_t mapped_bytes(void)
{
    unsigned long pages = 0;
    FILE         *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%lu", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

static xd_status check_space(xd_err *e)
{
    struct rlimit l;
    rlim_t        needed = mapped_bytes() + SPACE;
    if (getrlimit(RLIMIT_AS, &l) != 0 || l.rlim_cur == RLIM_INFINITY || l.rlim_cur >= needed)
        return XD_OK;
    return xd_fail(e, XD_ENOMEM,
                   "the address space is limited to %llu kB (ulimit -v), and a rank needs %llu kB "
                   "without a model: raise the limit, or use one rank",
                   (unsigned long long)(l.rlim_cur >> 10), (unsigned long long)(needed >> 10));
}

xd_status xd_limits_check(int ranks, xd_err *e)
{
    struct rlimit l;
    rlim_t        files = (rlim_t)(FILES + FILES_A_RANK * ranks);
    if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur != RLIM_INFINITY) {
        if (l.rlim_cur < files)
            raise_files(&l, files);
        if (l.rlim_cur < files)
            return xd_fail(
                e, XD_EIO,
                "open files are limited to %llu (ulimit -n), and the MPI launcher needs %llu for "
                "%d "
                "ranks: raise the limit, ulimit -n %llu",
                (unsigned long long)l.rlim_cur, (unsigned long long)files, ranks,
                (unsigned long long)files);
    }
    if (getrlimit(RLIMIT_FSIZE, &l) == 0 && l.rlim_cur != RLIM_INFINITY && l.rlim_cur < SEGMENT)
        return xd_fail(
            e, XD_EIO,
            "files are limited to %llu KiB (ulimit -f), and ranks need files of %d KiB for shared "
            "memory: raise the limit, ulimit -f %d",
            (unsigned long long)(l.rlim_cur >> 10), SEGMENT >> 10, SEGMENT >> 10);
    return check_space(e);
}
