/* host.h - access of host code to device memory; all such code calls one of these functions
 *
 * Only kernels dereference device addresses. If the host can address a device's memory
 * (xd_dev.host_memory), nothing is copied. After a failure and while counting these do nothing. */
#ifndef XD_EXEC_HOST_H
#define XD_EXEC_HOST_H

#include "exec/exec.h"

/* Copies host bytes to the device; `from` may be reused on return. */
void  xd_upload(xd_exec *x, void *to, const void *from, size_t bytes);
/* Copies device bytes to the host, after all previously submitted work. */
void  xd_download(xd_exec *x, void *to, const void *from, size_t bytes);
/* Makes device bytes readable for the host, after all previously submitted work: returns p itself
 * or a copy; NULL after a failure and while counting. End with xd_host_close. */
void *xd_host_open(xd_exec *x, void *p, size_t bytes);
/* Copies the first `written` bytes back to the device. `host` may be NULL. */
void  xd_host_close(xd_exec *x, void *host, void *p, size_t written);

#endif
