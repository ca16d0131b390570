/* rundir.c - creates and removes the temporary directory of a run; see rundir.h */
#define _DEFAULT_SOURCE /* flock */
#include "launch/rundir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { OUTLIVE_S = 5 }; /* seconds by which ranks may outlive a killed launcher */

static void remove_tree(const char *path, int depth)
{
    DIR *d = depth < 16 ? opendir(path) : NULL;
    for (struct dirent *f; d && (f = readdir(d));) {
        char        name[4096];
        struct stat st;
        int         n = snprintf(name, sizeof name, "%s/%s", path, f->d_name);
        if (n >= (int)sizeof name || !strcmp(f->d_name, ".") || !strcmp(f->d_name, ".."))
            continue;
        if (lstat(name, &st) == 0 && S_ISDIR(st.st_mode))
            remove_tree(name, depth + 1);
        else
            unlink(name);
    }
    if (d)
        closedir(d);
    rmdir(path);
}

/* Possible parents of the temporary directory: directories in memory are tried before directories
 * on disk. */
static const char *const places[] = { "/dev/shm", "/tmp" };

/* Removes temporary directories that no process has locked. Such a directory remains if a process
 * was killed together with its cleaner process. A new temporary directory has no lock yet, so
 * directories younger than a minute are kept. */
static void sweep_directories(const char *place)
{
    DIR *d = opendir(place);
    for (struct dirent *f; d && (f = readdir(d));) {
        char        name[64];
        struct stat st;
        int         n = snprintf(name, sizeof name, "%s/%s", place, f->d_name), fd;
        if (strncmp(f->d_name, "xdit.", 5) != 0 ||
            n != (int)(strlen(place) + strlen("/xdit.XXXXXX")) || lstat(name, &st) != 0 ||
            st.st_uid != geteuid() || time(NULL) - st.st_mtime < 60 ||
            (fd = open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0)
            continue;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            remove_tree(name, 0);
        close(fd);
    }
    if (d)
        closedir(d);
}

/* Runs in the cleaner process: removes the temporary directory when the parent process and the
 * launcher have released the lock. Ranks may outlive a killed launcher by some seconds and create
 * further files, so the cleaner removes files twice. */
static void run_cleaner(const xd_rundir *r)
{
    int fd = open(r->path, O_RDONLY | O_DIRECTORY);
    if (fd < 0 || fork() != 0)
        /* the cleaner process becomes a child of init, so this process need not wait for the
         * cleaner */
        _exit(0);
    setsid();
    if (chdir("/") != 0)
        _exit(1);
    for (int i = 0; i < 64; i++)
        if (i != fd)
            close(i);
    while (flock(fd, LOCK_EX) != 0 && errno == EINTR)
        ;
    remove_tree(r->path, 0);
    if (access(r->path, F_OK) == 0 || errno != ENOENT) {
        sleep(OUTLIVE_S);
        remove_tree(r->path, 0);
    }
    _exit(0);
}

/* Returns the bytes of free space that the temporary directory needs. Open MPI 4 uses 8 MiB for
 * PMIx and 4 MiB per rank, and 5 % must remain free. */
double xd_rundir_need(int ranks)
{
    return 10e6 + 4.6e6 * ranks;
}

double xd_rundir_space(const char *dir)
{
    struct statvfs v;
    return statvfs(dir, &v) == 0 ? (double)v.f_bavail * (double)v.f_frsize : 0;
}

/* Creates a directory for Open MPI's shared memory and sockets on a file system with enough space,
 * because Open MPI hangs if there is too little space. The temporary directory exists only on this
 * host, so it is used only if all ranks are on this host. */
void xd_rundir_make(xd_rundir *r, int ranks)
{
    *r = (xd_rundir){ .lock = -1 };
    for (size_t i = 0; i < sizeof places / sizeof *places && !r->path[0]; i++) {
        sweep_directories(places[i]);
        snprintf(r->path, sizeof r->path, "%s/xdit.XXXXXX", places[i]);
        if (xd_rundir_space(places[i]) < xd_rundir_need(ranks) || !mkdtemp(r->path))
            r->path[0] = 0;
    }
    if (!r->path[0])
        return;
    r->lock = open(r->path, O_RDONLY | O_DIRECTORY);
    pid_t pid = r->lock >= 0 && flock(r->lock, LOCK_EX) == 0 ? fork() : -1;
    if (pid == 0)
        run_cleaner(r);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

void xd_rundir_close(xd_rundir *r)
{
    if (r->path[0])
        remove_tree(r->path, 0);
    if (r->lock >= 0)
        close(r->lock); /* releasing the lock lets the cleaner process end */
    r->lock = -1;
}
