/* file.h - reads complete files, and writes files atomically, so that an incomplete file never has
 * the final name. */
#ifndef XD_BASE_FILE_H
#define XD_BASE_FILE_H

#include <stddef.h>
#include <stdio.h>

#include "base/err.h"

int xd_file_exists(const char *path); /* returns 1 if a file of any kind exists */
int xd_file_is_dir(const char *path);
/* Returns 1 if the file is a device, a pipe or a socket. */
int xd_file_is_stream(const char *path);

/* Returns a hint, in the form "; ...", to append to the error "no such file". The hint is empty
 * unless the path begins with "~" or is a URL. */
const char *xd_path_hint(const char *path);

/* Reads a complete regular file of at most `max` bytes. *data is malloc'ed, owned by the caller,
 * and ends in an extra NUL that *len does not count. Returns XD_EIO if the file cannot be read. */
xd_status xd_file_read(const char *path, size_t max, char **data, size_t *len, xd_err *e);

/* Reads a file as xd_file_read does, and also reads a pipe or a device to the end; "-" is standard
 * input. */
xd_status xd_file_read_any(const char *path, size_t max, char **data, size_t *len, xd_err *e);

/* A file that is being written. The file gets its name only when its contents are complete and
 * synced. If the file system supports O_TMPFILE, the incomplete file has no name at all, so that
 * nothing remains even after SIGKILL. On file systems without O_TMPFILE, the incomplete file has a
 * temporary name in the same directory and is renamed at the end. An output that is a device or a
 * pipe is written directly, without a temporary file. */
typedef struct xd_out {
    FILE *f;
    /* path: final name of the file; tmp: temporary name of the file, or NULL if it has none. */
    char *path, *tmp;
    int   stream; /* 1: the file is a device or a pipe */
} xd_out;

xd_status xd_out_open(xd_out *o, const char *path, xd_err *e);
/* Closes a complete file and gives the file its final name; removes the file on failure. */
xd_status xd_out_commit(xd_out *o, xd_err *e);
/* Removes an incomplete file; does nothing after xd_out_commit. */
void      xd_out_abort(xd_out *o);

/* Checks that the file `path` can be created or replaced. xd_file_writable creates no file or
 * directory. */
xd_status xd_file_writable(const char *path, xd_err *e);

/* Returns 1 if the process has an output (xd_out) that is a device or a pipe. An output counts as
 * open as soon as xd_out_open is called, because opening a pipe may block until another process
 * reads from it. xd_out_streams is async-signal-safe. */
int xd_out_streams(void);

/* Removes the temporary files of all open outputs (xd_out). xd_out_sweep is async-signal-safe, for
 * a signal handler that exits. */
void xd_out_sweep(void);

/* Counts the bytes in the range [at, at + bytes) of a file that are not in the page cache and must
 * be read from disk. xd_file_cold_bytes counts complete pages, up to the end of the file. Returns 0
 * also if the number is unknown: Linux reports the cached pages of a file only to users who may
 * write the file. fd: descriptor of the file, open for reading. */
size_t xd_file_cold_bytes(int fd, size_t at, size_t bytes);
/* Asks the system to drop a file's clean pages from the page cache (posix_fadvise); the system may
 * ignore the request. */
void   xd_file_drop_cached(int fd);

/* Makes the path of a file in xdit's cache directory, $XDG_CACHE_HOME/xdit/NAME or
 * ~/.cache/xdit/NAME, and writes the path to `path`. Returns 0 if neither XDG_CACHE_HOME nor HOME
 * is an absolute path, or if the path does not fit into `size` bytes. */
int  xd_cache_path(const char *name, char *path, size_t size);
/* Creates the parent directories of a path, and ignores failures. The text `path` is modified
 * during the call and then restored. */
void xd_make_parents(char *path);

/* Returns "dir/name", malloc'ed, without a double slash, or NULL if out of memory. */
char *xd_path_join(const char *dir, const char *name);
/* Returns 1 if a file of this name lists the components of a model: model_index.json or, for a
 * modular pipeline of diffusers, modular_model_index.json. */
int   xd_is_model_index(const char *name);
/* Returns the malloc'ed path of a directory's model_index.json or modular_model_index.json, or NULL
 * if out of memory. If the directory contains neither of the two files, returns the path that
 * model_index.json would have. */
char *xd_model_index_path(const char *dir);

#endif
