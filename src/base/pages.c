/* pages.c - allocates memory from the system, in huge pages where possible.
 *
 * The kernel backs in-memory files with small pages unless tmpfs is mounted with the option huge=.
 * To get huge pages, one small page in the range of each huge page is allocated, and the range is
 * then collapsed to a huge page (MADV_COLLAPSE), which copies almost nothing. */
#define _GNU_SOURCE /* for MAP_ANONYMOUS, madvise */
#include "base/pages.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__linux__) && !defined(MADV_COLLAPSE)
#define MADV_COLLAPSE 25        /* exists since Linux 6.1; older headers do not define it */
#endif

size_t xd_page_bytes(void)
{
    long bytes = sysconf(_SC_PAGESIZE);
    return bytes > 0 ? (size_t)bytes : 4096;
}

size_t xd_pages_round_up(size_t bytes)
{
    const size_t page = xd_page_bytes();
    return (bytes + page - 1) / page * page;
}

/* Maps memory that is aligned to huge pages. To get the alignment, it maps one huge page more than
 * needed and then unmaps the unaligned edges. */
void *xd_pages_map(size_t bytes, int fd)
{
    size_t edge = bytes >= XD_HUGE_PAGE ? XD_HUGE_PAGE : 0, whole = xd_pages_round_up(bytes);
    int    access = PROT_READ | PROT_WRITE;
    if (bytes == 0 || whole < bytes || whole + edge < whole)
        return NULL;
    char *p =
        mmap(NULL, whole + edge, fd < 0 ? access : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    if (edge) {
        size_t lead = (edge - (size_t)((uintptr_t)p % edge)) % edge;
        if (lead)
            munmap(p, lead);
        p += lead;
        if (edge - lead)
            munmap(p + whole, edge - lead);
    }
    if (fd >= 0 && mmap(p, whole, access, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        munmap(p, whole);
        return NULL;
    }
    if (edge)
        madvise(p, whole, MADV_HUGEPAGE);
    return p;
}

void xd_pages_unmap(void *p, size_t bytes)
{
    if (p)
        munmap(p, xd_pages_round_up(bytes));
}

#ifdef MADV_POPULATE_WRITE
/* Collapses small pages into huge pages. Tries again after EAGAIN, which means that a page was in
 * use at that moment. */
static int collapse_pages(char *p, size_t bytes)
{
    int failed = 1;
    for (int tries = 0; tries < 4 && failed; tries++)
        if ((failed = madvise(p, bytes, MADV_COLLAPSE)) && errno != EAGAIN)
            break;
    return !failed;
}

/* Allocates the huge pages of a file. With interleaving, small page n of the file is on NUMA node n
 * % nodes, and a huge page is allocated on the node of its first small page. So that the huge pages
 * alternate between nodes, a different small page is allocated first in each huge page. */
static int allocate_huge(char *p, size_t from, size_t to, size_t nodes)
{
    const size_t huge = XD_HUGE_PAGE, page = xd_page_bytes(), first = (from + huge - 1) / huge;
    const size_t small = huge / page;
    if (to / huge <= first)
        return 1;
    for (size_t k = first; k < to / huge; k++) {
        size_t at = nodes < 2 ? 0 : (nodes - k * (small - 1) % nodes) % nodes;
        if (madvise(p + k * huge + at * page, page, MADV_POPULATE_WRITE) != 0)
            return 0;
    }
    return collapse_pages(p + first * huge, (to / huge - first) * huge);
}
#endif

int xd_pages_allocate(void *p, size_t from, size_t to, int nodes)
{
#ifdef MADV_POPULATE_WRITE
    char *base = p;
    from = from / xd_page_bytes() * xd_page_bytes();
    to = xd_pages_round_up(to);
    if (from >= to)
        return 1;
    int huge = allocate_huge(base, from, to, (size_t)nodes);
    if (madvise(base + from, to - from, MADV_POPULATE_WRITE) == 0)
        return huge ? 2 : 1;
    return errno == EINVAL;
#else
    (void)p, (void)from, (void)to, (void)nodes;
    return 1;
#endif
}
