/* count.h - returns the real device that belongs to a count device. A count device only counts the
 * bytes and operations of a real device and computes nothing. */
#ifndef XD_BACKEND_COUNT_COUNT_H
#define XD_BACKEND_COUNT_COUNT_H

#include "backend/backend.h"

/* Returns the real device whose work the count device d counts, or NULL if there is no real
 * device. */
const xd_dev *xd_count_real(const xd_dev *d);

#endif
