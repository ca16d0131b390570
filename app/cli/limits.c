/* limits.c - limits of the system (ulimit) that Open MPI's launcher does not survive
 *
 * Measured with Open MPI 4.1: 2 ranks start with 36 open files and 8 with 64, not with 32 and
 * 56. Segments of messages and of its PMIx are files of 4 MiB and a page. A rank maps 151 MiB in
 * MPI_Init, oneDNN's library included, of 2 ranks and of 8. With 144 to 150 MiB it fails in
 * MPI_Init or waits there; with less it meets the others and has no room for a model. */
#include "cli/limits.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

enum { FILES = 28, FILES_A_RANK = 5, SEGMENT = (4 << 20) + (64 << 10), SPACE = 152 << 20 };

/* As far as the hard limit allows. */
static void raise_files(struct rlimit *l, rlim_t want)
{
    struct rlimit more = *l;
    more.rlim_cur = l->rlim_max == RLIM_INFINITY || l->rlim_max > want ? want : l->rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &more) == 0)
        *l = more;
}

/* Bytes of address space that this process has mapped, as a rank has when it begins. */
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
                   "%llu kB of address space are allowed (ulimit -v), and a rank needs %llu kB to "
                   "start, without a model: raise it, or use one rank",
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
                "%llu files may be open (ulimit -n), and the MPI launcher needs %llu for %d ranks: "
                "raise it, ulimit -n %llu",
                (unsigned long long)l.rlim_cur, (unsigned long long)files, ranks,
                (unsigned long long)files);
    }
    if (getrlimit(RLIMIT_FSIZE, &l) == 0 && l.rlim_cur != RLIM_INFINITY && l.rlim_cur < SEGMENT)
        return xd_fail(
            e, XD_EIO,
            "a file may have %llu KiB (ulimit -f), and ranks need %d KiB for the files of shared "
            "memory: raise it, ulimit -f %d",
            (unsigned long long)(l.rlim_cur >> 10), SEGMENT >> 10, SEGMENT >> 10);
    return check_space(e);
}
