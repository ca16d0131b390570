/* links.h - detects lost TCP connections of a rank to other hosts.
 *
 * If the network of a host is cut, MPI and an mpirun that the user started wait minutes for the
 * host. The kernel of another host notices the loss after some seconds, because the lost host
 * acknowledges neither data nor keepalive probes. The kernel of a busy rank still acknowledges
 * data, so a slow rank is not mistaken for a lost rank. */
#ifndef XD_LAUNCH_LINKS_H
#define XD_LAUNCH_LINKS_H

/* Starts a thread that checks the rank's connections every second. xd_links_watch is called only if
 * the user, and not the program xdit, started the launcher of the rank. If the connection to a host
 * is lost, the thread prints an error and ends the process; ranks other than 0 wait some seconds
 * before they end, so that rank 0 reports the error. */
void xd_links_watch(int rank);

#endif
