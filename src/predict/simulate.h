/* simulate.h - simulates when every rank of a plan computes, sends and waits (discrete-event
 * simulation).
 *
 * For each rank, one process runs the plan on a count device, which computes nothing, and records
 * the seconds of computation and the starts and ends of messages. The simulation then combines the
 * records of all ranks, with message times from the machine's links. No real ranks are needed. */
#ifndef XD_PREDICT_SIMULATE_H
#define XD_PREDICT_SIMULATE_H

#include "comm/comm.h"
#include "predict/machine.h"

typedef struct xd_simulation xd_simulation;

xd_status xd_simulation_open(xd_simulation **p, int ranks, const xd_machine *m, xd_err *e);
void      xd_simulation_close(xd_simulation **p);
/* Starts the record of rank `rank` and returns the recorder for the rank's communicator, valid
 * until the next call. The function `seconds` returns the rank's computing seconds since its
 * previous call. */
const xd_recorder *xd_simulation_record(xd_simulation *p, int rank, double (*seconds)(void *ctx),
                                        void *ctx);
/* Adds a mark, a point in time with the number `mark`, to the record of the current rank. */
void      xd_simulation_mark(xd_simulation *p, int mark);

typedef struct xd_lane {        /* results of the simulation for one rank                      */
    /* End time; seconds of computing; seconds of waiting for messages. */
    double  end_s, busy_s, wait_s;
    double  inside, between;    /* bytes sent to ranks of the same host; to other hosts        */
} xd_lane;

/* Runs the simulation and writes the results of all ranks to lane[ranks]. Returns XD_EINVAL if the
 * ranks deadlock. */
xd_status xd_simulation_run(xd_simulation *p, xd_lane *lane, xd_err *e);
/* Returns the simulated time at which rank `rank` reached a mark, or a negative value if it never
 * did. Call after xd_simulation_run. */
double    xd_simulation_mark_s(const xd_simulation *p, int rank, int mark);
/* Calls fn for every time span of a rank, in order, with what = 'c' for computing and 'w' for
 * waiting. After these, calls fn with what = 'm' for each message to the rank, from the message's
 * start to its arrival; these spans may overlap. */
void      xd_simulation_events(const xd_simulation *p, int rank,
                               void (*fn)(void *ctx, char what, double from, double to), void *ctx);

#endif
