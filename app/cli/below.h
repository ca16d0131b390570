/* below.h - processes below another one: its children, and theirs */
#ifndef XD_CLI_BELOW_H
#define XD_CLI_BELOW_H

#include <sys/types.h>

/* Counts the living processes below `pid` that have no children, and sends `sig` (0: none) to all
 * that are below it, the lowest first. -1: this system does not tell. */
int xd_below_signal(pid_t pid, int sig);

#endif
