/* count.h - access to the device that a count device simulates, for registry.c */
#ifndef XD_BACKEND_COUNT_COUNT_H
#define XD_BACKEND_COUNT_COUNT_H

#include "backend/backend.h"

const xd_dev *xd_count_real(const xd_dev *d);   /* returns the device that d simulates, or NULL */

#endif
