/* simulate.h - predicts when every rank of a plan computes, sends and waits, by a discrete-event
 * simulation.
 *
 * One process runs the request for one rank after the other, on a device that computes nothing. For
 * each rank, the process records the predicted seconds of computation and the starts and ends of
 * messages. The simulation then combines the records of all ranks and computes the times of
 * messages from the rates of the machine's links. A simulation needs no real ranks. */
#ifndef XD_PREDICT_SIMULATE_H
#define XD_PREDICT_SIMULATE_H

#include "comm/comm.h"
#include "predict/machine.h"

typedef struct xd_simulation xd_simulation;

xd_status          xd_simulation_open(xd_simulation **p, int ranks, const xd_machine *m, xd_err *e);
void               xd_simulation_close(xd_simulation **p);
/* Starts the record of rank `rank` in the simulation. Returns the recorder for the rank's
 * communicator; the pointer is valid until the next call of xd_simulation_record. Each call of the
 * function `seconds` must return how many seconds the rank has computed since the previous call. */
const xd_recorder *xd_simulation_record(xd_simulation *p, int rank, double (*seconds)(void *ctx),
                                        void *ctx);
/* In the record of the current rank, gives the current point in time the number `mark`. */
void               xd_simulation_mark(xd_simulation *p, int mark);

typedef struct xd_lane { /* results of the simulation for one rank */
    /* Time at which the rank ends (end_s), and seconds in which it computes (busy_s) and waits for
     * messages (wait_s). */
    double end_s, busy_s, wait_s;
    /* bytes that the rank sends to ranks of the same host (inside), and to other hosts (between) */
    double inside, between;
} xd_lane;

/* Runs the simulation and writes the results of all ranks to lane[ranks]. Returns XD_EINVAL if the
 * ranks deadlock. */
xd_status xd_simulation_run(xd_simulation *p, xd_lane *lane, xd_err *e);
/* Returns the simulated time at which rank `rank` reached the point with the number `mark`, or a
 * negative value if the rank never reached it. Call xd_simulation_mark_s after
 * xd_simulation_run. */
double    xd_simulation_mark_s(const xd_simulation *p, int rank, int mark);
/* Calls fn for every time span of a rank, in the order of time. The argument `what` of fn is 'c'
 * for a span in which the rank computes, and 'w' for a span in which the rank waits. After the last
 * span, calls fn with `what` = 'm' for each message to the rank; `from` and `to` are then the times
 * of the message's start and arrival. The time spans of messages may overlap. */
void      xd_simulation_events(const xd_simulation *p, int rank,
                               void (*fn)(void *ctx, char what, double from, double to), void *ctx);

#endif
