/* folder.h - creates and locks the directories of a server: a temporary directory, and the
 * directory --results.
 *
 * A lock on each directory shows other servers that this server is alive. The kernel releases the
 * lock when the process ends. */
#ifndef XD_SERVE_FOLDER_H
#define XD_SERVE_FOLDER_H

#include <signal.h>

#include "base/err.h"

typedef struct xd_folder {
    char path[4096]; /* path of the directory; "": no directory */
    int  lock;       /* file descriptor of the directory's lock; -1: no lock is held */
} xd_folder;

/* Creates and locks a temporary directory in $TMPDIR, else in /dev/shm or /tmp. Also removes the
 * temporary directories of dead servers in the same parent directory. */
xd_status xd_folder_create(xd_folder *f, xd_err *e);
/* Locks the directory --results. If a server that is exiting still holds the lock, waits some
 * seconds until the lock is released, or until *stop is nonzero. Removes incomplete files that a
 * killed server has left in the directory. XD_EIO: the path of --results is not a directory, or
 * another server has locked the directory. */
xd_status xd_folder_lock(xd_folder *f, const char *path, const volatile sig_atomic_t *stop,
                         xd_err *e);
/* Returns the number of files in a directory for whose names the callback `has` returns true (NULL:
 * the number of all files); 0 if the directory does not exist. If `removes` is 1, removes the
 * counted files. */
int       xd_folder_files(const char *path, int (*has)(const char *name), int removes);
void      xd_folder_remove(xd_folder *f); /* removes the directory with its files */
/* releases the lock of the directory, and keeps the directory */
void      xd_folder_unlock(xd_folder *f);

#endif
