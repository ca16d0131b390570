/* readahead.h - runs a background thread that reads ranges of files into the page cache before they
 * are used.
 *
 * The readahead thread fills only the system's page cache, so data that is never used costs the
 * process no memory. The readahead thread is optional: data that it has not read ahead is read when
 * it is used. */
#ifndef XD_BASE_READAHEAD_H
#define XD_BASE_READAHEAD_H

#include <stddef.h>

#include "base/cancel.h"

typedef struct xd_readahead xd_readahead;

/* Makes a readahead with an empty list of ranges. limit: maximum number of bytes that are read but
 * not used yet. cancel: cancellation flag that stops the reading when the request is cancelled; may
 * be NULL. Returns NULL if out of memory. */
xd_readahead *xd_readahead_open(size_t limit, const xd_canceller *cancel);
/* Appends a range of bytes of a file to the list of ranges to read. fd is borrowed until
 * xd_readahead_close. */
void          xd_readahead_add(xd_readahead *a, int fd, size_t at, size_t bytes);
size_t        xd_readahead_bytes(const xd_readahead *a); /* returns the bytes of all added ranges */
/* Returns how many bytes of the listed ranges are not in the page cache (xd_file_cold_bytes). */
size_t        xd_readahead_cold_bytes(const xd_readahead *a);
/* Starts the readahead thread; call xd_readahead_start after all calls of xd_readahead_add. */
void          xd_readahead_start(xd_readahead *a);
/* Restarts the thread at the beginning of the list, as if nothing had been read or used. */
void          xd_readahead_again(xd_readahead *a);
/* Reports that the first `upto` bytes of the listed ranges have been used. xd_readahead_used may be
 * called by any thread; a may be NULL. */
void          xd_readahead_used(xd_readahead *a, size_t upto);
/* Returns the bytes that the thread has requested from the system so far; for tests. */
size_t        xd_readahead_requested(xd_readahead *a);
/* Stops the readahead thread, which first finishes the piece of 128 KiB that it is reading. */
void          xd_readahead_close(xd_readahead **a);

#endif
