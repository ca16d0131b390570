/* pages.h - maps memory from the system, with huge pages where possible. */
#ifndef XD_BASE_PAGES_H
#define XD_BASE_PAGES_H

#include <stddef.h>

enum { XD_HUGE_PAGE = 2 << 20 };

/* Returns the system's page size in bytes, which is 4 KiB on most CPUs, and 16 or 64 KiB on some
 * ARM CPUs. */
size_t xd_page_bytes(void);
/* Rounds bytes up to a multiple of the page size. */
size_t xd_pages_round_up(size_t bytes);

/* If fd is -1, maps `bytes` of new private memory; otherwise maps the first `bytes` of the file
 * `fd`, so that other processes share the memory. Mappings that are as large as a huge page or
 * larger start on a huge page boundary, and the system may use huge pages for them. Returns NULL if
 * out of memory. */
void *xd_pages_map(size_t bytes, int fd);
void  xd_pages_unmap(void *p, size_t bytes); /* unmaps memory; p may be NULL */
/* Allocates the pages of bytes [from, to) of a mapped file immediately instead of at their first
 * use. xd_pages_allocate requires Linux 5.14. Returns 0 if the host has too little memory. If pages
 * were allocated at their first use, a shortage of memory would kill the process. From Linux 6.1
 * on, xd_pages_allocate requests huge pages, also on systems that by default use no huge pages for
 * files. Returns 2 if the complete range became huge pages. If the mapping is interleaved over
 * `nodes` NUMA nodes, each node gets the same number of huge pages. */
int   xd_pages_allocate(void *p, size_t from, size_t to, int nodes);

#endif
