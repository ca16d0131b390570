/* pages.h - maps memory from the system, with huge pages where possible. */
#ifndef XD_BASE_PAGES_H
#define XD_BASE_PAGES_H

#include <stddef.h>

enum { XD_HUGE_PAGE = 2 << 20 };

/* This system's page size: 4 KiB; 16 or 64 on some ARM CPUs. */
size_t xd_page_bytes(void);
/* Rounds bytes up to a multiple of the page size. */
size_t xd_pages_round_up(size_t bytes);

/* Maps `bytes` of new private memory (fd -1), or the first `bytes` of the file `fd`, shared with
 * other processes. Blocks of at least one huge page start on a huge page boundary, and the system
 * may use huge pages for them. Returns NULL if out of memory. */
void *xd_pages_map(size_t bytes, int fd);
void  xd_pages_unmap(void *p, size_t bytes);    /* unmaps memory; p may be NULL                */
/* Allocates the pages of bytes [from, to) of a mapped file at once, if the system can (Linux 5.14).
 * Returns 0 if memory is short. Touching these pages later would then kill the process. On Linux
 * 6.1 the function requests huge pages, even where files get huge pages only by madvise, and
 * returns 2 if the complete range became huge pages. If the block is interleaved over `nodes` NUMA
 * nodes, each node gets the same number of huge pages. */
int   xd_pages_allocate(void *p, size_t from, size_t to, int nodes);

#endif
