/* quiet.h - ranks that sleep while another one is timed */
#ifndef XD_REPORT_QUIET_H
#define XD_REPORT_QUIET_H

#include "comm/comm.h"

/* Until rank 0 of the group comes here too, the others sleep. */
void      xd_quiet(xd_comm *c);

#endif
