/* clock.h - wall clock */
#ifndef XD_BASE_CLOCK_H
#define XD_BASE_CLOCK_H

double xd_now_s(void);          /* seconds since some fixed moment, monotonic                */

#endif
