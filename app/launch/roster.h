/* roster.h - records, for the ranks that this program starts, which of them are running, have
 * connected to each other, or have ended.
 *
 * Every rank opens a socket connection to the process that started it. The kernel closes the
 * connection when the rank ends, for whatever reason. A dead rank is therefore noticed even if the
 * launcher, the rank's parent, does nothing. The socket has a name in Linux's abstract namespace
 * and is not a file. Ranks on other hosts cannot reach the socket and are not tracked. */
#ifndef XD_LAUNCH_ROSTER_H
#define XD_LAUNCH_ROSTER_H

#include <stddef.h>
#include <sys/types.h>

struct pollfd;

/* Events that a rank reports. */
typedef enum xd_roster_event {
    XD_ROSTER_STARTED = 1, /* the process of the rank has started */
    XD_ROSTER_CONNECTED,   /* the rank has exchanged messages with all other ranks */
    XD_ROSTER_ERROR,       /* the rank has printed an error to standard error */
    XD_ROSTER_DONE,        /* the rank has finished successfully */
    XD_ROSTER_STAGE,       /* the rank has begun a stage of a request, such as decoding */
    XD_ROSTER_STEP         /* the rank has finished a denoising step */
} xd_roster_event;

/* ---- functions that a rank calls ------------------------------------------------------------- */

/* Connects a rank to the roster, the list of ranks that the process which started the ranks keeps.
 * Does nothing if that process keeps no roster. */
void xd_roster_join(int rank);
int  xd_roster_joined(void);
/* Sends an event of this rank to the roster. xd_roster_report has no effect if this rank has no
 * connection to a roster. It is async-signal-safe. */
void xd_roster_report(xd_roster_event event);

/* ---- functions that the process that starts ranks calls -------------------------------------- */

typedef struct xd_member {
    int    fd; /* socket of the rank's connection to the roster; -1: the connection was closed */
    /* `rank` is -1 if the rank is not known yet. `connected` and `done` are flags: 1 after the
     * rank has sent the event XD_ROSTER_CONNECTED or XD_ROSTER_DONE. */
    int    rank, connected, done;
    pid_t  pid;    /* process id of the rank; 0: not known */
    int    status; /* exit status in the format of waitpid; -1: unknown */
    double died_s; /* time when the rank's connection was closed */
    /* step_s: end time of the last denoising step of the present stage; 0: no step has ended.
     * slowest_s: seconds of the slowest denoising step, without the first step of each stage; 0:
     * unknown. */
    double step_s, slowest_s;
    /* written by stalls.c: stopped_s: time since which the process is stopped (0: it is not
     * stopped); ticks: processor time of the process at the end of a step */
    double stopped_s, ticks;
} xd_member;

typedef struct xd_roster {
    int        listener; /* listening socket for connections of ranks; -1: no roster is kept */
    /* Number of ranks to start; number of entries in `m`, one per rank that has connected to the
     * socket. */
    int        ranks, n;
    xd_member *m;              /* [ranks] entries of the ranks, of which the first n are used */
    int        error_reported; /* 1: a rank has printed an error */
    /* Number of processes that are descendants of the launcher: the last count, and the maximum
     * of all counts. */
    int        processes, max_processes;
    double     start_s, changed_s;
} xd_roster;

/* Opens the roster's listening socket, and sets an environment variable to the socket's address, so
 * that ranks find it. If the listening socket cannot be opened, no roster is kept. */
void xd_roster_open(xd_roster *r, int ranks);
void xd_roster_close(xd_roster *r);
/* Writes the roster's file descriptors to p, for a call of poll. p must have at least ranks + 1
 * elements; the number of written elements is returned. */
int  xd_roster_fds(const xd_roster *r, struct pollfd *p);
/* After poll has returned, accepts connections and reads the events of ranks. p and n are the array
 * and the number of elements of xd_roster_fds. */
void xd_roster_read(xd_roster *r, const struct pollfd *p, int n);
/* Returns 1 if the launcher still runs, but the run has failed: either a rank has died, or the
 * ranks have not connected within `limit` seconds (0: no limit). If the run has failed, `why` has a
 * sentence about the cause. Call xd_roster_failed only after all events that have arrived were
 * read. */
int  xd_roster_failed(xd_roster *r, pid_t launcher, double limit, char *why, size_t size);
/* Kills all ranks and all other descendants of the launcher. */
void xd_roster_kill(const xd_roster *r, pid_t launcher);
/* Writes a sentence about the first rank that died, such as "rank 1 was killed by signal 9".
 * Returns 0 if no rank has died, or if the status of the dead rank is unknown. */
int  xd_roster_first_death(const xd_roster *r, char *why, size_t size);

#endif
