/* log.c - writes messages to the current logger of the calling thread */
#include "base/log.h"

#include <stdio.h>

static _Thread_local const xd_logger *current;

const xd_logger *xd_log_enter(const xd_logger *log)
{
    const xd_logger *before = current;
    current = log;
    return before;
}

int xd_log_on(int level)
{
    return current && current->fn && level <= current->level;
}

void xd_log(int level, const char *fmt, ...)
{
    if (!xd_log_on(level))
        return;
    char    line[4096];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    xd_one_line(line);
    current->fn(current->cookie, level, line);
}
