/* readahead.h - parts of files that will be read soon, brought into the page cache by a thread beside.
 *
 * Only the system's cache is filled: what is not asked for after all costs nobody memory, and where no
 * thread can be had everything is read when it is used. */
#ifndef XD_BASE_READAHEAD_H
#define XD_BASE_READAHEAD_H

#include <stdatomic.h>
#include <stddef.h>

typedef struct xd_readahead xd_readahead;

/* most: bytes that may be read ahead of what is used. cancel: from when this is not 0 nothing is read any more;
 * may be NULL. NULL: there is no memory. */
xd_readahead *xd_readahead_open(size_t most, const atomic_int *cancel);
/* Bytes of a file, behind those before. fd is borrowed until close. */
void      xd_readahead_add(xd_readahead *a, int fd, size_t at, size_t bytes);
size_t    xd_readahead_bytes(const xd_readahead *a);            /* of all that was added               */
void      xd_readahead_start(xd_readahead *a);          /* nothing may be added any more               */
/* The first so many bytes of what was added have been used. From any thread; a may be NULL. */
void      xd_readahead_used(xd_readahead *a, size_t upto);
size_t    xd_readahead_asked(xd_readahead *a);          /* bytes that it has asked for so far; for tests */
/* Stops between two pieces of 128 KiB. */
void      xd_readahead_close(xd_readahead **a);

#endif
