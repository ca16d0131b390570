/* mpi_log.h - separates messages of the MPI launcher from the output of ranks, which arrive mixed
 * in the same streams.
 *
 * Open MPI writes its messages to standard error: between two lines of dashes, or in lines that
 * begin with "[host:pid]", "[host][[job,part],rank][" or the launcher's name. If two ranks write
 * the terminal sequence "erase the line" at the same time, an empty line remains. MPICH writes a
 * message to standard output after a line of equals signs; it also writes messages in lines that
 * begin with "[mpiexec@host]". All other bytes in the streams are output of ranks. Output of ranks
 * is forwarded without delay, so that a progress bar moves. */
#ifndef XD_LAUNCH_MPI_LOG_H
#define XD_LAUNCH_MPI_LOG_H

#include <stddef.h>

typedef struct xd_mpi_log {
    int    fd;     /* file descriptor to which output of ranks on standard error is written */
    int    inside; /* 1: the current line is between two lines of dashes */
    int    after_message; /* 1: the last line was a message of the launcher */
    int    passing;       /* 1: the current line is output of a rank */
    /* Number of bytes of the terminal sequence "erase the line" that have been read so far. Bytes
     * that follow the terminal sequence "erase the line" are treated as the beginning of a new
     * line. */
    int    escape;
    /* 1: a rank has printed an error of the program xdit, that is a line that begins with "xdit:"
     * and is not a warning. */
    int    error_seen;
    int    output_seen; /* 1: a rank has printed anything */
    size_t n;
    /* Bytes of the current line, which are kept until it is clear whether the line is a message
     * of the launcher. */
    char   line[1024];
    size_t nmessages;
    char   messages[4096]; /* text of the launcher's messages, cut off at this size */
    /* State for standard output. in_line is 1 if the current line is output of a rank; banner is
     * 1 if the current lines are a message of MPICH. */
    int    in_line, banner;
    size_t npending;
    /* Bytes of the current line of standard output, which are kept until it is clear whether the
     * line begins a message of MPICH. */
    char   pending[64];
} xd_mpi_log;

/* Processes bytes of standard error: writes output of ranks to z->fd, and stores messages of the
 * launcher in z->messages. */
void   xd_mpi_log_filter(xd_mpi_log *z, const char *p, size_t n);
/* Processes bytes of standard output: copies output of ranks to `out` and returns the number of
 * copied bytes. The array `out` must have space for n + sizeof z->pending bytes. A call of
 * xd_mpi_log_filter_stdout with n = 0 means that standard output has ended. */
size_t xd_mpi_log_filter_stdout(xd_mpi_log *z, const char *p, size_t n, char *out);
/* Processes the end of standard error: the last line is treated as a complete line, even if it does
 * not end with a line feed. */
void   xd_mpi_log_flush(xd_mpi_log *z);
/* Writes the cause of a failure to `text`, for example "rank 3 was killed by signal 9" (with MPICH
 * "the rank with process id 77 was ..."). If the cause is not known, writes the launcher's messages
 * in one line; if the launcher has printed no messages, writes an empty string. */
void   xd_mpi_log_cause(const xd_mpi_log *z, char *text, size_t size);

#endif
