/* limits.h - checks whether the resource limits of this process (ulimit) suffice for several
 * ranks */
#ifndef XD_LAUNCH_LIMITS_H
#define XD_LAUNCH_LIMITS_H

#include "base/err.h"

/* Checks that the limits on open files, file size and address space suffice for the MPI launcher
 * and `ranks` ranks. With lower resource limits the launcher or ranks may hang. Raises the soft
 * limit of open files if necessary. Error messages name the limit and tell how to raise it. */
xd_status xd_limits_check(int ranks, xd_err *e);

#endif
