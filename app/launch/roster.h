/* roster.h - tracks the ranks that this program starts: which run, are connected, have ended.
 *
 * Every rank holds a socket connection to the process that started it. The kernel closes it when
 * the rank ends, for whatever reason, so a dead rank is noticed even if the launcher, its parent,
 * does nothing. The socket is in the abstract namespace, without a file. Ranks on other hosts
 * cannot reach it and are not tracked. */
#ifndef XD_LAUNCH_ROSTER_H
#define XD_LAUNCH_ROSTER_H

#include <stddef.h>
#include <sys/types.h>

struct pollfd;

/* Events that a rank reports. */
typedef enum xd_roster_event {
    XD_ROSTER_STARTED = 1,      /* the process runs                                            */
    XD_ROSTER_CONNECTED,        /* it has exchanged messages with all other ranks              */
    XD_ROSTER_ERROR,            /* it has printed an error to standard error                   */
    XD_ROSTER_DONE              /* it has finished successfully                                */
} xd_roster_event;

/* ---- functions for a rank -------------------------------------------------------------------- */

/* Connects to the process that started this rank, if that keeps a roster. */
void xd_roster_join(int rank);
int  xd_roster_joined(void);
/* Sends an event. No effect without a roster. Async-signal-safe. */
void xd_roster_report(xd_roster_event event);

/* ---- functions for the process that starts ranks --------------------------------------------- */

typedef struct xd_member {
    int    fd;                  /* -1: its connection was closed                                */
    int    rank, connected, done;       /* rank -1: not known yet                               */
    pid_t  pid;                 /* 0: not known                                                 */
    int    status;              /* exit status as of waitpid; -1: not known                     */
    double died_s;              /* when its connection was closed                               */
} xd_member;

typedef struct xd_roster {
    int        listener;        /* socket; -1: no roster is kept                                */
    int        ranks, n;        /* ranks to start; members so far                               */
    xd_member *m;               /* [ranks], the first n are valid                               */
    int        error_reported;  /* 1: a rank has printed an error                               */
    int        processes, max_processes;        /* below the launcher: last count, maximum      */
    double     start_s, changed_s;
} xd_roster;

/* Opens the socket and puts its address into the environment. On failure no roster is kept. */
void xd_roster_open(xd_roster *r, int ranks);
void xd_roster_close(xd_roster *r);
/* Fills p, of at least ranks + 1 elements, for poll; returns the number of elements. */
int  xd_roster_fds(const xd_roster *r, struct pollfd *p);
/* Reads connections and events after poll. p, n: as filled by xd_roster_fds. */
void xd_roster_read(xd_roster *r, const struct pollfd *p, int n);
/* Returns 1, and a sentence in `why`, if the run has failed although the launcher still runs: a
 * rank has died, or the ranks have not connected within `limit` seconds (0: no limit). Call it when
 * nothing is left to read. */
int  xd_roster_failed(xd_roster *r, pid_t launcher, double limit, char *why, size_t size);
/* Kills all ranks, and all processes below the launcher. */
void xd_roster_kill(const xd_roster *r, pid_t launcher);
/* Describes the first rank that died: "rank 1 was killed by signal 9". Returns 0 if no rank has
 * died, or its status is unknown. */
int  xd_roster_first_death(const xd_roster *r, char *why, size_t size);

#endif
