/* mpi_log.h - separates messages of the MPI launcher from the output of ranks; they arrive mixed.
 *
 * Open MPI writes to standard error: between two lines of dashes, or in lines that begin with
 * "[host:pid]", "[host][[job,part],rank][" or its name. Two ranks that write at once leave an empty
 * line. MPICH writes to standard output after a line of equals signs, and lines that begin with
 * "[mpiexec@host]". All other bytes are output of ranks and pass without delay, so that a progress
 * bar moves. */
#ifndef XD_LAUNCH_MPI_LOG_H
#define XD_LAUNCH_MPI_LOG_H

#include <stddef.h>

typedef struct xd_mpi_log {
    int    fd;                  /* receives the ranks' standard error                          */
    int    inside;              /* 1: between two lines of dashes                              */
    int    after_message;       /* 1: the last line was a message of the launcher              */
    int    passing;             /* 1: the current line is output of a rank                     */
    int    escape;              /* bytes of "erase the line" seen; after it a new line begins  */
    int    error_seen;          /* 1: a rank has printed a line of xdit that is no warning     */
    int    output_seen;         /* 1: a rank has printed anything                              */
    size_t n;
    char   line[1024];          /* the current line, while it may be a message                 */
    size_t nmessages;
    char   messages[4096];      /* messages of the launcher; longer ones are cut               */
    int    in_line, banner;     /* standard output: inside a line of a rank; MPICH's began     */
    size_t npending;
    char   pending[64];         /* standard output: the current line, while it may be MPICH's  */
} xd_mpi_log;

/* Filters bytes of standard error: writes output of ranks to z->fd, keeps the messages. */
void xd_mpi_log_filter(xd_mpi_log *z, const char *p, size_t n);
/* Filters bytes of standard output: copies output of ranks to `out`, of n + sizeof z->pending
 * bytes, and returns its length. n = 0: end of the stream. */
size_t xd_mpi_log_filter_stdout(xd_mpi_log *z, const char *p, size_t n, char *out);
/* Ends the stream of standard error: judges the last, incomplete line. */
void xd_mpi_log_flush(xd_mpi_log *z);
/* Returns in `text` the cause of a failure: "rank 3 was killed by signal 9" (MPICH: "the rank with
 * process id 77 was ..."), or the messages of the launcher in one line; empty: there are none. */
void xd_mpi_log_cause(const xd_mpi_log *z, char *text, size_t size);

#endif
