/* links.h - detects lost TCP connections of a rank to other hosts.
 *
 * MPI, and an mpirun that the user started, wait minutes for a host whose network is cut. The
 * kernel notices the lost host after some seconds, from unacknowledged data and keepalive probes.
 * The kernel of a busy rank still acknowledges data, so a slow rank is not mistaken for a lost
 * rank. */
#ifndef XD_LAUNCH_LINKS_H
#define XD_LAUNCH_LINKS_H

/* Starts a thread that checks the rank's connections every second. xd_links_watch is called only in
 * ranks whose launcher was not started by the program xdit. If a host is lost, the thread prints an
 * error and ends the process; rank 0 ends first. */
void xd_links_watch(int rank);

#endif
