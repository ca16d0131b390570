/* rundir.h - a directory for the files of the MPI launcher and of the messages between ranks.
 *
 * It is removed whatever happens to the run, also when this process or the launcher is killed:
 * both hold a lock on it, and a keeper, a small process beside, waits for the lock to end. */
#ifndef XD_CLI_RUNDIR_H
#define XD_CLI_RUNDIR_H

typedef struct xd_rundir {
    char path[64];              /* empty: there is none, the launcher chooses                   */
    int  lock;                  /* descriptor of the lock, which the launcher inherits; -1: none */
} xd_rundir;

/* For so many ranks, all on this host. Directories that nobody holds any more are removed. */
void   xd_rundir_make(xd_rundir *r, int ranks);
void   xd_rundir_close(xd_rundir *r);

/* Bytes that the launcher's files and the messages of so many ranks on one host take at most,
 * and those that a directory has free: behind them pages are missing when they are touched. */
double xd_rundir_need(int ranks);
double xd_rundir_space(const char *dir);

#endif
