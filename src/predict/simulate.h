/* simulate.h - when every rank of a plan computes, sends and waits, without such ranks
 *
 * Each rank's run on the count device leaves a script: seconds of computing, and messages that begin
 * and end. The scripts are then played against each other on a machine's links. */
#ifndef XD_PREDICT_SIMULATE_H
#define XD_PREDICT_SIMULATE_H

#include "comm/comm.h"
#include "predict/machine.h"

typedef struct xd_simulation xd_simulation;

xd_status xd_simulation_open(xd_simulation **p, int ranks, const xd_machine *m, xd_err *e);
void      xd_simulation_close(xd_simulation **p);
/* What a communicator of rank `rank` tells becomes its script; `seconds` is asked how long this rank
 * has computed since it was last asked. Valid until the next call. */
const xd_recorder *xd_simulation_record(xd_simulation *p, int rank, double (*seconds)(void *ctx), void *ctx);
/* A moment of the script of the rank that is recorded. */
void      xd_simulation_mark(xd_simulation *p, int mark);

typedef struct xd_lane {        /* of one rank                                                 */
    double  end_s, busy_s, wait_s;      /* when it ended; computing; waiting for messages         */
    double  inside, between;    /* bytes sent within its host and to others                    */
} xd_lane;

/* Plays the scripts. lane: [ranks]. XD_EINVAL when ranks wait for each other for ever. */
xd_status xd_simulation_run(xd_simulation *p, xd_lane *lane, xd_err *e);
/* When rank `rank` came to a mark, after xd_simulation_run; negative: never. */
double    xd_simulation_mark_s(const xd_simulation *p, int rank, int mark);
/* What a rank did: calls fn for every stretch of time, in order. what: 'c' computes, 'w' waits. */
void      xd_simulation_events(const xd_simulation *p, int rank,
                       void (*fn)(void *ctx, char what, double from, double to), void *ctx);

#endif
