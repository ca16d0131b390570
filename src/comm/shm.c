/* shm.c - makes shared memory without a name: a file of memfd_create, which other processes open
 * through /proc */
#define _GNU_SOURCE /* for memfd_create */
#include "comm/shm.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns 1 if `bytes` are within the process's limit of file sizes. Writing a file beyond this
 * limit would kill the process. */
static int within_file_limit(size_t bytes)
{
    struct rlimit r;
    return getrlimit(RLIMIT_FSIZE, &r) != 0 || r.rlim_cur == RLIM_INFINITY || bytes <= r.rlim_cur;
}

int xd_shm_make(size_t bytes, xd_shm_key *key)
{
#ifdef MFD_CLOEXEC
    struct stat st;
    int         fd = within_file_limit(bytes) ? memfd_create("xdit", MFD_CLOEXEC) : -1;
    if (fd < 0)
        return -1;
    if (ftruncate(fd, (off_t)bytes) == 0 && fstat(fd, &st) == 0) {
        *key = (xd_shm_key){ getpid(), fd, (int64_t)st.st_dev, (int64_t)st.st_ino };
        return fd;
    }
    close(fd);
#else
    (void)bytes, (void)key, (void)within_file_limit;
#endif
    return -1;
}

/* Opens the shared memory of another process. Checks the device and inode of the opened file,
 * because in a container the process id may denote a different process. */
int xd_shm_find(const xd_shm_key *key)
{
    char        path[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)key->pid, (long long)key->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 &&
        (fstat(fd, &st) != 0 || (int64_t)st.st_dev != key->dev || (int64_t)st.st_ino != key->ino)) {
        close(fd);
        fd = -1;
    }
    return fd;
}
