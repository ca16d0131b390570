/* descendants.h - counts and signals the child processes of another process, and their children, as
 * /proc lists them */
#ifndef XD_LAUNCH_DESCENDANTS_H
#define XD_LAUNCH_DESCENDANTS_H

#include <sys/types.h>

/* Sends the signal `sig` (0: none) to all descendants of the process `pid`, children before
 * parents. Returns the number of living descendants that have no children themselves. Returns -1 if
 * this kernel's /proc does not list children. */
int xd_descendants_signal(pid_t pid, int sig);

#endif
