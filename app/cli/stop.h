/* stop.h - what Ctrl-C does: the first signal ends the request, the second one the process */
#ifndef XD_CLI_STOP_H
#define XD_CLI_STOP_H

#include "xdit/tools.h"

/* Takes SIGINT, SIGTERM and SIGHUP. While no engine is being watched a signal ends the process at
 * once; no half-written file is left either way. */
void xd_stop_arm(void);
/* The same for a rank that an MPI launcher started: SIGUSR1 cancels the request of all ranks as
 * if it were SIGINT; SIGTERM is how a launcher ends a run that failed, and ends the process at
 * once. */
void xd_stop_arm_rank(void);
/* SIGBUS, a mapped file that became shorter, ends the process with a sentence that names the
 * file, in whatever thread it comes; for every command. */
void xd_stop_arm_lost(void);
/* The limit of processor time (ulimit -t) ends the process with a sentence, shortly before the
 * system would kill it; for every command. */
void xd_stop_arm_time(void);
void xd_stop_watch(xd_engine *g);       /* whom the first signal cancels; NULL: nobody         */
/* 0, or the signal that came. Cancels the watched engine again: a signal that came just before
 * a request began would otherwise be forgotten by it. */
int  xd_stop_asked(void);

#endif
