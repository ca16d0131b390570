/* simulate.h - discrete-event simulation of when every rank of a plan computes, sends and waits
 *
 * Each rank's run on the count device leaves a record: seconds of computation, and starts and
 * ends of messages. The simulation plays the records against each other on a machine's links. No
 * ranks are needed. */
#ifndef XD_PREDICT_SIMULATE_H
#define XD_PREDICT_SIMULATE_H

#include "comm/comm.h"
#include "predict/machine.h"

typedef struct xd_simulation xd_simulation;

xd_status xd_simulation_open(xd_simulation **p, int ranks, const xd_machine *m, xd_err *e);
void      xd_simulation_close(xd_simulation **p);
/* Starts the record of rank `rank` and returns a recorder for its communicator. `seconds` returns
 * the rank's computing seconds since the previous call. Valid until the next call. */
const xd_recorder *xd_simulation_record(xd_simulation *p, int rank, double (*seconds)(void *ctx),
                                        void *ctx);
/* Adds a mark to the current rank's record. */
void      xd_simulation_mark(xd_simulation *p, int mark);

typedef struct xd_lane {        /* results of one rank                                         */
    double  end_s, busy_s, wait_s;      /* end time; computing; waiting for messages           */
    double  inside, between;    /* bytes sent within its host; to other hosts                  */
} xd_lane;

/* Runs the simulation. lane: [ranks]. XD_EINVAL: a deadlock between ranks. */
xd_status xd_simulation_run(xd_simulation *p, xd_lane *lane, xd_err *e);
/* Returns the time at which rank `rank` reached a mark, after xd_simulation_run; negative:
 * never. */
double    xd_simulation_mark_s(const xd_simulation *p, int rank, int mark);
/* Calls fn for every time span of a rank, in order. what: 'c' computing, 'w' waiting. Then with 'm'
 * for each message to the rank, from its start to its arrival; these spans may overlap. */
void      xd_simulation_events(const xd_simulation *p, int rank,
                               void (*fn)(void *ctx, char what, double from, double to), void *ctx);

#endif
