/* clock.h - reads a monotonic wall clock, in seconds or nanoseconds. */
#ifndef XD_BASE_CLOCK_H
#define XD_BASE_CLOCK_H

#include <stdint.h>

double  xd_now_s(void);  /* returns the seconds since a fixed moment */
int64_t xd_now_ns(void); /* returns the nanoseconds since the fixed moment of xd_now_s */

#endif
