/* staged.c - sends messages between devices through host memory: the sender copies device memory to
 * host memory, and the receiver copies the message from host memory to its device.
 *
 * A communication call returns while its data is still being copied to the host. The call's message
 * starts later: when the caller waits for a request, tests it, lets messages make progress, or
 * makes the next call. Messages start in the order of their calls. The device continues to compute
 * while a message waits. */
#include "comm/staged.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "comm/direct.h"
#include "comm/kinds.h"
#include "comm/linked.h"

typedef enum kind { ALLREDUCE, BCAST, GATHER, CIRCULATE, EXCHANGE, SEND, RECV } kind;

typedef struct xd_staged {
    xd_comm     c;
    xd_comm    *real;
    xd_staging *w;
    xd_direct   direct; /* direct messages between devices, or {0} */
} xd_staged;

static xd_staged *staged_of(xd_comm *c)
{
    return (xd_staged *)(void *)c;
}

/* Aborts all ranks, because a rank without memory cannot take part in messages. */
static void no_memory(const xd_staged *s)
{
    xd_fail(s->c.err, XD_ENOMEM, "no memory for a message between %s and the host",
            s->w->dev->name);
    s->real->ops->abort(s->real, 1);
}

static xd_stage_call *begin_call(xd_staged *s, kind what)
{
    xd_stage_call *k = xd_stage_begin(s->w);
    if (!k)
        no_memory(s);
    k->by = s;
    k->kind = (int)what;
    return k;
}

/* Makes a host copy of the device tensor t and stores its view in k->view[i], the i-th host tensor
 * that the call k sends or receives. */
static void stage_view(xd_staged *s, xd_stage_call *k, int i, xd_tensor t, int how)
{
    if (!xd_stage_view(s->w, k, t, how, &k->view[i]))
        no_memory(s);
}

/* ---- the order of messages ---------------------------------------------------------------- */

static void start_message(xd_stage_call *k)
{
    xd_comm         *c = k->by->real;
    const xd_tensor *v = k->view;
    k->started = 1;
    switch ((kind)k->kind) {
    case ALLREDUCE: k->real = c->ops->allreduce(c, v[0], k->op); break;
    case BCAST: k->real = c->ops->bcast(c, v[0], k->peer); break;
    case GATHER: k->real = c->ops->gather(c, v[0], k->rows, v[1]); break;
    case CIRCULATE: k->real = c->ops->circulate(c, v); break;
    case EXCHANGE: k->real = c->ops->exchange(c, v, v + c->size); break;
    case SEND: k->real = c->ops->send(c, v[0], k->peer); break;
    case RECV: k->real = c->ops->recv(c, v[0], k->peer); break;
    }
}

/* Starts waiting messages, oldest first, up to the first message whose data has not been copied to
 * the host yet. */
static void start_ready(xd_staging *w)
{
    for (xd_stage_call *k; (k = w->waiting) && xd_stage_downloaded(w, k);) {
        if (!(w->waiting = k->next))
            w->last_waiting = &w->waiting;
        start_message(k);
    }
}

/* Starts a call's message. A receive starts at once, since the order of receives does not depend on
 * sends. Any other call starts after all earlier calls. */
static xd_req begin_message(xd_staged *s, xd_stage_call *k)
{
    xd_staging *w = s->w;
    xd_stage_download(w, k);
    start_ready(w);
    if (k->kind == RECV || (!w->waiting && xd_stage_downloaded(w, k))) {
        start_message(k);
    } else {
        k->next = NULL;
        *w->last_waiting = k;
        w->last_waiting = &k->next;
    }
    return (xd_req){ k, 0 };
}

static xd_comm *carrier(const xd_staged *s, const xd_stage_call *k)
{
    return k->direct ? s->direct.notes : s->real;
}

static int is_linked(const xd_staged *s, const xd_stage_call *k)
{
    return k->direct && s->direct.links;
}

/* Returns 1 if the host need not wait for the messages of a call, because the device waits for the
 * messages or because the messages have arrived. */
static int needs_no_host(xd_staged *s, xd_stage_call *k)
{
    return is_linked(s, k) || carrier(s, k)->ops->test(carrier(s, k), &k->real);
}

/* Lets messages make progress until the message of call k has ended. If k is NULL, lets messages
 * make progress until the messages of all calls have started. */
static void go_on_until(xd_staged *s, xd_stage_call *k)
{
    xd_staging *w = s->w;
    for (;;) {
        start_ready(w);
        if (!w->waiting || (k && k->started && needs_no_host(s, k)))
            return;
        s->real->ops->poke(s->real);
        sched_yield();
    }
}

