/* count.h - returns the real device behind a count device (a device that counts bytes and
 * operations and computes nothing). */
#ifndef XD_BACKEND_COUNT_COUNT_H
#define XD_BACKEND_COUNT_COUNT_H

#include "backend/backend.h"

/* Returns the real device whose work the count device d counts, or NULL if there is no real
 * device. */
const xd_dev *xd_count_real(const xd_dev *d);

#endif
