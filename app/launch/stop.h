/* stop.h - handlers of signals: the first Ctrl-C cancels the request, the second ends the
 * process */
#ifndef XD_LAUNCH_STOP_H
#define XD_LAUNCH_STOP_H

#include "xdit/tools.h"

/* Handles SIGINT, SIGTERM and SIGHUP. While no engine is watched, a signal ends the process at
 * once. In both cases no incomplete output file remains. */
void xd_stop_arm(void);
/* The same for a rank started by an MPI launcher: SIGUSR1 cancels the request of all ranks like
 * SIGINT; SIGTERM, by which a launcher ends a failed run, ends the process at once. */
void xd_stop_arm_rank(void);
/* Handles SIGBUS, raised when a mapped file was truncated, in any thread: prints a sentence with
 * the name of the file, and ends the process. For every command. */
void xd_stop_arm_sigbus(void);
/* Handles the limit of CPU time (ulimit -t): prints a sentence and ends the process shortly before
 * the system would kill it. For every command. */
void xd_stop_arm_sigxcpu(void);
void xd_stop_watch(xd_engine *g);       /* the engine that the first signal cancels; NULL: none */
/* Returns the signal that was received, or 0. Cancels the watched engine again: a signal just
 * before a request began would be lost otherwise. */
int  xd_stop_signal(void);

#endif
