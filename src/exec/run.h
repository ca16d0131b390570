/* run.h - calls a kernel of the device, with scratch from the arena and errors on the context */
#ifndef XD_EXEC_RUN_H
#define XD_EXEC_RUN_H

#include "exec/exec.h"

/* Runs `op` with its arguments (xd_gemm, xd_conv, ... of backend.h); errors contain `name`. Does
 * nothing after a failure. XD_ECANCELLED if the request was cancelled. */
void xd_run(xd_exec *x, xd_op op, const char *name, const void *args);

#endif
