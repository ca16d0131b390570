/* host.h - functions by which host code accesses device memory; no other host code does.
 *
 * Only kernels dereference device addresses. If the host can address a device's memory
 * (xd_dev.host_memory), xd_host_open copies nothing. If the context has failed, and while counting,
 * these functions do nothing. */
#ifndef XD_EXEC_HOST_H
#define XD_EXEC_HOST_H

#include "exec/exec.h"

/* Copies bytes from host memory to device memory. The caller may reuse `from` when the function has
 * returned. */
void  xd_upload(xd_exec *x, void *to, const void *from, size_t bytes);
/* Copies bytes from device memory to host memory, after all work that was queued before. */
void  xd_download(xd_exec *x, void *to, const void *from, size_t bytes);
/* Makes bytes in device memory readable for the host, after all work that was queued before.
 * Returns p itself or a copy in host memory; NULL if the context has failed, and while counting.
 * End the access with xd_host_close. */
void *xd_host_open(xd_exec *x, void *p, size_t bytes);
/* Ends an access: copies the first `written` bytes back to the device, if `host` is a copy. host
 * may be NULL. */
void  xd_host_close(xd_exec *x, void *host, void *p, size_t written);

#endif
