/* log.h - the engine's log: the library never prints, it calls this.
 *
 * One sink per process, set by the engine's opener. Levels are those of xdit.h
 * (XD_LOG_ERROR .. XD_LOG_DEBUG). Safe to call from any thread. */
#ifndef XD_BASE_LOG_H
#define XD_BASE_LOG_H

#include "base/err.h"

void xd_log_sink(void (*sink)(void *cookie, int level, const char *line), void *cookie,
                 int level);
void xd_log(int level, const char *fmt, ...) XD_PRINTF(2, 3);
int  xd_log_on(int level);      /* nonzero: lines of this level are heard                    */

#endif
