/* streams.h - connects the output of ranks directly to the program that started them. The output
 * bypasses mpirun, because mpirun of Open MPI 5 mixes up standard output and standard error.
 *
 * The standard output and standard error of mpirun are pipes to the program that started the ranks.
 * A rank whose parent is mpirun opens the output pipes of mpirun as /proc/PID/fd/1 and 2. Ranks
 * whose parent is not mpirun print to mpirun as usual. */
#ifndef XD_LAUNCH_STREAMS_H
#define XD_LAUNCH_STREAMS_H

/* Stores the names of the output pipes in environment variables, for the ranks. The process that
 * becomes mpirun calls xd_streams_export after its standard output and standard error were replaced
 * by the pipes. */
void xd_streams_export(void);
/* Replaces standard output and standard error of a rank by the output pipes of mpirun.
 * xd_streams_attach must be called before the rank prints anything. */
void xd_streams_attach(void);
/* Returns 1 if `fd` is a terminal that supports escape sequences (TERM is not "dumb"). */
int  xd_streams_terminal(int fd);

#endif
