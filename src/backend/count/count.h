/* count.h - returns the real device for which a count device, which computes nothing, counts
 * operations and bytes. A count device only counts the bytes and operations of a real device and
 * computes nothing. */
#ifndef XD_BACKEND_COUNT_COUNT_H
#define XD_BACKEND_COUNT_COUNT_H

#include "backend/backend.h"

/* Returns the real device for which the count device d counts, or NULL if it counts for no
 * particular device. */
const xd_dev *xd_count_real(const xd_dev *d);

#endif
