/* file.h - whole files: reading, and writing so that nothing is ever half there */
#ifndef XD_BASE_FILE_H
#define XD_BASE_FILE_H

#include <stddef.h>
#include <stdio.h>

#include "base/err.h"

int xd_file_exists(const char *path);           /* any kind of file                          */
int xd_file_is_dir(const char *path);
int xd_file_is_stream(const char *path);        /* a device, a pipe or a socket               */

/* Reads a whole file of at most `max` bytes; *data is malloc'ed, ends in an extra NUL that
 * *len does not count, and is the caller's. XD_EIO when it cannot be read. */
xd_status xd_file_read(const char *path, size_t max, char **data, size_t *len, xd_err *e);

/* The same of a pipe or a device too, waiting for its end; "-": standard input. */
xd_status xd_file_read_any(const char *path, size_t max, char **data, size_t *len, xd_err *e);

/* A file that appears under its name only when it is whole and synced. Until then it has no name
 * where the file system can do that, so that even SIGKILL leaves nothing; elsewhere it is written
 * under a temporary name beside, then renamed. A device or a pipe is written as it is. */
typedef struct xd_out {
    FILE *f;
    char *path, *tmp;           /* tmp: NULL while there is no name                            */
    int   stream;               /* a device or a pipe                                          */
} xd_out;

xd_status xd_out_open(xd_out *o, const char *path, xd_err *e);
xd_status xd_out_commit(xd_out *o, xd_err *e);  /* closes; on failure the temporary is gone   */
void      xd_out_abort(xd_out *o);              /* accepts a closed one; removes the temporary */

/* Can a file of this name be created (or replaced)? Leaves nothing behind; makes no
 * directory. */
xd_status xd_file_writable(const char *path, xd_err *e);

/* Is a device or a pipe being written, whose reader may not come? Async-signal-safe. */
int xd_out_streams(void);

/* Removes the temporaries of all open xd_out: async-signal-safe, for a handler that exits. */
void xd_out_sweep(void);

/* "a/b" from "a" and "b" (no second slash); malloc'ed, NULL without memory. */
char *xd_path_join(const char *dir, const char *name);

#endif
