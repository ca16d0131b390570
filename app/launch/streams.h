/* streams.h - connects the output of ranks directly to the program that started them, bypassing
 * mpirun: mpirun of Open MPI 5 mixes up standard output and standard error.
 *
 * The two output streams of mpirun are pipes of the program. A rank whose parent is mpirun opens
 * them as /proc/PID/fd/1 and 2. Other ranks print to mpirun as usual. */
#ifndef XD_LAUNCH_STREAMS_H
#define XD_LAUNCH_STREAMS_H

/* In the process that becomes mpirun, with its streams in place: stores their names in the
 * environment. */
void xd_streams_export(void);
/* In a rank, before it prints: replaces standard output and standard error. */
void xd_streams_attach(void);
/* Returns 1 for a terminal with escape sequences (not TERM=dumb). */
int  xd_streams_terminal(int fd);

#endif
