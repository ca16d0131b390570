/* rundir.h - creates a temporary directory for files of the MPI launcher and for messages between
 * ranks.
 *
 * The directory is always removed, even if this process or the launcher is killed. The process that
 * creates the directory and the launcher hold a lock on it, and a small separate process, the
 * cleaner, removes the directory when the lock is released. */
#ifndef XD_LAUNCH_RUNDIR_H
#define XD_LAUNCH_RUNDIR_H

typedef struct xd_rundir {
    char path[64];              /* path of the directory; empty: none, so the launcher uses its
                                   default directory */
    int  lock;                  /* file descriptor of the lock, which the launcher inherits; -1:
                                   none */
} xd_rundir;

/* Creates a temporary directory for `ranks` ranks on this host, and removes abandoned directories.
 * r->path is empty if no file system has enough space. */
void   xd_rundir_make(xd_rundir *r, int ranks);
void   xd_rundir_close(xd_rundir *r);

/* xd_rundir_need returns the maximum bytes of the launcher's files and of the messages of `ranks`
 * ranks on one host. xd_rundir_space returns the free bytes in a directory. If the free bytes do
 * not suffice, access to shared memory raises SIGBUS. */
double xd_rundir_need(int ranks);
double xd_rundir_space(const char *dir);

#endif
