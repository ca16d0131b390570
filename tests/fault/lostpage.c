/* lostpage.c - a library to preload: the file behind the XDIT_CUT_AT-th mapping of weights is
 * cut off to a few bytes as soon as it has been mapped, so that its pages are lost while they
 * are in use. */
#define _GNU_SOURCE      /* RTLD_NEXT */
#undef _FILE_OFFSET_BITS /* mmap and mmap64 are two names here */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SEEN __attribute__((visibility("default")))      /* by the linker, in place of libc's */

typedef void *map_fn(void *at, size_t n, int prot, int flags, int fd, off_t off);

static void cut(int fd)
{
    static atomic_int seen;
    static const char ext[] = ".safetensors";
    const char       *at = getenv("XDIT_CUT_AT");
    char              link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (!at || n < (ssize_t)sizeof ext)
        return;
    path[n] = 0;
    if (strcmp(path + n - (sizeof ext - 1), ext) == 0 &&
        atomic_fetch_add(&seen, 1) + 1 == atoi(at) && truncate(path, 8) != 0)
        perror(path);
}

static void *map(const char *name, void *at, size_t n, int prot, int flags, int fd, off_t off)
{
    void   *symbol = dlsym(RTLD_NEXT, name);
    map_fn *real;
    memcpy(&real, &symbol, sizeof real);
    void *p = real(at, n, prot, flags, fd, off);
    if (fd >= 0 && n > 4096 && (flags & MAP_SHARED) && p != MAP_FAILED)
        cut(fd);
    return p;
}

SEEN void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t off)
{
    return map("mmap", at, n, prot, flags, fd, off);
}

SEEN void *mmap64(void *at, size_t n, int prot, int flags, int fd, off_t off)
{
    return map("mmap64", at, n, prot, flags, fd, off);
}
