/* streams.h - what the ranks of one host print goes to the program that watches over them, not by
 * way of mpirun: that of Open MPI 5 mixes up standard output and standard error.
 *
 * mpirun's two streams are pipes of the program. A rank that is a child of mpirun opens them as
 * /proc/PID/fd/1 and 2; one that is not, or finds others, prints to mpirun as ever. */
#ifndef XD_CLI_STREAMS_H
#define XD_CLI_STREAMS_H

/* In the process that becomes mpirun, with its streams in place: names them in the environment. */
void xd_streams_offer(void);
/* In a rank, before it prints. */
void xd_streams_take(void);

#endif
