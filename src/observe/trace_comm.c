/* trace_comm.c - defines a proxy communicator that records messages.
 *
 * A message is recorded as two events: the call that begins the message, on the computing thread,
 * and the message's flight, from that call to the end of the wait. The byte counts of collectives
 * come from a count communicator, because the real communicator may send some bytes later. The
 * request handles that the proxy returns are those of the real communicator. If memory for
 * recording a message is missing, the message is sent without being recorded. */
#include <stdlib.h>
#include <string.h>

#include "observe/trace.h"

typedef struct noted { /* `c` must be first: comm_of casts an xd_comm * to noted * */
    xd_comm   c;
    xd_comm  *real, *count;
    xd_trace *t;
    int       group; /* kind of group: XD_GROUP_ALL, an axis, ... */
    /* rank i of this communicator is rank base + i * unit of the ranks that the plan uses */
    int       base, unit;
    /* [size]: for each rank, the number of messages sent to the rank (out) and received from the
     * rank (in). */
    int32_t  *out, *in;
} noted;

static const xd_comm_ops ops;

static noted *comm_of(xd_comm *c)
{
    return (noted *)(void *)c;
}

/* ---- a message begins --------------------------------------------------------------------- */

static int group_of(const noted *m)
{
    int decodes = strcmp(xd_trace_phase_name(m->t->phase), "decode") == 0;
    return m->group == XD_GROUP_REPLICA && decodes ? XD_GROUP_BANDS : m->group;
}

static void add_flight(xd_trace *t, xd_req r, xd_event ev)
{
    if (t->nfly == t->capfly) {
        int        cap = t->capfly ? t->capfly * 2 : 64;
        xd_flight *more = realloc(t->fly, (size_t)cap * sizeof *more);
        if (!more) {
            t->lost++;
            return;
        }
        t->fly = more;
        t->capfly = cap;
    }
    t->fly[t->nfly++] = (xd_flight){ r, ev };
}

static xd_req record_begin(noted *m, xd_call call, int peer, int64_t t0, int64_t bytes, xd_req r)
{
    xd_trace *t = m->t;
    int32_t  *number = call == XD_CALL_SEND ? m->out : m->in;
    if (!t->on)
        return r;
    xd_event ev = { t0, xd_trace_now(t), bytes, XD_EV_CALL, (int)call + 16 * group_of(m), -1, 0 };
    if (peer >= 0) {
        ev.b = m->base + peer * m->unit;
        ev.c = number[peer]++;
    }
    xd_trace_put(t, ev);
    ev.kind = XD_EV_FLIGHT;
    if (r.p)
        add_flight(t, r, ev);
    else
        xd_trace_put(t, ev);
    return r;
}

/* Returns how many bytes the last call sends to other ranks, as counted by the count
 * communicator. */
static int64_t counted_bytes(const noted *m)
{
    int64_t n = m->count->traffic->bytes;
    m->count->traffic->bytes = 0;
    return n;
}

#define COLLECTIVE(slot, call, params, ...)                                                        \
    static xd_req slot params                                                                      \
    {                                                                                              \
        noted *m = comm_of(c);                                                                     \
        int64_t t0 = xd_trace_now(m->t);                                                           \
        xd_req r = m->real->ops->slot(m->real, __VA_ARGS__);                                       \
        m->count->ops->slot(m->count, __VA_ARGS__);                                                \
        return record_begin(m, call, -1, t0, counted_bytes(m), r);                                 \
    }

COLLECTIVE(allreduce, XD_CALL_ALLREDUCE, (xd_comm * c, xd_tensor io, xd_red op), io, op)
COLLECTIVE(bcast, XD_CALL_BCAST, (xd_comm * c, xd_tensor io, int root), io, root)
COLLECTIVE(gather, XD_CALL_GATHER, (xd_comm * c, xd_tensor out, const int64_t *rows, xd_tensor in),
           out, rows, in)
COLLECTIVE(circulate, XD_CALL_GATHER, (xd_comm * c, const xd_tensor *part), part)
COLLECTIVE(exchange, XD_CALL_EXCHANGE, (xd_comm * c, const xd_tensor *give, const xd_tensor *get),
           give, get)

