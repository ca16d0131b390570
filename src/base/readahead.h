/* readahead.h - a background thread that reads parts of files into the page cache before their use
 *
 * It fills only the system's page cache: data that is never used costs the process no memory.
 * Without the thread, data is read when it is used. */
#ifndef XD_BASE_READAHEAD_H
#define XD_BASE_READAHEAD_H

#include <stddef.h>

#include "base/cancel.h"

typedef struct xd_readahead xd_readahead;

/* limit: bytes that may be read ahead of the used ones. cancel: reading stops when it is set; may
 * be NULL. Returns NULL if out of memory. */
xd_readahead *xd_readahead_open(size_t limit, const xd_canceller *cancel);
/* Appends a range of bytes of a file to the list. fd is borrowed until close. */
void      xd_readahead_add(xd_readahead *a, int fd, size_t at, size_t bytes);
size_t    xd_readahead_bytes(const xd_readahead *a);  /* bytes of all added ranges */
/* Returns how many of these bytes the page cache lacks (xd_file_cold_bytes). */
size_t    xd_readahead_cold_bytes(const xd_readahead *a);
void      xd_readahead_start(xd_readahead *a);  /* no xd_readahead_add after this call */
/* Restarts at the beginning of the list, as if nothing had been read or used. */
void      xd_readahead_again(xd_readahead *a);
/* Reports that the first `upto` bytes of the list have been used. From any thread; a may be
 * NULL. */
void      xd_readahead_used(xd_readahead *a, size_t upto);
size_t    xd_readahead_requested(xd_readahead *a);      /* bytes requested so far; for tests   */
/* Stops the thread after its current piece of 128 KiB at the latest. */
void      xd_readahead_close(xd_readahead **a);

#endif
