/* trace.h - timeline of each rank during a request, written as a Chrome trace
 *
 * Every rank records events of fixed size in memory. An event costs two clock reads; without a
 * recorder it costs nothing (every function accepts NULL). A proxy device records kernels, a proxy
 * communicator records messages, and the engine records steps, blocks and phases. At the end every
 * rank formats its events as text, and rank 0 writes the texts of all ranks in order. The format is
 * the JSON object format of "Trace Event Format" (Google, 2016), which Perfetto also reads. */
#ifndef XD_OBSERVE_TRACE_H
#define XD_OBSERVE_TRACE_H

#include "backend/backend.h"
#include "observe/stamps.h"
#include "parallel/topo.h"

/* Events of the computing thread nest, and events of the device follow each other; XD_EV_FLIGHT
 * events may overlap. a, b, c: fields of xd_event. */
typedef enum xd_event_kind {
    XD_EV_PHASE,                /* a: index of the phase's name                                */
    XD_EV_STEP,                 /* a: step                                                     */
    XD_EV_PIECE,                /* a: step, b: patch or XD_ALL, c: pass                        */
    XD_EV_BLOCK,                /* a: layer                                                    */
    XD_EV_SAMPLER,              /* a: step, b: patch or XD_ALL                                 */
    XD_EV_OP,                   /* a: xd_op                                                    */
    XD_EV_CALL,         /* a message begins; a: call and group (xd_event), b: peer, c: its number */
    XD_EV_WAIT,                 /* wait for messages; a, b: those of the first message         */
    XD_EV_FLIGHT,               /* from the begin of a message to the end of its wait          */
    XD_EV_DEVICE,               /* an op on an asynchronous device; a: xd_op                   */
} xd_event_kind;

typedef enum xd_call {
    XD_CALL_ALLREDUCE, XD_CALL_BCAST, XD_CALL_GATHER, XD_CALL_EXCHANGE, XD_CALL_SEND,
    XD_CALL_RECV, XD_CALL_BARRIER, XD_NCALLS,
} xd_call;

enum {                          /* groups of ranks, after the axes of xd_axis                  */
    XD_GROUP_TOKENS = XD_NAXES, XD_GROUP_REPLICA, XD_GROUP_BANDS, XD_GROUP_ALL, XD_NGROUPS,
};

typedef struct xd_event {
    int64_t t0, t1;             /* ns on this rank's clock                                     */
    int64_t bytes;              /* sent to other ranks; of a receive: received                 */
    int32_t kind, a, b, c;      /* of messages: a = call + 16 * group, b = rank or -1          */
} xd_event;

typedef struct xd_flight {      /* a pending message                                           */
    xd_req   r;
    xd_event ev;
} xd_flight;

typedef struct xd_trace {
    char      *path;
    int        on;              /* 1: events are recorded                                      */
    xd_event  *ev;
    int64_t    n, cap, lost;    /* lost: events dropped for lack of memory                     */
    int        phase;           /* the current phase; -1: none                                 */
    int64_t    phase_t0;
    int        requests;        /* number of requests so far                                   */
    xd_flight *fly;
    int        nfly, capfly;
    xd_stamps  device;          /* ops whose device times have not been read yet               */
} xd_trace;

/* Starts recording in phase "open". `path` is checked only when the file is written. */
xd_status xd_trace_open(xd_trace **t, const char *path, xd_err *e);
void      xd_trace_close(xd_trace **t);

int64_t xd_trace_now(const xd_trace *t);        /* ns; 0 without a recorder                    */
/* Records an event from t0 to now. */
void    xd_trace_add(xd_trace *t, xd_event_kind kind, int64_t t0, int a, int b, int c);
/* Ends the current phase and begins another: "open", "prepare", "text", "load", "denoise",
 * "decode", "collect", "finish"; NULL: none. */
void    xd_trace_phase(xd_trace *t, const char *name);
const char *xd_trace_phase_name(int phase);
/* Records a complete event. */
void    xd_trace_put(xd_trace *t, xd_event ev);

/* Wrap a device or a communicator in a recorder, which then owns it. Groups split from the
 * communicator are recorded too, except groups of one rank. */
xd_status xd_trace_device(xd_trace *t, xd_dev **d, xd_err *e);
/* Waits for the device and records the device times of the ops since the last call. Called at the
 * end of a step and of a phase. */
void      xd_trace_collect(xd_trace *t);
xd_status xd_trace_comm(xd_trace *t, xd_comm **c, xd_err *e);
/* Returns the communicator that a recorder wraps, or c itself: for messages that are not part of a
 * request. */
xd_comm  *xd_trace_plain(xd_comm *c);
/* Sets the names of a topology's groups, which messages in the trace show with their peers. */
void      xd_trace_topo(const xd_trace *t, const xd_topo *topo);

/* Begins another request in phase "prepare". Discards the events of the previous request, but
 * keeps those before the first request. */
void    xd_trace_again(xd_trace *t);

#endif
