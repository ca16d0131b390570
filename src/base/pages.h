/* pages.h - memory from the system that huge pages can hold */
#ifndef XD_BASE_PAGES_H
#define XD_BASE_PAGES_H

#include <stddef.h>

enum { XD_PAGE = 4096, XD_HUGE_PAGE = 2 << 20 };

/* So many bytes and the rest of the last page. */
size_t xd_pages_whole(size_t bytes);

/* `bytes` of fresh memory, or of the file `fd` from its beginning, which other processes see as well (-1: no
 * file). Blocks of at least a huge page start on one, and the system may use such. NULL: there is none. */
void *xd_pages_map(size_t bytes, int fd);
void  xd_pages_unmap(void *p, size_t bytes);    /* NULL is nothing                             */
/* Takes the pages [from, to) of a block of a file now, where the system can (Linux 5.14): 0 when it has no room
 * for them, which would kill who touches them later. Huge ones where it can (6.1), also where files of the
 * system get them for the asking only: 2 when all whole huge pages in there are. Of `nodes` memory nodes over which the
 * block is interleaved each gets as many of these as of others. */
int   xd_pages_take(void *p, size_t from, size_t to, int nodes);

#endif
