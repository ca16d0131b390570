/* log.h - log lines of the library, which itself never prints
 *
 * Every thread has a current log: that of the engine whose function it runs, so two engines of one
 * process have two logs. A thread without a current log drops its lines. Levels are those of xdit.h
 * (XD_LOG_ERROR .. XD_LOG_DEBUG). */
#ifndef XD_BASE_LOG_H
#define XD_BASE_LOG_H

#include "base/err.h"

typedef struct xd_logger {
    void (*fn)(void *cookie, int level, const char *line);      /* NULL: lines are dropped     */
    void  *cookie;
    int    level;               /* the most verbose level that is passed on                    */
} xd_logger;

/* Makes `log` (borrowed; NULL: none) the calling thread's current log. Returns the previous one,
 * which the caller restores. */
const xd_logger *xd_log_enter(const xd_logger *log);
void             xd_log(int level, const char *fmt, ...) XD_PRINTF(2, 3);
int              xd_log_on(int level);  /* nonzero: the current log takes lines of this level  */

#endif
