/* pages.c - put before a program by LD_PRELOAD: a system whose memory between ranks is worse
 *
 *   PAGES=collapse    no huge page can be made of small ones
 *   PAGES=populate    there are no pages at all
 *
 * PAGES_RANKS=odd: on ranks with odd numbers only. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define POPULATE_WRITE 23       /* as on Linux; its header may be older than the kernel */
#define COLLAPSE       25

static int is_mine(void)
{
    const char *who = getenv("PAGES_RANKS"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    rank = rank ? rank : getenv("PMI_RANK");
    return !who || (rank && atoi(rank) % 2);
}

__attribute__((visibility("default"))) int madvise(void *p, size_t n, int advice)
{
    static int  (*real)(void *, size_t, int);
    const char *what = getenv("PAGES");
    if (!real) {
        void *found = dlsym(RTLD_NEXT, "madvise");
        memcpy(&real, &found, sizeof real);
    }
    int bad = what && advice == (strcmp(what, "collapse") == 0 ? COLLAPSE : POPULATE_WRITE);
    if (bad && is_mine()) {
        errno = advice == COLLAPSE ? EAGAIN : ENOMEM;
        return -1;
    }
    return real(p, n, advice);
}
