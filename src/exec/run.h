/* run.h - calls a kernel of the device. The kernel's scratch memory is from the arena, and the
 * execution context records errors. */
#ifndef XD_EXEC_RUN_H
#define XD_EXEC_RUN_H

#include "exec/exec.h"

/* Runs `op` with its arguments (xd_gemm, xd_conv, ... of backend.h). Error messages name the
 * operation `name`. Does nothing if the context has failed before. The context fails with
 * XD_ECANCELLED if the request was cancelled. */
void xd_run(xd_exec *x, xd_op op, const char *name, const void *args);

#endif
