/* stop.h - handles signals: the first Ctrl-C cancels the request, the second Ctrl-C ends the
 * process. */
#ifndef XD_LAUNCH_STOP_H
#define XD_LAUNCH_STOP_H

#include "xdit/tools.h"

/* Handles SIGINT, SIGTERM and SIGHUP. A signal cancels the request of the engine that xd_stop_watch
 * has set. If xd_stop_watch has set no engine, a signal ends the process at once. Incomplete output
 * files are removed, whether a signal cancels a request or ends the process. */
void xd_stop_arm(void);
/* Handles signals in a rank that an MPI launcher has started. SIGUSR1 cancels the request of all
 * ranks, like SIGINT. SIGTERM, which a launcher sends to end a failed run, ends the process at
 * once. */
void xd_stop_arm_rank(void);
/* Handles SIGBUS in every thread. SIGBUS is raised when a mapped file was truncated; the handler
 * prints a sentence with the name of the file, and ends the process. Every command calls this
 * function. */
void xd_stop_arm_sigbus(void);
/* Handles the limit of CPU time (ulimit -t): shortly before the system would kill the process,
 * prints a sentence and ends the process. Every command calls this function. */
void xd_stop_arm_sigxcpu(void);
/* Sets the engine whose request the first signal cancels; NULL: no engine. */
void xd_stop_watch(xd_engine *g);
/* Returns the signal that was received, or 0. If a signal was received, cancels the watched engine
 * again: without the second cancellation, a signal that arrived just before the request began would
 * be lost. */
int  xd_stop_signal(void);

#endif
