/* run.h - calls a kernel of the device. The kernel's scratch memory is from the arena, and the
 * execution context records errors. */
#ifndef XD_EXEC_RUN_H
#define XD_EXEC_RUN_H

#include "exec/exec.h"

/* Runs `op` with its arguments (xd_gemm, xd_conv, ... of backend.h). Error messages contain the
 * operation's name, `name`. Does nothing if the context has already failed. If the request was
 * cancelled, the context fails with XD_ECANCELLED. */
void xd_run(xd_exec *x, xd_op op, const char *name, const void *args);

#endif
