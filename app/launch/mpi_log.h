/* mpi_log.h - separates messages of the MPI launcher from the output of ranks, which arrive mixed
 * in the same streams.
 *
 * Open MPI writes its messages to standard error: between two lines of dashes, or in lines that
 * begin with "[host:pid]", "[host][[job,part],rank][" or the launcher's name. Two ranks that write
 * such a message at once leave an empty line. MPICH writes to standard output after a line of
 * equals signs, and writes lines that begin with "[mpiexec@host]". All other bytes are output of
 * ranks. Output of ranks is forwarded without delay, so that a progress bar moves. */
#ifndef XD_LAUNCH_MPI_LOG_H
#define XD_LAUNCH_MPI_LOG_H

#include <stddef.h>

typedef struct xd_mpi_log {
    int    fd;                  /* file descriptor to which the ranks' standard error is written */
    int    inside;              /* 1: the current line is between two lines of dashes          */
    int    after_message;       /* 1: the last line was a message of the launcher              */
    int    passing;             /* 1: the current line is output of a rank                     */
    int    escape;              /* number of bytes of the terminal sequence "erase the line" seen so
                                   far; a new line begins after the sequence */
    int    error_seen;          /* 1: a rank has printed a line of the program xdit that is no
                                   warning */
    int    output_seen;         /* 1: a rank has printed anything                              */
    size_t n;
    char   line[1024];          /* the current line, while it may be a message of the launcher */
    size_t nmessages;
    char   messages[4096];      /* text of the launcher's messages, truncated to this size     */
    int    in_line, banner;     /* for standard output. in_line 1: a line of a rank has begun;
                                   banner 1: a message of MPICH has begun */
    size_t npending;
    char   pending[64];         /* for standard output: the current line, while it may begin MPICH's
                                   message */
} xd_mpi_log;

/* Filters bytes of standard error: writes output of ranks to z->fd, and keeps messages of the
 * launcher in z->messages. */
void xd_mpi_log_filter(xd_mpi_log *z, const char *p, size_t n);
/* Filters bytes of standard output: copies output of ranks to `out`, of n + sizeof z->pending
 * bytes, and returns the number of copied bytes. n = 0: the stream has ended. */
size_t xd_mpi_log_filter_stdout(xd_mpi_log *z, const char *p, size_t n, char *out);
/* Handles the end of standard error: the last, incomplete line is kept or written like a complete
 * line. */
void xd_mpi_log_flush(xd_mpi_log *z);
/* Writes the cause of a failure to `text`, for example "rank 3 was killed by signal 9" (with MPICH
 * "the rank with process id 77 was ..."). If the cause is not known, writes the launcher's messages
 * in one line; if there are no messages, an empty string. */
void xd_mpi_log_cause(const xd_mpi_log *z, char *text, size_t size);

#endif
