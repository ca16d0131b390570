/* rundir.h - creates a temporary directory for files of the MPI launcher and for messages between
 * ranks.
 *
 * The temporary directory is always removed, even if this process or the launcher is killed. Two
 * processes hold a lock on the temporary directory: the process that creates it, and the MPI
 * launcher. A small separate process, the cleaner, removes the temporary directory when the lock is
 * released. */
#ifndef XD_LAUNCH_RUNDIR_H
#define XD_LAUNCH_RUNDIR_H

typedef struct xd_rundir {
    /* Path of the temporary directory; empty: no directory was created, and the launcher uses its
     * default directory. */
    char path[64];
    /* file descriptor of the locked directory, which the launcher inherits; -1: no directory is
     * locked */
    int  lock;
} xd_rundir;

/* Creates a temporary directory for `ranks` ranks on this host. Also removes temporary directories
 * that killed programs have left. r->path becomes empty if no file system has enough free space for
 * the new directory. */
void xd_rundir_make(xd_rundir *r, int ranks);
void xd_rundir_close(xd_rundir *r);

/* xd_rundir_need returns how many bytes the files of the launcher and the messages between `ranks`
 * ranks need at most on one host. xd_rundir_space returns the free bytes of the file system of a
 * directory. If the file system has fewer free bytes than needed, access to shared memory raises
 * SIGBUS. */
double xd_rundir_need(int ranks);
double xd_rundir_space(const char *dir);

#endif
