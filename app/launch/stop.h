/* stop.h - handles signals: the first Ctrl-C cancels the request, the second ends the process */
#ifndef XD_LAUNCH_STOP_H
#define XD_LAUNCH_STOP_H

#include "xdit/tools.h"

/* Handles SIGINT, SIGTERM and SIGHUP. While no engine is watched (xd_stop_watch), a signal ends the
 * process at once. No incomplete output file remains, whether an engine is watched or not. */
void xd_stop_arm(void);
/* Handles signals in a rank that an MPI launcher has started. SIGUSR1 cancels the request of all
 * ranks, like SIGINT. SIGTERM, which a launcher sends to end a failed run, ends the process at
 * once. */
void xd_stop_arm_rank(void);
/* Handles SIGBUS in every thread. SIGBUS is raised when a mapped file was truncated; the handler
 * prints a sentence with the name of the file, and ends the process. Every command calls this
 * function. */
void xd_stop_arm_sigbus(void);
/* Handles the limit of CPU time (ulimit -t): prints a sentence and ends the process shortly before
 * the system would kill it. Every command calls this function. */
void xd_stop_arm_sigxcpu(void);
void xd_stop_watch(xd_engine *g);       /* sets the engine that the first signal cancels; NULL:
                                           none */
/* Returns the signal that was received, or 0. If a signal was received, cancels the watched engine
 * again, because a signal just before a request began would be lost otherwise. */
int  xd_stop_signal(void);

#endif
