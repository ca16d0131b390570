/* trace.h - what a rank did when: recorded while a request runs, written as a Chrome trace.
 *
 * Every rank notes events of fixed size in memory: two looks at the clock each, and nothing at all
 * without a recorder (every call takes NULL). Kernels and messages are noted by a device and a
 * communicator that stand in front of the real ones; the engine notes what only it knows. At the end
 * every rank turns its events into text, and rank 0 writes the texts one after the other. The format
 * is the JSON object format of "Trace Event Format" (Google, 2016); Perfetto reads it too. */
#ifndef XD_OBSERVE_TRACE_H
#define XD_OBSERVE_TRACE_H

#include "backend/backend.h"
#include "parallel/topo.h"

/* Slices of the one thread that computes, which nest; flights overlap each other. */
typedef enum xd_event_kind {
    XD_EV_PHASE,                /* a: index of its name                                        */
    XD_EV_STEP,                 /* a: step                                                     */
    XD_EV_PIECE,                /* a: step, b: patch or XD_ALL, c: pass                        */
    XD_EV_BLOCK,                /* a: layer                                                    */
    XD_EV_SAMPLER,              /* a: step, b: patch or XD_ALL                                 */
    XD_EV_OP,                   /* a: xd_op                                                    */
    XD_EV_CALL,                 /* a message begins; a: what (below), b: peer, c: its number   */
    XD_EV_WAIT,                 /* for messages; a, b of the first one                         */
    XD_EV_FLIGHT,               /* from the begin of a message to the end of the wait for it   */
} xd_event_kind;

typedef enum xd_call {
    XD_CALL_ALLREDUCE, XD_CALL_BCAST, XD_CALL_GATHER, XD_CALL_EXCHANGE, XD_CALL_SEND,
    XD_CALL_RECV, XD_CALL_BARRIER, XD_NCALLS,
} xd_call;

enum {                          /* groups of ranks; the axes of xd_axis come first             */
    XD_GROUP_TOKENS = XD_NAXES, XD_GROUP_REPLICA, XD_GROUP_BANDS, XD_GROUP_ALL, XD_NGROUPS,
};

typedef struct xd_event {
    int64_t t0, t1;             /* ns of this rank's clock                                     */
    int64_t bytes;              /* sent to others; of a receive: taken                         */
    int32_t kind, a, b, c;      /* of messages a is call + 16 group, b a rank or -1            */
} xd_event;

typedef struct xd_flight {      /* a message under way                                         */
    xd_req   r;
    xd_event ev;
} xd_flight;

typedef struct xd_trace {
    char      *path;
    int        on;              /* events are noted                                            */
    xd_event  *ev;
    int64_t    n, cap, lost;    /* lost: for want of memory                                    */
    int        phase;           /* the one under way; -1: none                                 */
    int64_t    phase_t0;
    int        requests;        /* so far                                                      */
    xd_flight *fly;
    int        nfly, capfly;
} xd_trace;

/* Begins to record; the phase is "open". `path` is not looked at yet. */
xd_status xd_trace_open(xd_trace **t, const char *path, xd_err *e);
void      xd_trace_close(xd_trace **t);

int64_t xd_trace_now(const xd_trace *t);        /* ns; 0 when nothing is recorded              */
/* What began at t0 ends now. */
void    xd_trace_add(xd_trace *t, xd_event_kind kind, int64_t t0, int a, int b, int c);
/* Ends the phase under way and begins another: "open", "prepare", "text", "load", "denoise",
 * "decode", "collect", "finish"; NULL: none. */
void    xd_trace_phase(xd_trace *t, const char *name);
const char *xd_trace_phase_name(int phase);
/* The event with its end as it is given. */
void    xd_trace_put(xd_trace *t, xd_event ev);

/* Put a recorder in front of a device or a communicator, which it then owns. Groups split from a
 * communicator are recorded as well; those of one rank are not. */
xd_status xd_trace_device(xd_trace *t, xd_dev **d, xd_err *e);
xd_status xd_trace_comm(xd_trace *t, xd_comm **c, xd_err *e);
/* The communicator behind the recorder, or c: for what is no message of a request. */
xd_comm  *xd_trace_plain(xd_comm *c);
/* Tells the groups of a topology what they are, so that messages have names and peers. */
void      xd_trace_topo(const xd_trace *t, const xd_topo *topo);

/* Another request begins, in the phase "prepare": what the one before left is forgotten, what came
 * before the first is not. */
void    xd_trace_again(xd_trace *t);


#endif