/* Removes a call from the list of calls whose messages have not started. */
static void forget(xd_staging *w, const xd_stage_call *k)
{
    xd_stage_call **at = &w->waiting;
    while (*at && *at != k)
        at = &(*at)->next;
    if (*at && !(*at = k->next))
        w->last_waiting = at;
}

static int is_same_view(xd_tensor a, xd_tensor b)
{
    return a.p == b.p && a.nd == b.nd && !memcmp(a.d, b.d, sizeof a.d) &&
           !memcmp(a.s, b.s, sizeof a.s);
}

/* ---- direct calls between devices --------------------------------------------------------- */

static xd_stage_call *begin_direct(xd_staged *s, kind what)
{
    xd_stage_call *k = begin_call(s, what);
    k->direct = k->started = 1;
    for (int r = 0; r < 2 * s->c.size; r++)
        k->view[r] = (xd_tensor){ 0 };
    return k;
}

/* Begins a direct call between devices, whose views are already set: sends view[r] to rank r, and
 * receives view[size + r] from rank r. */
static xd_req send_direct(xd_staged *s, xd_stage_call *k, int peer)
{
    if (!(s->direct.links ? xd_links_begin : xd_direct_begin)(&s->direct, k, s->c.size, peer,
                                                              s->c.traffic))
        no_memory(s);
    return (xd_req){ k, 0 };
}

static void copy_mine(xd_staged *s, xd_stage_call *k, xd_tensor to, xd_tensor from)
{
    if (!is_same_view(to, from) && !xd_direct_copy(s->w, k, to, from))
        no_memory(s);
}

/* Begins an all-reduce (sum) of f32: every rank receives the elements of all ranks in the call's
 * buffers, and add_up sums them. */
static xd_req direct_sum(xd_staged *s, xd_tensor io)
{
    const int      me = s->c.rank, size = s->c.size;
    xd_stage_call *k = begin_direct(s, ALLREDUCE);
    for (int r = 0; r < size; r++) {
        void *p = xd_stage_alloc(s->w, k, 1, xd_comm_bytes(io) + 1);
        if (!p)
            no_memory(s);
        k->view[r] = io;
        k->view[size + r] = xd_view2(p, io.type, 1, xd_comm_elems(io));
    }
    copy_mine(s, k, xd_view(k->view[size + me].p, io.type, io.nd, io.d), io);
    return send_direct(s, k, -1);
}

/* Sums the received elements in the order of the ranks, so that all ranks get bitwise equal
 * sums. */
static void add_up(xd_staged *s, xd_stage_call *k)
{
    const xd_tensor *part = k->view + s->c.size;
    xd_tensor        io = k->view[s->c.rank];
    for (int r = 1; r < s->c.size; r++)
        if (s->w->dev->ops->axpby(s->w->dev, NULL, &(xd_axpby_args){ part[0], part[r], 1, 1 },
                                  NULL) != XD_OK)
            xd_fail(s->c.err, XD_EDEVICE, "a sum over ranks failed on %s", s->w->dev->name);
    copy_mine(s, k, io, xd_view(part[0].p, io.type, io.nd, io.d));
}

static xd_req direct_bcast(xd_staged *s, xd_tensor io, int root)
{
    xd_stage_call *k = begin_direct(s, BCAST);
    for (int r = 0; r < s->c.size && s->c.rank == root; r++)
        k->view[r] = io;
    if (s->c.rank != root)
        k->view[s->c.size + root] = io;
    return send_direct(s, k, -1);
}

static xd_req direct_gather(xd_staged *s, xd_tensor out, const int64_t *rows, xd_tensor in)
{
    xd_stage_call *k = begin_direct(s, GATHER);
    int64_t        at = 0;
    for (int r = 0; r < s->c.size; at += rows[r++]) {
        k->view[r] = in;
        k->view[s->c.size + r] = xd_rows(out, at, rows[r]);
    }
    copy_mine(s, k, k->view[s->c.size + s->c.rank], in);
    return send_direct(s, k, -1);
}

static xd_req direct_circulate(xd_staged *s, const xd_tensor *part)
{
    xd_stage_call *k = begin_direct(s, CIRCULATE);
    for (int r = 0; r < s->c.size; r++) {
        k->view[r] = part[s->c.rank];
        k->view[s->c.size + r] = part[r];
    }
    return send_direct(s, k, -1);
}

