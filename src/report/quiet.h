/* quiet.h - makes the other ranks sleep while rank 0 is timed alone. */
#ifndef XD_REPORT_QUIET_H
#define XD_REPORT_QUIET_H

#include "comm/comm.h"

/* Call xd_quiet on all ranks of c: on ranks other than rank 0, it sleeps until rank 0 calls it
 * too. */
void xd_quiet(xd_comm *c);

#endif
