/* log.h - passes the library's log lines to the program's callback; the library itself never
 * prints.
 *
 * Every thread has a current log, which is the log of the engine whose function the thread runs, so
 * that two engines of one process can have two logs. Log lines of a thread without a current log
 * are dropped. The levels XD_LOG_ERROR to XD_LOG_DEBUG are defined in xdit/err.h. */
#ifndef XD_BASE_LOG_H
#define XD_BASE_LOG_H

#include "base/err.h"

typedef struct xd_logger {
    /* The program's function that receives log lines; NULL: log lines are dropped. */
    void  (*fn)(void *cookie, int level, const char *line);
    void *cookie;
    int   level; /* most verbose level that is passed to fn */
} xd_logger;

/* Makes `log` the calling thread's current log. `log` is borrowed; NULL: no log. Returns the
 * thread's previous log, which the caller restores. */
const xd_logger *xd_log_enter(const xd_logger *log);
void             xd_log(int level, const char *fmt, ...) XD_PRINTF(2, 3);
/* Returns nonzero if log lines of level `level` are passed to the program. */
int              xd_log_on(int level);

#endif
