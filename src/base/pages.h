/* pages.h - memory from the system, backed by huge pages where possible */
#ifndef XD_BASE_PAGES_H
#define XD_BASE_PAGES_H

#include <stddef.h>

enum { XD_HUGE_PAGE = 2 << 20 };

size_t xd_page_bytes(void);             /* of this system: 4 KiB, 16 or 64 on some of ARM's     */
/* `bytes` rounded up to whole pages. */
size_t xd_pages_whole(size_t bytes);

/* Maps `bytes` of fresh private memory (fd -1), or of the file `fd` from its beginning, shared with
 * other processes. Blocks of at least one huge page start on a huge page boundary, and the system
 * may use huge pages for them. NULL: out of memory. */
void *xd_pages_map(size_t bytes, int fd);
void  xd_pages_unmap(void *p, size_t bytes);    /* p may be NULL                               */
/* Allocates the pages [from, to) of a file's block now, where the system can (Linux 5.14). Returns
 * 0 if there is no memory for them; touching them later would kill the process. With Linux 6.1 it
 * takes huge pages, also where the system gives them to files on request only, and returns 2 if all
 * whole huge pages in the range are huge. If the block is interleaved over `nodes` memory nodes,
 * each node gets the same number of huge pages. */
int   xd_pages_take(void *p, size_t from, size_t to, int nodes);

#endif
