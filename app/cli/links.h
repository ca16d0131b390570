/* links.h - connections of a rank to other hosts that no longer pass anything
 *
 * MPI waits minutes for a host whose network is cut, and an mpirun that a person typed waits as
 * long. The system knows after some seconds: it repeats what is not confirmed. A rank that only
 * computes confirms all the same, so a slow one is not taken for a lost one. */
#ifndef XD_CLI_LINKS_H
#define XD_CLI_LINKS_H

/* Looks at the TCP connections of this process, and makes the system ask idle ones. Returns 1, and
 * the address of a host that has not confirmed anything for some 10 s, or 0. */
int  xd_links_lost(char *host, int size);
/* In a rank of a launcher that this program has not started: a thread looks every second. When a
 * host is lost it says so and ends the process, rank 0 first. */
void xd_links_watch(int rank);

#endif
