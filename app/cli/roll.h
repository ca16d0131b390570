/* roll.h - the roll of the ranks that this program starts: who lives, who has met the others,
 * who has gone.
 *
 * Every rank holds a connection to the process that started it. The system ends it with the
 * rank, however that dies, so a rank that has gone is noticed also where the launcher, whose
 * child it is, does nothing. The socket has no name in any directory. Ranks on other hosts do
 * not find it, and are not asked for. */
#ifndef XD_CLI_ROLL_H
#define XD_CLI_ROLL_H

#include <stddef.h>
#include <sys/types.h>

struct pollfd;

/* What a rank says. */
typedef enum xd_roll_word {
    XD_ROLL_HELLO = 1,          /* it lives                                                    */
    XD_ROLL_MET,                /* messages pass between it and all others                     */
    XD_ROLL_SAID,               /* it has said an error on standard error                      */
    XD_ROLL_BYE                 /* its work is done, it ends well                              */
} xd_roll_word;

/* ---- a rank ---------------------------------------------------------------------------------- */

void xd_roll_join(int rank);    /* where a process that keeps a roll has started this one        */
int  xd_roll_joined(void);
void xd_roll_say(xd_roll_word what);    /* async-signal-safe; without a roll nothing              */

/* ---- who starts ranks ------------------------------------------------------------------------ */

typedef struct xd_member {
    int    fd;                  /* -1: its connection has ended                                 */
    int    rank, met, bye;
    pid_t  pid;                 /* 0: not known                                                 */
    int    status;              /* how it ended, as waitpid tells; -1: not known                */
    double gone_s;              /* when                                                         */
} xd_member;

typedef struct xd_roll {
    int        listener;        /* -1: no roll is kept                                          */
    int        ranks, n;        /* that are started; that were heard of                         */
    xd_member *m;               /* [ranks]                                                      */
    int        said;            /* a rank has said an error                                     */
    int        leaves, most;  /* processes under the launcher: when they were last counted, ever */
    double     began_s, changed_s;
} xd_roll;

/* Its address goes into the environment, for the ranks. Without one nothing is noticed. */
void xd_roll_open(xd_roll *r, int ranks);
void xd_roll_close(xd_roll *r);
int  xd_roll_fds(const xd_roll *r, struct pollfd *p);   /* at most ranks + 1; how many           */
void xd_roll_take(xd_roll *r, const struct pollfd *p, int n);   /* of those, after poll          */
/* Is it over, though the launcher still runs? A rank has gone, or they have not met `limit`
 * seconds (0: no limit) after their start. Why is in a sentence. Call it when nothing is left to
 * take. */
int  xd_roll_over(xd_roll *r, pid_t launcher, double limit, char *why, size_t size);
void xd_roll_kill(const xd_roll *r, pid_t launcher);    /* all ranks, and all below the launcher */
int  xd_roll_met(const xd_roll *r);                     /* have all ranks met?                   */
/* How a rank ended that has gone and not well: "rank 1 was killed by signal 9". 0: none has, or
 * it is not known. */
int  xd_roll_gone(const xd_roll *r, char *why, size_t size);

#endif
