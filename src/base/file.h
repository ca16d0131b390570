/* file.h - whole files: read them, write them so that no incomplete file ever has the final name */
#ifndef XD_BASE_FILE_H
#define XD_BASE_FILE_H

#include <stddef.h>
#include <stdio.h>

#include "base/err.h"

int xd_file_exists(const char *path);           /* any kind of file                          */
int xd_file_is_dir(const char *path);
int xd_file_is_stream(const char *path);        /* a device, a pipe or a socket               */

/* What else a path that is not there may be: "; ..." of "~" and of a URL; else "". */
const char *xd_path_hint(const char *path);

/* Reads a whole regular file of at most `max` bytes. *data is malloc'ed, belongs to the caller and
 * ends in an extra NUL that *len does not count. XD_EIO if it cannot be read. */
xd_status xd_file_read(const char *path, size_t max, char **data, size_t *len, xd_err *e);

/* xd_file_read that also reads a pipe or a device to its end; "-" is standard input. */
xd_status xd_file_read_any(const char *path, size_t max, char **data, size_t *len, xd_err *e);

/* A file that gets its name only when it is complete and synced. Where the file system supports it
 * the file has no name until then, so that even SIGKILL leaves nothing behind. Elsewhere it is
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

/* Can a file of this name be created or replaced? Leaves nothing behind and makes no directory. */
xd_status xd_file_writable(const char *path, xd_err *e);

/* Is a device or a pipe being written, which may have no reader yet? Async-signal-safe. */
int xd_out_streams(void);

/* Removes the temporary files of all open xd_out. Async-signal-safe, for a handler that exits. */
void xd_out_sweep(void);

/* Of `bytes` of a file from `at` on: those that the page cache does not hold, so that a disk must
 * deliver them. They are counted in pages, and none beyond the end of the file. 0 also where the
 * system does not tell: Linux answers only who may write the file. fd is open for reading. */
size_t xd_file_cold_bytes(int fd, size_t at, size_t bytes);
/* Asks the page cache to forget a file whose bytes are on the disk; it need not. */
void   xd_file_drop_cached(int fd);

/* $XDG_CACHE_HOME/xdit/NAME, or ~/.cache/xdit/NAME. 0: there is no such place, or no room for it in
 * `path`. */
int  xd_cache_path(const char *name, char *path, size_t size);
/* Makes the folders of a path, which stays as it is; one that cannot be made is left out. */
void xd_make_parents(char *path);

/* "a/b" from "a" and "b" (no second slash); malloc'ed, NULL without memory. */
char *xd_path_join(const char *dir, const char *name);

#endif
