/* slow_device.h - for tests: slows down the kernels of a rank's device, as if the rank were on a
 * slower machine. */
#ifndef XD_OBSERVE_SLOW_DEVICE_H
#define XD_OBSERVE_SLOW_DEVICE_H

#include "backend/backend.h"

/* The environment variable XDIT_SLOW lists ranks as "RANK:FACTOR,...". If XDIT_SLOW lists this rank
 * with a factor above 1, replaces *d by a proxy device whose kernels take FACTOR times as long.
 * "RANK:FACTOR:FIRST:END" slows down only the rank's kernel calls number FIRST to END - 1; without
 * END, all calls from FIRST on. */
xd_status xd_slow_device(xd_dev **d, int rank, xd_err *e);

#endif
