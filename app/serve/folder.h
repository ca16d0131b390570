/* folder.h - the directories of a server: a temporary directory, and the directory --results.
 *
 * A lock on the temporary directory shows other servers that this server is alive. The kernel
 * releases the lock of a server's directory when the server's process ends. */
#ifndef XD_SERVE_FOLDER_H
#define XD_SERVE_FOLDER_H

#include "base/err.h"

typedef struct xd_folder {
    char path[4096]; /* path of the directory; "": no directory */
    /* file descriptor of the directory, which may be locked; -1: the directory is not open */
    int  lock;
} xd_folder;

/* Creates and locks a temporary directory in $TMPDIR, else in /dev/shm or /tmp. In the parent
 * directory, xd_folder_create also removes the temporary directories of servers that have ended. */
xd_status xd_folder_create(xd_folder *f, xd_err *e);
/* Opens the directory --results, which several servers may use at the same time (replica.h), and
 * writes its absolute path to f->path. XD_EIO: the path is not a directory. */
xd_status xd_folder_open(xd_folder *f, const char *path, xd_err *e);
/* Returns nonzero if the name is that of an incompletely written file (base/file.c), such as
 * "image_5f0c....png.tmpAbCdEf". */
int       xd_folder_is_partial(const char *name);
/* Returns the number of files in a directory for whose names the callback `has` returns true (NULL:
 * the number of all files); 0 if the directory does not exist. If `removes` is 1, removes the
 * counted files. */
int       xd_folder_files(const char *path, int (*has)(const char *name), int removes);
void      xd_folder_remove(xd_folder *f); /* removes the directory with its files */
/* releases the lock of the directory, and keeps the directory */
void      xd_folder_unlock(xd_folder *f);

#endif
