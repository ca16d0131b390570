/* count.h - what registry.c needs to know about a count device */
#ifndef XD_BACKEND_COUNT_COUNT_H
#define XD_BACKEND_COUNT_COUNT_H

#include "backend/backend.h"

const xd_dev *xd_count_real(const xd_dev *d);   /* the device it stands for, or NULL           */

#endif
