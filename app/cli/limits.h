/* limits.h - what the system allows this process, against what ranks need */
#ifndef XD_CLI_LIMITS_H
#define XD_CLI_LIMITS_H

#include "base/err.h"

/* Are open files, the length of a file and address space enough for the MPI launcher and so many
 * ranks? It may wait for ever where they are not. A limit that this process may raise by itself
 * is raised. */
xd_status xd_limits_check(int ranks, xd_err *e);

#endif