static xd_req direct_exchange(xd_staged *s, const xd_tensor *give, const xd_tensor *get)
{
    const int      me = s->c.rank;
    xd_stage_call *k = begin_direct(s, EXCHANGE);
    memcpy(k->view, give, (size_t)s->c.size * sizeof *give);
    memcpy(k->view + s->c.size, get, (size_t)s->c.size * sizeof *get);
    if (xd_comm_bytes(give[me]))
        copy_mine(s, k, get[me], give[me]);
    return send_direct(s, k, -1);
}

/* ---- calls -------------------------------------------------------------------------------- */

static xd_req staged_allreduce(xd_comm *c, xd_tensor io, xd_red op)
{
    xd_staged *s = staged_of(c);
    if (io.type == XD_F32 && op == XD_SUM && xd_direct_takes(&s->direct, io.type))
        return direct_sum(s, io);
    xd_stage_call *k = begin_call(s, ALLREDUCE);
    k->op = op;
    stage_view(s, k, 0, io, XD_STAGE_READS | XD_STAGE_FILLS);
    return begin_message(s, k);
}

static xd_req staged_bcast(xd_comm *c, xd_tensor io, int root)
{
    xd_staged *s = staged_of(c);
    if (xd_direct_takes(&s->direct, io.type))
        return direct_bcast(s, io, root);
    xd_stage_call *k = begin_call(s, BCAST);
    k->peer = root;
    stage_view(s, k, 0, io, c->rank == root ? XD_STAGE_READS : XD_STAGE_FILLS);
    return begin_message(s, k);
}

static xd_req staged_gather(xd_comm *c, xd_tensor out, const int64_t *rows, xd_tensor in)
{
    xd_staged *s = staged_of(c);
    if (xd_direct_takes(&s->direct, in.type))
        return direct_gather(s, out, rows, in);
    xd_stage_call *k = begin_call(s, GATHER);
    memcpy(k->rows, rows, (size_t)c->size * sizeof *rows);
    stage_view(s, k, 0, out, XD_STAGE_FILLS);
    stage_view(s, k, 1, in, XD_STAGE_READS);
    return begin_message(s, k);
}

static xd_req staged_circulate(xd_comm *c, const xd_tensor *part)
{
    xd_staged *s = staged_of(c);
    if (xd_direct_takes(&s->direct, part[0].type))
        return direct_circulate(s, part);
    xd_stage_call *k = begin_call(s, CIRCULATE);
    for (int r = 0; r < c->size; r++)
        stage_view(s, k, r, part[r], r == c->rank ? XD_STAGE_READS : XD_STAGE_FILLS);
    return begin_message(s, k);
}

static xd_req staged_exchange(xd_comm *c, const xd_tensor *give, const xd_tensor *get)
{
    xd_staged *s = staged_of(c);
    if (xd_direct_takes(&s->direct, give[0].type))
        return direct_exchange(s, give, get);
    xd_stage_call *k = begin_call(s, EXCHANGE);
    const int      me = c->rank,
                   stays = xd_stage_on_device(s->w, give[me]) && xd_stage_on_device(s->w, get[me]);
    for (int r = 0; r < c->size; r++) {
        xd_tensor none = { .type = give[r].type };
        stage_view(s, k, r, stays && r == me ? none : give[r], XD_STAGE_READS);
        stage_view(s, k, c->size + r, stays && r == me ? none : get[r], XD_STAGE_FILLS);
    }
    if (stays && !is_same_view(give[me], get[me]))
        xd_stage_copy_on_device(s->w, get[me], give[me]);
    return begin_message(s, k);
}

static xd_req staged_views(xd_comm *c, const xd_tensor *give, xd_tensor *get)
{
    return staged_exchange(c, give, get);
}

static xd_req staged_places(xd_comm *c, const xd_tensor *give, xd_tensor *get)
{
    (void)c, (void)give, (void)get;
    return (xd_req){ 0 };
}

static xd_req staged_send(xd_comm *c, xd_tensor t, int to)
{
    xd_staged     *s = staged_of(c);
    const int      direct = xd_direct_takes(&s->direct, t.type);
    xd_stage_call *k = direct ? begin_direct(s, SEND) : begin_call(s, SEND);
    if (direct) {
        k->view[to] = t;
        return send_direct(s, k, to);
    }
    k->peer = to;
    stage_view(s, k, 0, t, XD_STAGE_READS);
    return begin_message(s, k);
}

static xd_req staged_recv(xd_comm *c, xd_tensor t, int from)
{
    xd_staged     *s = staged_of(c);
    const int      direct = xd_direct_takes(&s->direct, t.type);
    xd_stage_call *k = direct ? begin_direct(s, RECV) : begin_call(s, RECV);
    if (direct) {
        k->view[c->size + from] = t;
        return send_direct(s, k, from);
    }
    k->peer = from;
    stage_view(s, k, 0, t, XD_STAGE_FILLS);
    return begin_message(s, k);
}

