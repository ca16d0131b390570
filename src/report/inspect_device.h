/* inspect_device.h - how a model fits into the memory of a GPU of this machine */
#ifndef XD_REPORT_INSPECT_DEVICE_H
#define XD_REPORT_INSPECT_DEVICE_H

#include "xdit/tools.h"

/* Describes in one line how a request of the default size uses the memory of the first device with
 * its own memory: parts that stay, parts that are dropped in between, streamed blocks; or why it
 * does not fit. Nothing is loaded. json: as a JSON member. Returns 0 if there is no such device. */
int xd_inspect_device(const char *dir, int json, char *out, size_t size);

#endif
