/* slow_device.h - for tests: a device with slower kernels, as if its rank had a slower machine */
#ifndef XD_OBSERVE_SLOW_DEVICE_H
#define XD_OBSERVE_SLOW_DEVICE_H

#include "backend/backend.h"

/* The environment variable XDIT_SLOW lists ranks as "RANK:FACTOR,...". If it names this rank with
 * a factor above 1, puts a proxy in front of *d whose kernels take that many times as long. */
xd_status xd_slow_device(xd_dev **d, int rank, xd_err *e);

#endif