static xd_status end_call(xd_staged *s, xd_stage_call *k)
{
    xd_status st = is_linked(s, k) ? xd_links_end(&s->direct, k)
                                   : carrier(s, k)->ops->wait(carrier(s, k), &k->real, 1);
    if (!k->direct) {
        if (!xd_stage_end(s->w, k))
            no_memory(s);
        return st;
    }
    if (st == XD_OK && !s->direct.links)
        st = xd_direct_end(&s->direct, k, s->c.size);
    if (k->kind == ALLREDUCE)
        add_up(s, k);
    xd_stage_finish(s->w, k);
    return st;
}

static xd_status staged_wait(xd_comm *c, xd_req *r, int n)
{
    xd_staged *s = staged_of(c);
    xd_status  all = XD_OK;
    for (int i = 0; i < n; i++) {
        if (!r[i].p)
            continue;
        go_on_until(s, r[i].p);
        xd_status st = end_call(s, r[i].p);
        all = all == XD_OK ? st : all;
        r[i] = (xd_req){ 0 };
    }
    return all;
}

static int staged_test(xd_comm *c, xd_req *r)
{
    xd_staged     *s = staged_of(c);
    xd_stage_call *k = r->p;
    start_ready(s->w);
    if (!k)
        return 1;
    if (!k->started ||
        !(is_linked(s, k) ? s->w->lanes->reached(s->w->dev, k->in) : needs_no_host(s, k)))
        return 0;
    if (k->real.p) /* the request has failed; staged_wait returns the error */
        return 1;
    end_call(s, k);
    *r = (xd_req){ 0 };
    return 1;
}

static void staged_drop(xd_comm *c, xd_req *r, int n)
{
    xd_staged *s = staged_of(c);
    for (int i = 0; i < n; i++) {
        xd_stage_call *k = r[i].p;
        if (!k)
            continue;
        if (!k->started)
            forget(s->w, k);
        if (is_linked(s, k))
            xd_links_give_up(s->direct.links, k);
        else
            carrier(s, k)->ops->drop(carrier(s, k), &k->real, 1);
        xd_stage_drop(s->w, k);
        r[i] = (xd_req){ 0 };
    }
}

static void staged_poke(xd_comm *c)
{
    start_ready(staged_of(c)->w);
    staged_of(c)->real->ops->poke(staged_of(c)->real);
}

static void staged_barrier(xd_comm *c)
{
    go_on_until(staged_of(c), NULL);
    staged_of(c)->real->ops->barrier(staged_of(c)->real);
}

static void staged_abort(xd_comm *c, int code)
{
    staged_of(c)->real->ops->abort(staged_of(c)->real, code);
}

/* ---- shared memory: none ------------------------------------------------------------------ */

static void *staged_share(xd_comm *c, size_t bytes, int *first)
{
    xd_staged *s = staged_of(c);
    return s->real->ops->share(s->real, bytes, first);
}

static void *staged_window_open(xd_comm *c, size_t bytes)
{
    (void)c, (void)bytes;
    return NULL;
}

static int staged_in_window(xd_comm *c, const void *p)
{
    (void)c, (void)p;
    return 0;
}

static void staged_window_close(xd_comm *c, void *p)
{
    (void)c, (void)p;
}

/* ---- groups ------------------------------------------------------------------------------- */

static xd_status wrap_comm(xd_comm **c, xd_staging *w, xd_err *e);

typedef enum way { LINKS, MAILBOXES, STAGED } way;

/* Returns the fastest transport between devices that an environment variable of rank 0 allows. */
static way first_way(const xd_staged *s)
{
    const char *name = getenv("XDIT_DEVICE_MESSAGES");
    int32_t     v = !name                     ? LINKS
                    : !strcmp(name, "staged") ? STAGED
                    : !strcmp(name, "ipc")    ? MAILBOXES
                                              : LINKS;
    xd_req      r = s->real->ops->bcast(s->real, xd_view(&v, XD_I32, 1, (int64_t[]){ 1 }), 0);
    return s->real->ops->wait(s->real, &r, 1) == XD_OK ? (way)v : STAGED;
}

static void say_way(const xd_staged *s, const char *no_links, const char *no_boxes)
{
    const xd_staging *w = s->w;
    if (s->c.rank)
        return;
    if (w->links)
        xd_log(XD_LOG_DEBUG, "messages between devices: %s", w->lanes->links->name);
    else if (w->mailboxes)
        xd_log(XD_LOG_DEBUG,
               "messages between devices: shared device memory (ipc)%s; "
               "no links: %s",
               xd_mailboxes_partial(w->mailboxes, s->c.size)
                   ? ", through host "
                     "memory (staged) in groups of several hosts"
                   : "",
               no_links);
    else
        xd_log(XD_LOG_DEBUG,
               "messages between devices: through host memory (staged): %s; "
               "no links: %s",
               no_boxes, no_links);
}

