/* inspect_device.h - describes how a model fits into the memory of a GPU of this machine. */
#ifndef XD_REPORT_INSPECT_DEVICE_H
#define XD_REPORT_INSPECT_DEVICE_H

#include "xdit/tools.h"

/* Describes in one line how a request of the default size uses the memory of the first device with
 * its own memory: which components stay loaded, which are freed after use, and which blocks are
 * copied to the device each time they are used. If the request does not fit, xd_inspect_device
 * writes the reason. xd_inspect_device loads nothing. If `json` is 1, writes the description as a
 * member of a JSON object. Returns 0 if this machine has no device with its own memory. */
int xd_inspect_device(const char *dir, int json, char *out, size_t size);

#endif
