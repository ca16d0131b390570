/* rundir.h - a temporary directory for files of the MPI launcher and for messages between ranks.
 *
 * It is always removed, even if this process or the launcher is killed: both hold a lock on it, and
 * a cleaner, a small separate process, removes it once the lock is released. */
#ifndef XD_LAUNCH_RUNDIR_H
#define XD_LAUNCH_RUNDIR_H

typedef struct xd_rundir {
    char path[64];              /* empty: none, the launcher uses its default                   */
    int  lock;                  /* file descriptor, which the launcher inherits; -1: none       */
} xd_rundir;

/* Makes a directory for `ranks` ranks on this host, and removes abandoned ones. r->path is empty if
 * no file system has enough space. */
void   xd_rundir_make(xd_rundir *r, int ranks);
void   xd_rundir_close(xd_rundir *r);

/* Maximum bytes of the launcher's files and the messages of `ranks` ranks on one host, and bytes
 * that are free in a directory. If they do not suffice, access to shared memory raises SIGBUS. */
double xd_rundir_need(int ranks);
double xd_rundir_space(const char *dir);

#endif