/* Chooses the transport between devices. All ranks of the world must call this function before the
 * first group is split from the world. */
static xd_status choose_way(xd_staged *s, xd_err *e)
{
    xd_staging *w = s->w;
    const char *no_links = "XDIT_DEVICE_MESSAGES", *no_boxes = no_links;
    if (w->chosen || s->c.size != w->size || s->c.size == 1)
        return XD_OK;
    w->chosen = 1;
    w->rank = s->c.rank;
    way first = first_way(s);
    if (first == LINKS)
        w->links = xd_links_open(w, s->real, &no_links);
    if (first != STAGED && !w->links && s->c.err->code == XD_OK)
        w->mailboxes = xd_mailboxes_open(w, s->real, &w->direct, &no_boxes);
    if (s->c.err->code != XD_OK) /* the ranks' messages no longer match */
        return xd_fail(e, s->c.err->code, "%s", s->c.err->msg);
    w->direct = w->direct || w->links;
    w->traffic->way = w->links ? XD_WAY_LINKS : w->mailboxes ? XD_WAY_MAILBOXES : XD_WAY_STAGED;
    say_way(s, no_links, no_boxes);
    return xd_direct_open(&s->direct, w, w->rank, s->real, e);
}

static xd_status wrap_group(xd_comm **c, xd_staging *w, xd_status st, xd_err *e)
{
    if (st == XD_OK)
        st = wrap_comm(c, w, e);
    return st == XD_OK ? xd_direct_open(&staged_of(*c)->direct, w, w->rank, staged_of(*c)->real, e)
                       : st;
}

static xd_status staged_split(xd_comm *c, int color, int key, int size, xd_comm **out, xd_err *e)
{
    xd_staged *s = staged_of(c);
    go_on_until(s, NULL);
    xd_status st = choose_way(s, e);
    if (st == XD_OK)
        st = s->real->ops->split(s->real, color, key, size, out, e);
    return wrap_group(out, s->w, st, e);
}

static xd_status staged_split_host(xd_comm *c, xd_comm **out, xd_err *e)
{
    xd_staged *s = staged_of(c);
    go_on_until(s, NULL);
    xd_status st = choose_way(s, e);
    if (st == XD_OK)
        st = s->real->ops->split_host(s->real, out, e);
    return wrap_group(out, s->w, st, e);
}

static void staged_close(xd_comm *c)
{
    xd_staged *s = staged_of(c);
    xd_direct_close(&s->direct);
    xd_staging_close(s->w);
    xd_comm_close(&s->real);
    free(s);
}

static const xd_comm_ops ops = {
    .name = "staged",
    .split = staged_split,
    .split_host = staged_split_host,
    .close = staged_close,
    .allreduce = staged_allreduce,
    .bcast = staged_bcast,
    .gather = staged_gather,
    .circulate = staged_circulate,
    .exchange = staged_exchange,
    .exchange_views = staged_views,
    .exchange_places = staged_places,
    .send = staged_send,
    .recv = staged_recv,
    .wait = staged_wait,
    .test = staged_test,
    .drop = staged_drop,
    .poke = staged_poke,
    .barrier = staged_barrier,
    .share = staged_share,
    .window_open = staged_window_open,
    .in_window = staged_in_window,
    .window_close = staged_window_close,
    .abort = staged_abort,
};

static xd_status wrap_comm(xd_comm **c, xd_staging *w, xd_err *e)
{
    xd_staged *s = calloc(1, sizeof *s);
    if (!s)
        return xd_fail(e, XD_ENOMEM, "no memory for a group of %d ranks", (*c)->size);
    s->c = (xd_comm){ &ops, (*c)->rank, (*c)->size, (*c)->traffic, (*c)->err, NULL };
    s->real = *c;
    s->w = w;
    w->users++;
    *c = &s->c;
    return XD_OK;
}

xd_status xd_comm_stage(xd_comm **c, xd_dev *dev, xd_err *e)
{
    if (dev->host_memory)
        return XD_OK;
    xd_staging *w = xd_staging_open(dev, *c);
    if (!w)
        return xd_fail(e, XD_ENOMEM, "no memory for messages of %s", dev->name);
    xd_status s = wrap_comm(c, w, e);
    xd_staging_close(w);
    return s;
}
