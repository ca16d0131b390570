/* clock.h - monotonic wall-clock time, in seconds and in nanoseconds. */
#ifndef XD_BASE_CLOCK_H
#define XD_BASE_CLOCK_H

#include <stdint.h>

double  xd_now_s(void);         /* seconds since a fixed moment                              */
int64_t xd_now_ns(void);        /* nanoseconds since the same moment                         */

#endif
