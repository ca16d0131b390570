/* ping.h - finds out which hosts the MPI launcher still reaches */
#ifndef XD_LAUNCH_PING_H
#define XD_LAUNCH_PING_H

#include "launch/hosts.h"

/* Starts the program `true` on each host that is not lost, on all at once, and marks the hosts on
 * which it does not end within some seconds as lost. Returns the number of these hosts. */
int xd_ping_hosts(xd_hosts *h);

#endif