COLLECTIVE(exchange_views, XD_CALL_EXCHANGE, (xd_comm * c, const xd_tensor *give, xd_tensor *get),
           give, get)

static xd_req trace_places(xd_comm *c, const xd_tensor *give, xd_tensor *get)
{
    return comm_of(c)->real->ops->exchange_places(comm_of(c)->real, give, get);
}

/* Sends a message and records it. Messages of zero bytes are neither sent nor recorded. */
static xd_req trace_send(xd_comm *c, xd_tensor t, int to)
{
    noted  *m = comm_of(c);
    int64_t t0 = xd_trace_now(m->t);
    xd_req  r = m->real->ops->send(m->real, t, to);
    return xd_bytes(t) ? record_begin(m, XD_CALL_SEND, to, t0, (int64_t)xd_bytes(t), r) : r;
}

static xd_req trace_recv(xd_comm *c, xd_tensor t, int from)
{
    noted  *m = comm_of(c);
    int64_t t0 = xd_trace_now(m->t);
    xd_req  r = m->real->ops->recv(m->real, t, from);
    return xd_bytes(t) ? record_begin(m, XD_CALL_RECV, from, t0, (int64_t)xd_bytes(t), r) : r;
}

/* ---- a message ends ----------------------------------------------------------------------- */

/* Removes the message of request r from the list of flights, which are the messages for which the
 * rank has not waited yet. Sets *ev to the message's event. Returns 0 if the list does not have the
 * message. */
static int remove_flight(xd_trace *t, xd_req r, xd_event *ev)
{
    for (int i = 0; r.p && i < t->nfly; i++)
        if (t->fly[i].r.p == r.p && t->fly[i].r.tag == r.tag) {
            *ev = t->fly[i].ev;
            t->fly[i] = t->fly[--t->nfly];
            return 1;
        }
    return 0;
}

static xd_status trace_wait(xd_comm *c, xd_req *r, int n)
{
    noted    *m = comm_of(c);
    xd_trace *t = m->t;
    xd_event  ev, first = { .kind = XD_EV_WAIT };
    int64_t   from = t->n, landed = 0;
    for (int i = 0; i < n; i++)
        if (remove_flight(t, r[i], &ev)) {
            if (!landed++)
                first.a = ev.a, first.b = ev.b;
            xd_trace_put(t, ev);
        }
    first.t0 = xd_trace_now(t);
    xd_status s = m->real->ops->wait(m->real, r, n);
    first.t1 = xd_trace_now(t);
    for (int64_t i = from; i < t->n; i++)
        t->ev[i].t1 = first.t1;
    if (landed && t->on)
        xd_trace_put(t, first);
    return s;
}

static int trace_test(xd_comm *c, xd_req *r)
{
    noted   *m = comm_of(c);
    xd_req   was = *r;
    xd_event ev;
    if (!m->real->ops->test(m->real, r))
        return 0;
    if (remove_flight(m->t, was, &ev)) {
        ev.t1 = xd_trace_now(m->t);
        xd_trace_put(m->t, ev);
    }
    return 1;
}

static void trace_drop(xd_comm *c, xd_req *r, int n)
{
    noted   *m = comm_of(c);
    xd_event ev;
    for (int i = 0; i < n; i++)
        remove_flight(m->t, r[i], &ev);
    m->real->ops->drop(m->real, r, n);
}

static void trace_barrier(xd_comm *c)
{
    noted  *m = comm_of(c);
    int64_t t0 = xd_trace_now(m->t);
    m->real->ops->barrier(m->real);
    xd_trace_add(m->t, XD_EV_WAIT, t0, XD_CALL_BARRIER + 16 * group_of(m), -1, 0);
}

/* ---- groups; other functions are forwarded ------------------------------------------------ */

