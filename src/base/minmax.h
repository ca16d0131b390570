/* minmax.h - computes the smaller or the larger of two values, and divisions that round up.
 *
 * If an argument of xd_max_double is NaN, the function returns its second argument. */
#ifndef XD_BASE_MINMAX_H
#define XD_BASE_MINMAX_H

#include <stddef.h>
#include <stdint.h>

static inline int64_t xd_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t xd_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline size_t xd_max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

static inline double xd_max_double(double a, double b)
{
    return a > b ? a : b;
}

/* Returns n / by, rounded up; n >= 0, by > 0. */
static inline int64_t xd_ceil_div(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* Returns the smallest multiple of `by` that is at least n; n >= 0, by > 0. */
static inline int64_t xd_round_up(int64_t n, int64_t by)
{
    return xd_ceil_div(n, by) * by;
}

#endif
