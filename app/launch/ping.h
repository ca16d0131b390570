/* ping.h - finds out which hosts the MPI launcher still reaches */
#ifndef XD_LAUNCH_PING_H
#define XD_LAUNCH_PING_H

#include "launch/hosts.h"

/* Starts the program `true` on all hosts that are not lost, at the same time. If the program does
 * not end on a host within some seconds, the host is marked as lost. Returns the number of hosts
 * that were marked. */
int xd_ping_hosts(xd_hosts *h);

#endif
