/* descendants.h - counts and signals the child processes of another process, and their children, as
 * /proc lists them */
#ifndef XD_LAUNCH_DESCENDANTS_H
#define XD_LAUNCH_DESCENDANTS_H

#include <sys/types.h>

/* Counts the living descendants of `pid` that have no children, and sends `sig` (0: none) to all
 * descendants, children first. Returns -1 if /proc does not list children. */
int xd_descendants_signal(pid_t pid, int sig);

#endif
