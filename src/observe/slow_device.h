/* slow_device.h - a device whose kernels take longer, as if its rank had a slower machine; for tests */
#ifndef XD_OBSERVE_SLOW_DEVICE_H
#define XD_OBSERVE_SLOW_DEVICE_H

#include "backend/backend.h"

/* For tests: where XDIT_SLOW has "RANK:FACTOR", its kernels take FACTOR times as long. */
xd_status xd_slow_device(xd_dev **d, int rank, xd_err *e);

#endif
