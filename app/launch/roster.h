/* roster.h - tracks which of the ranks that this program starts are running, are connected, or have
 * ended.
 *
 * Every rank holds a socket connection to the process that started it. The kernel closes the
 * connection when the rank ends, for whatever reason. Therefore a dead rank is noticed even if the
 * launcher, the rank's parent, does nothing. The socket's name is in the abstract namespace,
 * without a file. Ranks on other hosts cannot reach the socket and are not tracked. */
#ifndef XD_LAUNCH_ROSTER_H
#define XD_LAUNCH_ROSTER_H

#include <stddef.h>
#include <sys/types.h>

struct pollfd;

/* Events that a rank reports. */
typedef enum xd_roster_event {
    XD_ROSTER_STARTED = 1,      /* the process of the rank runs                                */
    XD_ROSTER_CONNECTED,        /* the rank has exchanged messages with all other ranks        */
    XD_ROSTER_ERROR,            /* the rank has printed an error to standard error             */
    XD_ROSTER_DONE              /* the rank has finished successfully                          */
} xd_roster_event;

/* ---- functions for a rank -------------------------------------------------------------------- */

/* Connects to the process that started this rank, if that process keeps a roster. */
void xd_roster_join(int rank);
int  xd_roster_joined(void);
/* Sends an event of this rank to the roster. No effect without a roster. Async-signal-safe. */
void xd_roster_report(xd_roster_event event);

/* ---- functions for the process that starts ranks --------------------------------------------- */

typedef struct xd_member {
    int    fd;                  /* socket of the rank's connection; -1: it was closed           */
    int    rank, connected, done;       /* rank (-1: not known yet), and two flags: the rank has
                                           sent XD_ROSTER_CONNECTED, XD_ROSTER_DONE */
    pid_t  pid;                 /* process id of the rank; 0: not known                         */
    int    status;              /* exit status as of waitpid; -1: not known                     */
    double died_s;              /* time when the rank's connection was closed                   */
} xd_member;

typedef struct xd_roster {
    int        listener;        /* listening socket; -1: no roster is kept                      */
    int        ranks, n;        /* number of ranks to start; number of members so far           */
    xd_member *m;               /* [ranks] members, of which the first n are valid              */
    int        error_reported;  /* 1: a rank has printed an error                               */
    int        processes, max_processes;        /* number of processes below the launcher: last
                                                   count, maximum */
    double     start_s, changed_s;
} xd_roster;

/* Opens the roster's socket and puts the socket's address into the environment. If the socket
 * cannot be opened, no roster is kept. */
void xd_roster_open(xd_roster *r, int ranks);
void xd_roster_close(xd_roster *r);
/* Fills p, an array of at least ranks + 1 elements, for poll; returns the number of filled
 * elements. */
int  xd_roster_fds(const xd_roster *r, struct pollfd *p);
/* Accepts connections and reads events of ranks after poll. p and n: as xd_roster_fds has set
 * them. */
void xd_roster_read(xd_roster *r, const struct pollfd *p, int n);
/* Returns 1 if the run has failed although the launcher still runs: a rank has died, or the ranks
 * have not connected within `limit` seconds (0: no limit). If the run has failed, `why` has a
 * sentence about the cause. Call this function when no events are left to read. */
int  xd_roster_failed(xd_roster *r, pid_t launcher, double limit, char *why, size_t size);
/* Kills all ranks, and all processes below the launcher. */
void xd_roster_kill(const xd_roster *r, pid_t launcher);
/* Describes the first rank that died: "rank 1 was killed by signal 9". Returns 0 if no rank has
 * died, or if the status of the dead rank is unknown. */
int  xd_roster_first_death(const xd_roster *r, char *why, size_t size);

#endif
