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
    char path[4096]; /* the directory; "": none */
    int  lock;       /* file descriptor of the lock; -1: none */
} xd_folder;

/* Creates and locks a temporary directory in $TMPDIR, else in /dev/shm or /tmp. Also removes the
 * temporary directories that dead servers have left in the same place. */
xd_status xd_folder_create(xd_folder *f, xd_err *e);
/* Locks the directory --results. If a server that is exiting still holds the lock, waits some
 * seconds until the lock is released, or until *stop is nonzero. Removes incomplete files that a
 * killed server has left in the directory. XD_EIO: the path is not a directory, or another server
 * has locked the directory. */
xd_status xd_folder_lock(xd_folder *f, const char *path, const volatile sig_atomic_t *stop,
                         xd_err *e);
/* Returns the number of files of a directory for whose name `has` returns true, or of all files if
 * `has` is NULL; 0 if there is no such directory. If `removes` is 1, removes these files. */
int       xd_folder_files(const char *path, int (*has)(const char *name), int removes);
void      xd_folder_remove(xd_folder *f); /* removes the directory with its files */
void      xd_folder_unlock(xd_folder *f); /* releases the lock and keeps the directory */

#endif
