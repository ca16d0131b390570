/* inspect_device.h - what of a model a GPU of this machine holds */
#ifndef XD_REPORT_INSPECT_DEVICE_H
#define XD_REPORT_INSPECT_DEVICE_H

#include "xdit/tools.h"

/* How a request of the default size is laid out in the memory of the first device that has a memory
 * of its own: what stays, what is dropped between the parts, what is streamed; or why it does not
 * fit. Nothing is loaded. One line, also of JSON; 0: there is no such device. */
int xd_inspect_device(const char *dir, int json, char *out, size_t size);

#endif
