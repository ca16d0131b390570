/* links.h - detects lost TCP connections of a rank to other hosts
 *
 * MPI, and an mpirun that was typed by hand, wait minutes for a host whose network is cut. The
 * kernel notices it after some seconds, from unacknowledged data and keepalive probes. The kernel
 * of a busy rank still acknowledges, so a slow rank is not mistaken for a lost one. */
#ifndef XD_LAUNCH_LINKS_H
#define XD_LAUNCH_LINKS_H

/* In a rank whose launcher was not started by this program: starts a thread that checks every
 * second. If a host is lost, it prints an error and ends the process, rank 0 first. */
void xd_links_watch(int rank);

#endif
