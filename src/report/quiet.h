/* quiet.h - lets ranks sleep while another one is timed */
#ifndef XD_REPORT_QUIET_H
#define XD_REPORT_QUIET_H

#include "comm/comm.h"

/* The other ranks sleep until rank 0 of the group calls this function, too. */
void      xd_quiet(xd_comm *c);

#endif
