/* folder.h - the directories of a server: a temporary one, and --results
 *
 * A lock on each directory shows other servers that this one is alive; the kernel releases it when
 * the process ends. */
#ifndef XD_SERVE_FOLDER_H
#define XD_SERVE_FOLDER_H

#include <signal.h>

#include "base/err.h"

typedef struct xd_folder {
    char path[4096];            /* "": none                                                    */
    int  lock;                  /* file descriptor; -1: none                                   */
} xd_folder;

/* Creates and locks a temporary directory in $TMPDIR, else in /dev/shm or /tmp. Removes those
 * of dead servers there. */
xd_status xd_folder_create(xd_folder *f, xd_err *e);
/* Locks the directory --results. Waits some seconds, or until *stop, for a server that is exiting.
 * Removes incomplete files of a killed server. XD_EIO: not a directory, or another server has it.
 * */
xd_status xd_folder_lock(xd_folder *f, const char *path, const volatile sig_atomic_t *stop,
                         xd_err *e);
void      xd_folder_remove(xd_folder *f);       /* removes the directory with its files        */
void      xd_folder_unlock(xd_folder *f);       /* keeps the directory                         */

#endif
