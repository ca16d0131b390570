/* host.h - host code that reads or writes memory of a device: every such place calls one of these.
 *
 * Kernels alone follow device addresses. Where the host reaches a device's memory (xd_dev.host_memory) nothing
 * is copied. Nothing happens after a failure and while counting. */
#ifndef XD_EXEC_HOST_H
#define XD_EXEC_HOST_H

#include "exec/exec.h"

/* Host bytes to the device; `from` may be reused on return. */
void  xd_upload(xd_exec *x, void *to, const void *from, size_t bytes);
/* Device bytes to the host, behind the work before. */
void  xd_download(xd_exec *x, void *to, const void *from, size_t bytes);
/* Device bytes as the host sees them, behind the work before: p itself, or a copy. NULL after a failure and
 * while counting. Ends with xd_host_close. */
void *xd_host_open(xd_exec *x, void *p, size_t bytes);
/* Brings the first `written` bytes back to the device. `host` may be NULL. */
void  xd_host_close(xd_exec *x, void *host, void *p, size_t written);

#endif
