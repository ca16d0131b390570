/* file.h - reading complete files; writing files atomically, so that an incomplete file never has
 * the final name */
#ifndef XD_BASE_FILE_H
#define XD_BASE_FILE_H

#include <stddef.h>
#include <stdio.h>

#include "base/err.h"

int xd_file_exists(const char *path);           /* any kind of file                          */
int xd_file_is_dir(const char *path);
int xd_file_is_stream(const char *path);        /* a device, a pipe or a socket               */

/* Returns a hint to append to "no such file": "; ..." if the path begins with "~" or is a URL,
 * else "". */
const char *xd_path_hint(const char *path);

/* Reads a complete regular file of at most `max` bytes. *data is malloc'ed, owned by the caller,
 * and ends in an extra NUL that *len does not count. XD_EIO if it cannot be read. */
xd_status xd_file_read(const char *path, size_t max, char **data, size_t *len, xd_err *e);

/* xd_file_read that also reads a pipe or a device to its end; "-" is standard input. */
xd_status xd_file_read_any(const char *path, size_t max, char **data, size_t *len, xd_err *e);

/* A file that gets its name only when it is complete and synced. If the file system supports
 * O_TMPFILE, the file has no name until then, so that even SIGKILL leaves nothing. Elsewhere it is
 * written under a temporary name in the same directory and then renamed. A device or a pipe is
 * written directly. */
typedef struct xd_out {
    FILE *f;
    char *path, *tmp;           /* tmp: the temporary name, NULL if the file has none          */
    int   stream;               /* a device or a pipe                                          */
} xd_out;

xd_status xd_out_open(xd_out *o, const char *path, xd_err *e);
xd_status xd_out_commit(xd_out *o, xd_err *e);  /* closes; on failure removes the temporary file */
void      xd_out_abort(xd_out *o);              /* removes the temporary file; may be closed   */

/* Checks that a file of this name can be created or replaced. Creates no file or directory. */
xd_status xd_file_writable(const char *path, xd_err *e);

/* Returns 1 while a device or a pipe is open for writing (it may block until there is a reader).
 * Async-signal-safe. */
int xd_out_streams(void);

/* Removes the temporary files of all open xd_out. Async-signal-safe, for a handler that exits. */
void xd_out_sweep(void);

/* Returns how many of the bytes [at, at + bytes) of a file are not in the page cache, and must be
 * read from disk. Counts pages, up to the end of the file. Also 0 if the system refuses to tell:
 * Linux answers only users who may write the file. fd is open for reading. */
size_t xd_file_cold_bytes(int fd, size_t at, size_t bytes);
/* Asks the system to drop a file's clean pages from the page cache (posix_fadvise); best effort. */
void   xd_file_drop_cached(int fd);

/* Writes $XDG_CACHE_HOME/xdit/NAME, or ~/.cache/xdit/NAME, to `path`. Returns 0 if neither variable
 * is set or the path does not fit. */
int  xd_cache_path(const char *name, char *path, size_t size);
/* Creates the parent directories of a path; ignores failures. `path` is changed during the call. */
void xd_make_parents(char *path);

/* "a/b" from "a" and "b" (no second slash); malloc'ed, NULL without memory. */
char *xd_path_join(const char *dir, const char *name);

#endif
