/* folder.h - the folders of a server: one of its own, and --results. A lock on each tells others
 * that the server lives; the system ends it with the process, however that dies. */
#ifndef XD_SERVE_FOLDER_H
#define XD_SERVE_FOLDER_H

#include <signal.h>

#include "base/err.h"

typedef struct xd_folder {
    char path[4096];            /* "": there is none                                           */
    int  lock;                  /* descriptor; -1: none                                        */
} xd_folder;

/* Makes a folder for files that go with the server, in $TMPDIR, in memory or in /tmp. Those of
 * servers that are dead are removed there. */
xd_status xd_folder_make(xd_folder *f, xd_err *e);
/* Takes the folder of --results for this server alone: waits some seconds, or until *stop, for
 * another one that is ending. Halves of files that a killed server has left are removed. XD_EIO: it
 * is no folder, or another server has it. */
xd_status xd_folder_take(xd_folder *f, const char *path, const volatile sig_atomic_t *stop,
                         xd_err *e);
void      xd_folder_remove(xd_folder *f);       /* with its files                              */
void      xd_folder_leave(xd_folder *f);        /* as it is                                    */

#endif
