/* quiet.h - makes the other ranks sleep while rank 0 is timed alone. */
#ifndef XD_REPORT_QUIET_H
#define XD_REPORT_QUIET_H

#include "comm/comm.h"

/* On ranks other than 0 of the group, xd_quiet sleeps until rank 0 also calls it. */
void xd_quiet(xd_comm *c);

#endif
