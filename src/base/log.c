/* log.c - one sink, guarded by a mutex */
#include "base/log.h"

#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static void (*sink)(void *cookie, int level, const char *line);
static void *sink_cookie;
static int   sink_level = -1;

void xd_log_sink(void (*fn)(void *cookie, int level, const char *line), void *cookie, int level)
{
    pthread_mutex_lock(&guard);
    sink = fn;
    sink_cookie = cookie;
    sink_level = fn ? level : -1;
    pthread_mutex_unlock(&guard);
}

int xd_log_on(int level)
{
    return level <= sink_level;
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
    pthread_mutex_lock(&guard);
    if (sink)
        sink(sink_cookie, level, line);
    pthread_mutex_unlock(&guard);
}
