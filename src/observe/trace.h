/* trace.h - records what each rank does during a request, and writes the recorded events as a
 * Chrome trace.
 *
 * Every rank records events of fixed size in memory. Recording an event takes little time: the
 * clock is read at its begin and at its end. If no trace is recorded, the pointer to the recorder
 * is NULL, which every function accepts, and events cost nothing. A proxy device records kernels, a
 * proxy communicator records messages, and the engine records steps, blocks and phases. At the end
 * of a request, every rank formats its events as text, and rank 0 writes the texts of all ranks in
 * order. The trace file has the JSON object format of "Trace Event Format" (Google, 2016), which
 * Perfetto also reads. */
#ifndef XD_OBSERVE_TRACE_H
#define XD_OBSERVE_TRACE_H

#include "backend/backend.h"
#include "observe/stamps.h"
#include "parallel/topo.h"

/* Kinds of events; the comment of each kind gives the meaning of the fields a, b and c of xd_event.
 * Events of the computing thread are nested, events of the device follow each other, and
 * XD_EV_FLIGHT events may overlap. */
typedef enum xd_event_kind {
    XD_EV_PHASE, /* a phase of the request; field a: index of the phase's name */
    XD_EV_STEP,  /* a denoising step; field a: index of the step */
    /* A forward pass of the transformer; field a: step, b: patch or XD_ALL, c: index of the
     * guidance pass. */
    XD_EV_PIECE,
    XD_EV_BLOCK,   /* a block of a network; field a: index of the block */
    XD_EV_SAMPLER, /* the sampler's update of the latents; field a: step, b: patch or XD_ALL */
    XD_EV_OP,      /* a call of a kernel; field a: the kernel's xd_op */
    /* A call of the communicator, which begins a message. Field a: kind of call and group of ranks
     * (xd_event), b: peer rank or -1, c: index of the message. */
    XD_EV_CALL,
    /* The time in which the rank waits for messages. The fields a and b describe the first message
     * for which the rank waits, as in XD_EV_CALL. */
    XD_EV_WAIT,
    XD_EV_FLIGHT, /* a message in flight, from its call to the end of the wait */
    XD_EV_DEVICE, /* an operation that ran on an asynchronous device; field a: the xd_op */
} xd_event_kind;

typedef enum xd_call {
    XD_CALL_ALLREDUCE,
    XD_CALL_BCAST,
    XD_CALL_GATHER,
    XD_CALL_EXCHANGE,
    XD_CALL_SEND,
    XD_CALL_RECV,
    XD_CALL_BARRIER,
    XD_NCALLS,
} xd_call;

/* Kinds of groups of ranks that a trace distinguishes. Values below XD_NAXES are the axes of the
 * plan (xd_axis), which are groups of ranks as well. */
enum {
    XD_GROUP_TOKENS = XD_NAXES,
    XD_GROUP_REPLICA,
    XD_GROUP_BANDS,
    XD_GROUP_ALL,
    XD_NGROUPS,
};

typedef struct xd_event {
    int64_t t0, t1; /* begin and end in ns on this rank's clock */
    int64_t bytes;  /* bytes sent to other ranks or, if the call is a receive, bytes received */
    /* The meaning of a, b and c depends on the kind of event (xd_event_kind); for messages, a =
     * xd_call + 16 * group, and b is the peer rank or -1. */
    int32_t kind, a, b, c;
} xd_event;

typedef struct xd_flight { /* a message for which the rank has not waited yet */
    xd_req   r;
    xd_event ev;
} xd_flight;

typedef struct xd_trace {
    char      *path;
    int        on; /* 1: events are recorded; 0: events are ignored */
    xd_event  *ev;
    int64_t    n, cap, lost; /* `lost`: number of events that were dropped for lack of memory */
    int        phase;        /* index of the current phase of the request; -1: no phase */
    int64_t    phase_t0;
    int        requests; /* number of requests that were recorded so far */
    xd_flight *fly;
    int        nfly, capfly;
    xd_stamps  device; /* timestamps of ops whose device times have not been read yet */
} xd_trace;

/* Starts a recorder in phase "open". path: file for the trace; the path is checked only when the
 * file is written. */
xd_status xd_trace_open(xd_trace **t, const char *path, xd_err *e);
void      xd_trace_close(xd_trace **t);

int64_t     xd_trace_now(const xd_trace *t); /* returns the time in ns, or 0 if t is NULL */
/* Records an event from time t0 to now. */
void        xd_trace_add(xd_trace *t, xd_event_kind kind, int64_t t0, int a, int b, int c);
/* Ends the current phase of the request and begins the phase `name`: "open", "prepare", "text",
 * "load", "denoise", "decode", "collect" or "finish"; if `name` is NULL, no phase begins. */
void        xd_trace_phase(xd_trace *t, const char *name);
const char *xd_trace_phase_name(int phase);
/* Records an event that the caller has filled in completely. */
void        xd_trace_put(xd_trace *t, xd_event ev);

/* xd_trace_device replaces a device by a proxy that records the device's kernels. xd_trace_comm
 * replaces a communicator by a proxy that records messages. Communicators that are split from a
 * recording communicator also record their messages, unless they have only one rank. A recording
 * proxy owns the device or communicator that it replaces. */
xd_status xd_trace_device(xd_trace *t, xd_dev **d, xd_err *e);
/* Waits for the device and records the times of the operations that were queued since the last call
 * of xd_trace_collect. The engine calls xd_trace_collect at the end of each step and each phase. */
void      xd_trace_collect(xd_trace *t);
xd_status xd_trace_comm(xd_trace *t, xd_comm **c, xd_err *e);
/* Returns the communicator that a recording proxy wraps, or c itself. The returned communicator
 * records nothing, and is used for messages that are not part of a request. */
xd_comm  *xd_trace_plain(xd_comm *c);
/* Sets the names of the topology's groups of ranks for the trace, which shows each message with the
 * name of its group and with the peer rank. */
void      xd_trace_topo(const xd_trace *t, const xd_topo *topo);

/* Begins the recording of another request in phase "prepare". Discards the events of the previous
 * request, but keeps the events from before the first request. */
void xd_trace_again(xd_trace *t);

#endif