static xd_status note_group(xd_trace *t, xd_comm **c, xd_err *e)
{
    xd_comm *real = *c;
    noted   *m = calloc(1, sizeof *m);
    size_t   n = (size_t)real->size;
    if (m) {
        *m = (noted){ .c = *real, .real = real, .t = t, .group = XD_GROUP_ALL, .unit = 1 };
        m->c.ops = &ops;
        m->out = calloc(n, sizeof *m->out);
        m->in = calloc(n, sizeof *m->in);
        if (m->out && m->in && xd_comm_count(&m->count, real->rank, real->size, e) == XD_OK) {
            *c = &m->c;
            return XD_OK;
        }
        free(m->out), free(m->in), free(m);
    }
    return xd_fail(e, XD_ENOMEM, "no memory to trace %d ranks", real->size);
}

static xd_status trace_split(xd_comm *c, int color, int key, int size, xd_comm **out, xd_err *e)
{
    noted    *m = comm_of(c);
    xd_status s = m->real->ops->split(m->real, color, key, size, out, e);
    return s == XD_OK && (*out)->size > 1 ? note_group(m->t, out, e) : s;
}

static xd_status split_host(xd_comm *c, xd_comm **out, xd_err *e)
{
    noted    *m = comm_of(c);
    xd_status s = m->real->ops->split_host(m->real, out, e);
    return s == XD_OK && (*out)->size > 1 ? note_group(m->t, out, e) : s;
}

static void trace_close(xd_comm *c)
{
    noted *m = comm_of(c);
    xd_comm_close(&m->real);
    xd_comm_close(&m->count);
    free(m->out), free(m->in), free(m);
}

static void trace_poke(xd_comm *c)
{
    comm_of(c)->real->ops->poke(comm_of(c)->real);
}

static void *trace_share(xd_comm *c, size_t bytes, int *first)
{
    return comm_of(c)->real->ops->share(comm_of(c)->real, bytes, first);
}

static void *window_open(xd_comm *c, size_t bytes)
{
    return comm_of(c)->real->ops->window_open(comm_of(c)->real, bytes);
}

static void window_close(xd_comm *c, void *p)
{
    comm_of(c)->real->ops->window_close(comm_of(c)->real, p);
}

static int in_window(xd_comm *c, const void *p)
{
    return comm_of(c)->real->ops->in_window(comm_of(c)->real, p);
}

static void end_all(xd_comm *c, int code)
{
    comm_of(c)->real->ops->abort(comm_of(c)->real, code);
}

static const xd_comm_ops ops = {
    .name = "trace",
    .split = trace_split,
    .split_host = split_host,
    .close = trace_close,
    .allreduce = allreduce,
    .bcast = bcast,
    .gather = gather,
    .circulate = circulate,
    .exchange = exchange,
    .exchange_views = exchange_views,
    .exchange_places = trace_places,
    .send = trace_send,
    .recv = trace_recv,
    .wait = trace_wait,
    .test = trace_test,
    .drop = trace_drop,
    .poke = trace_poke,
    .barrier = trace_barrier,
    .share = trace_share,
    .window_open = window_open,
    .in_window = in_window,
    .window_close = window_close,
    .abort = end_all,
};

xd_status xd_trace_comm(xd_trace *t, xd_comm **c, xd_err *e)
{
    return t && (*c)->size > 1 ? note_group(t, c, e) : XD_OK;
}

xd_comm *xd_trace_plain(xd_comm *c)
{
    return c->ops == &ops ? comm_of(c)->real : c;
}

static void name_group(xd_comm *c, int group, int base, int unit)
{
    if (c && c->ops == &ops) {
        comm_of(c)->group = group;
        comm_of(c)->base = base;
        comm_of(c)->unit = unit;
    }
}

void xd_trace_topo(const xd_trace *t, const xd_topo *topo)
{
    int rank = t ? topo->world->rank : 0, unit = 1;
    for (int a = 0; t && a < XD_NAXES; unit *= topo->deg.n[a++])
        name_group(topo->group[a], a, rank - topo->at[a] * unit, unit);
    if (!t)
        return;
    int tensor = topo->deg.n[XD_TENSOR], all = topo->replica ? topo->replica->size : 1;
    name_group(topo->tokens, XD_GROUP_TOKENS, rank - topo->tokens->rank * tensor, tensor);
    name_group(topo->replica, XD_GROUP_REPLICA, rank / all * all, 1);
}
