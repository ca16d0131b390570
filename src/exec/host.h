/* host.h - functions through which host code accesses device memory. All host code accesses device
 * memory only through the functions of host.h.
 *
 * Only kernels dereference device addresses. If the host can address a device's memory
 * (xd_dev.host_memory), xd_host_open copies nothing. The functions of host.h do nothing if the
 * context has failed, or on a count device (which counts memory and computes nothing). */
#ifndef XD_EXEC_HOST_H
#define XD_EXEC_HOST_H

#include "exec/exec.h"

/* Copies bytes from host memory to device memory. The caller may reuse `from` when the function has
 * returned. */
void  xd_upload(xd_exec *x, void *to, const void *from, size_t bytes);
/* Copies bytes from device memory to host memory, after waiting for all work that was queued on the
 * device before. */
void  xd_download(xd_exec *x, void *to, const void *from, size_t bytes);
/* Waits for all work that was queued on the device, and makes `bytes` bytes at the device address p
 * readable for the host. Returns p itself, or the address of a copy in host memory. Returns NULL if
 * the context has failed, or on a count device, which computes nothing. End the access to device
 * memory with xd_host_close. */
void *xd_host_open(xd_exec *x, void *p, size_t bytes);
/* Ends an access that xd_host_open began: copies the first `written` bytes back to the device if
 * `host` is a copy. `host` may be NULL, and is then ignored. */
void  xd_host_close(xd_exec *x, void *host, void *p, size_t written);

#endif
