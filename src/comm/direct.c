/* direct.c - sends messages between the devices of a host through mailboxes in shared device
 * memory. Messages in host memory, called notes, describe the contents of mailboxes. */
#include "comm/direct.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "comm/kinds.h"

enum {
    BOXES = 256,    /* max number of mailboxes that a rank has for another rank */
    MAX_RANKS = 64, /* max number of ranks in a group */
};

typedef struct box { /* this rank's mailbox for messages to one other rank */
    char     *p;
    size_t    cap;
    /* full: event after this rank's copy into the mailbox; taken: event after the receiver's copy
     * out of the mailbox */
    xd_mark  *full, *taken;
    uint64_t  sent; /* number of messages that were sent through this mailbox so far */
    xd_handle memory, mark;
} box;

typedef struct source { /* another rank's mailbox that this rank has opened */
    char    *p;
    /* full: event after the sender's copy into the mailbox; taken: event after this rank's copy out
     * of the mailbox */
    xd_mark *full, *taken;
} source;

typedef struct peer_boxes {
    box    box[BOXES];
    source from[BOXES];
    int    nboxes;
} peer_boxes;

typedef struct cell {       /* state of a mailbox, in host memory that all ranks share */
    _Atomic uint64_t taken; /* number of messages whose copy the receiver has queued */
    xd_handle        mark;  /* event that the receiver records after its last copy */
} cell;

struct xd_mailboxes {
    xd_staging *w;
    xd_comm    *host;
    cell       *cells; /* [size][size][BOXES]: index is [sender][receiver][mailbox] */
    int         rank, size;
    int32_t     first; /* world rank of the host's first rank */
    peer_boxes *peer;  /* [size]: mailboxes shared with each other rank */
};

typedef struct xd_note {
    int64_t   bytes;
    int32_t   box, rest;
    xd_handle memory, mark;
} xd_note;

static cell *cell_of(const xd_mailboxes *m, int from, int to, int i)
{
    return &m->cells[((size_t)from * (size_t)m->size + (size_t)to) * BOXES + (size_t)i];
}

/* ---- mailboxes ---------------------------------------------------------------------------- */

/* Returns 1 if the sender may queue a copy into the mailbox, because the receiver has already
 * queued its copy of the previous message out of the mailbox. */
static int is_free(const xd_mailboxes *m, int to, int i)
{
    box  *b = &m->peer[to].box[i];
    cell *c = cell_of(m, m->rank, to, i);
    if (atomic_load_explicit(&c->taken, memory_order_acquire) < b->sent)
        return 0;
    if (b->sent && !b->taken)
        b->taken = m->w->lanes->mark_borrow(m->w->dev, &c->mark);
    return !b->sent || b->taken;
}

static void free_box(const xd_mailboxes *m, box *b)
{
    const xd_dev_lanes *l = m->w->lanes;
    if (b->p)
        l->lend_end(m->w->dev, b->p);
    l->mark_put(m->w->dev, b->full);
    l->mark_put(m->w->dev, b->taken);
    *b = (box){ 0 };
}

static int make_box(const xd_mailboxes *m, box *b, size_t bytes)
{
    const xd_dev_lanes *l = m->w->lanes;
    b->cap = (bytes + XD_STAGE_BOX - 1) / XD_STAGE_BOX * XD_STAGE_BOX;
    b->p = l->lend(m->w->dev, b->cap, &b->memory);
    b->full = b->p ? l->mark_lend(m->w->dev, &b->mark) : NULL;
    if (b->full) {
        m->w->traffic->device_bytes += (int64_t)b->cap;
        return 1;
    }
    free_box(m, b);
    return 0;
}

/* Finds the smallest free mailbox for at least `bytes` bytes, or makes a new mailbox, and returns
 * the mailbox's index. Returns -1 if there is no memory for a mailbox. */
static int find_box(const xd_mailboxes *m, int to, size_t bytes)
{
    peer_boxes *q = &m->peer[to];
    for (;;) {
        int best = -1;
        for (int i = 0; i < q->nboxes; i++)
            if (q->box[i].cap >= bytes && (best < 0 || q->box[i].cap < q->box[best].cap) &&
                is_free(m, to, i))
                best = i;
        if (best >= 0)
            return best;
        if (q->nboxes < BOXES)
            return make_box(m, &q->box[q->nboxes], bytes) ? q->nboxes++ : -1;
        sched_yield();
    }
}

/* Opens, if necessary, the mailbox that another rank's note names. Returns the mailbox, or NULL if
 * the mailbox cannot be opened. */
static source *find_source(const xd_mailboxes *m, int from, const xd_note *n)
{
    const xd_dev_lanes *l = m->w->lanes;
    xd_dev             *d = m->w->dev;
    if (n->box < 0 || n->box >= BOXES)
        return NULL;
    source *s = &m->peer[from].from[n->box];
    if (!s->p)
        s->p = l->borrow(d, &n->memory);
    if (!s->full)
        s->full = l->mark_borrow(d, &n->mark);
    if (!s->taken)
        s->taken = l->mark_lend(d, &cell_of(m, from, m->rank, n->box)->mark);
    return s->p && s->full && s->taken ? s : NULL;
}

/* ---- sending ------------------------------------------------------------------------------ */

xd_status xd_direct_pack(xd_staging *w, char *to, xd_tensor t)
{
    size_t bytes = xd_comm_bytes(t);
    if (xd_stage_on_device(w, t)) {
        if (xd_contiguous(t))
            return w->lanes->copy(w->dev, XD_LANE_COMPUTE, to, t.p, bytes);
        xd_stage_copy_on_device(w, xd_view(to, t.type, t.nd, t.d), t);
        return XD_OK;
    }
    if (xd_contiguous(t))
        return w->dev->mem->upload(w->dev, NULL, to, t.p, bytes);
    char *packed = malloc(bytes);
    if (!packed)
        return XD_ENOMEM;
    xd_comm_pack(packed, t);
    xd_status st = w->dev->mem->upload(w->dev, NULL, to, packed, bytes);
    free(packed);
    return st;
}

static int fill_box(xd_mailboxes *m, int to, xd_tensor t, xd_note *n)
{
    const xd_dev_lanes *l = m->w->lanes;
    xd_dev             *d = m->w->dev;
    size_t              bytes = xd_comm_bytes(t);
    int                 i = find_box(m, to, bytes);
    xd_status           st = XD_OK;
    if (i < 0)
        return 0;
    box *b = &m->peer[to].box[i];
    *n = (xd_note){ .bytes = (int64_t)bytes, .box = i, .memory = b->memory, .mark = b->mark };
    if (b->sent++)
        st = l->follow(d, XD_LANE_COMPUTE, b->taken);
    if (st == XD_OK)
        st = xd_direct_pack(m->w, b->p, t);
    if (st == XD_OK)
        st = l->set(d, b->full, XD_LANE_COMPUTE);
    if (st != XD_OK)
        xd_fail(m->w->err, XD_EDEVICE, "a message cannot be copied on %s: %s", d->name,
                xd_status_name(st));
    return st != XD_ENOMEM;
}

int xd_direct_takes(const xd_direct *g, xd_dtype t)
{
    return (g->m || g->links) && (t == XD_F32 || t == XD_F16 || t == XD_BF16);
}

static xd_tensor note_view(xd_note *n, int there)
{
    int64_t size = there ? (int64_t)sizeof *n : 0;
    return xd_view(n, XD_U8, 1, &size);
}

/* Sends and receives the notes of a call. The traffic counters count the bytes of the tensors, not
 * those of the notes. */
static xd_req send_notes(const xd_direct *g, xd_stage_call *k, int size, int peer,
                         xd_traffic *traffic)
{
    xd_comm  *c = g->notes;
    xd_tensor view[2 * MAX_RANKS];
    int64_t   bytes = traffic->bytes, sent = 0;
    xd_req    r;
    for (int i = 0; i < 2 * size; i++)
        view[i] = note_view(&k->note[i], i % size != g->me && xd_comm_bytes(k->view[i]));
    for (int i = 0; i < size; i++)
        sent += i == g->me ? 0 : (int64_t)xd_comm_bytes(k->view[i]);
    if (peer < 0)
        r = c->ops->exchange(c, view, view + size);
    else if (xd_comm_bytes(k->view[peer]))
        r = c->ops->send(c, view[peer], peer);
    else
        r = c->ops->recv(c, view[size + peer], peer);
    traffic->bytes = bytes + sent;
    return r;
}

int xd_direct_begin(const xd_direct *g, xd_stage_call *k, int size, int peer, xd_traffic *traffic)
{
    xd_mailboxes *m = g->m;
    if (!k->note && !(k->note = calloc(2 * (size_t)m->size, sizeof *k->note)))
        return 0;
    for (int r = 0; r < size; r++)
        if (r != g->me && xd_comm_bytes(k->view[r]) &&
            !fill_box(m, g->rank[r], k->view[r], &k->note[r]))
            return 0;
    m->w->lanes->set(m->w->dev, k->before, XD_LANE_COMPUTE);
    k->real = send_notes(g, k, size, peer, traffic);
    return 1;
}

/* ---- receiving ---------------------------------------------------------------------------- */

/* Queues the copy of a received message to the tensor t; the message is from the host's rank number
 * `from`. If t has strides or is in host memory, the data is copied through contiguous device
 * memory. */
static xd_status receive_box(xd_mailboxes *m, xd_stage_call *k, int from, const xd_note *n,
                             xd_tensor t)
{
    xd_staging         *w = m->w;
    const xd_dev_lanes *l = w->lanes;
    size_t              bytes = xd_comm_bytes(t);
    source             *s = find_source(m, from, n);
    char               *to = t.p;
    if (!s || n->bytes != (int64_t)bytes)
        return xd_fail(w->err, XD_ECOMM, "rank %d sent %lld bytes; %zu were expected", from,
                       (long long)n->bytes, bytes);
    if (!xd_stage_on_device(w, t) || !xd_contiguous(t)) {
        if (!(to = xd_stage_alloc(w, k, 1, bytes)) || !xd_stage_copies_add(&k->up, t, to))
            return XD_ENOMEM;
    }
    xd_status st = l->follow(w->dev, XD_LANE_IN, s->full);
    if (st == XD_OK)
        st = l->copy(w->dev, XD_LANE_IN, to, s->p, bytes);
    if (st == XD_OK)
        st = l->set(w->dev, s->taken, XD_LANE_IN);
    atomic_fetch_add_explicit(&cell_of(m, from, m->rank, n->box)->taken, 1, memory_order_release);
    return st;
}

/* Copies a received message from device memory, at address `from`, to a tensor in host memory.
 * Returns when the copy has ended. */
static xd_status download_tensor(xd_staging *w, xd_tensor t, const char *from)
{
    size_t bytes = xd_comm_bytes(t);
    if (xd_contiguous(t))
        return w->dev->mem->download(w->dev, NULL, t.p, from, bytes);
    char *packed = malloc(bytes);
    if (!packed)
        return XD_ENOMEM;
    xd_status st = w->dev->mem->download(w->dev, NULL, packed, from, bytes);
    xd_comm_unpack(t, packed);
    free(packed);
    return st;
}

int xd_direct_copy(xd_staging *w, xd_stage_call *k, xd_tensor to, xd_tensor from)
{
    const int out = xd_stage_on_device(w, from), in = xd_stage_on_device(w, to);
    if (!xd_comm_bytes(from) || !(out || in)) {
        xd_comm_copy(to, from);
        return 1;
    }
    if (out && in) {
        xd_stage_copy_on_device(w, to, from);
        return 1;
    }
    char *packed = xd_stage_alloc(w, k, 1, xd_comm_bytes(from));
    if (!packed || xd_direct_pack(w, packed, from) == XD_ENOMEM)
        return 0;
    if (in)
        xd_stage_copy_on_device(w, to, xd_view(packed, to.type, to.nd, to.d));
    else
        download_tensor(w, to, packed);
    return 1;
}

xd_status xd_direct_unpack(xd_staging *w, xd_stage_call *k)
{
    xd_status st = XD_OK;
    for (int i = 0; i < k->up.n; i++) {
        const xd_stage_copy *v = &k->up.at[i];
        xd_status            now = XD_OK;
        if (!xd_stage_on_device(w, v->t))
            now = download_tensor(w, v->t, v->p);
        else
            xd_stage_copy_on_device(w, v->t, xd_view(v->p, v->t.type, v->t.nd, v->t.d));
        st = st == XD_OK ? now : st;
    }
    return st;
}

xd_status xd_direct_end(xd_direct *g, xd_stage_call *k, int size)
{
    xd_staging *w = g->m->w;
    xd_status   st = XD_OK, now;
    int64_t     comes = 0;
    for (int r = 0; r < size; r++)
        comes += r == g->me ? 0 : (int64_t)xd_comm_bytes(k->view[size + r]);
    if (!comes)
        return XD_OK;
    st = w->lanes->follow(w->dev, XD_LANE_IN, k->before);
    for (int r = 0; r < size; r++)
        if (r != g->me && xd_comm_bytes(k->view[size + r])) {
            now = receive_box(g->m, k, g->rank[r], &k->note[size + r], k->view[size + r]);
            st = st == XD_OK ? now : st;
        }
    xd_stage_follow(w, k);
    now = xd_direct_unpack(w, k);
    return st == XD_OK ? now : st;
}

/* ---- opening ------------------------------------------------------------------------------ */

int xd_comm_all_can(xd_comm *c, int mine)
{
    int32_t v = mine != 0;
    xd_req  r = c->ops->allreduce(c, xd_view(&v, XD_I32, 1, (int64_t[]){ 1 }), XD_MIN);
    return c->ops->wait(c, &r, 1) == XD_OK && v;
}

/* Tests whether mailboxes work: allocates one mailbox for every other rank of the host, and opens
 * the mailboxes that the other ranks have allocated for this rank. */
static int try_boxes(xd_mailboxes *m)
{
    xd_comm     *c = m->host;
    const size_t n = (size_t)m->size;
    xd_note     *out = calloc(2 * n, sizeof *out), *in = out + n;
    xd_tensor   *view = calloc(2 * n, sizeof *view);
    int          ok = out && view && xd_comm_all_can(c, 1);
    for (int r = 0; ok && r < m->size; r++) {
        int i = r == m->rank ? -1 : find_box(m, r, 1);
        view[r] = note_view(&out[r], r != m->rank);
        view[n + (size_t)r] = note_view(&in[r], r != m->rank);
        out[r].box = -1;
        if (i >= 0)
            out[r] = (xd_note){ .box = i,
                                .memory = m->peer[r].box[i].memory,
                                .mark = m->peer[r].box[i].mark };
    }
    if (ok) {
        xd_req q = c->ops->exchange(c, view, view + n);
        ok = c->ops->wait(c, &q, 1) == XD_OK;
    }
    for (int r = 0; ok && r < m->size; r++)
        ok = r == m->rank || find_source(m, r, &in[r]);
    free(out), free(view);
    return xd_comm_all_can(c, ok);
}

/* Opens mailboxes between the ranks of a host. The result is the same on all ranks of the host. */
static int open_on_host(xd_mailboxes *m, const char **why)
{
    xd_comm     *h = m->host;
    int          fills = 0, lends = m->w->lanes && m->w->lanes->lend;
    const size_t n = (size_t)h->size;
    *why = h->size == 1 ? "no host has two ranks" : "a device cannot share memory with processes";
    m->rank = h->rank, m->size = h->size;
    m->first = m->w->rank;
    m->peer = lends ? calloc(n, sizeof *m->peer) : NULL;
    xd_req r = h->ops->allreduce(h, xd_view(&m->first, XD_I32, 1, (int64_t[]){ 1 }), XD_MIN);
    int    ok = h->ops->wait(h, &r, 1) == XD_OK;
    if (!xd_comm_all_can(h, ok && m->peer && n > 1 && n <= MAX_RANKS))
        return 0;
    m->cells = h->ops->share(h, n * n * BOXES * sizeof(cell), &fills);
    *why = "there is no shared host memory";
    if (!xd_comm_all_can(h, m->cells != NULL))
        return 0;
    *why = "a rank cannot open another rank's memory";
    return try_boxes(m);
}

xd_mailboxes *xd_mailboxes_open(xd_staging *w, xd_comm *world, int *any, const char **why)
{
    xd_err        e = { 0 };
    xd_mailboxes *m = calloc(1, sizeof *m);
    *any = 0;
    *why = "a rank is out of memory";
    if (!xd_comm_all_can(world, m != NULL)) {
        free(m);
        return NULL;
    }
    m->w = w;
    xd_status s = world->ops->split_host(world, &m->host, &e);
    int       opens = xd_comm_all_can(world, s == XD_OK), ok = opens && open_on_host(m, why);
    *any = opens && !xd_comm_all_can(world, !ok);
    if (ok)
        return m;
    xd_mailboxes_close(m);
    return NULL;
}

int xd_mailboxes_partial(const xd_mailboxes *m, int world_size)
{
    return m->size < world_size;
}

void xd_mailboxes_close(xd_mailboxes *m)
{
    const xd_dev_lanes *l = m->w->lanes;
    for (int r = 0; m->peer && r < m->size; r++) {
        peer_boxes *q = &m->peer[r];
        for (int i = 0; i < q->nboxes; i++)
            if (q->box[i].taken)
                l->follow(m->w->dev, XD_LANE_COMPUTE, q->box[i].taken);
    }
    m->w->dev->mem->sync(m->w->dev, NULL);
    for (int r = 0; m->peer && r < m->size; r++) {
        peer_boxes *q = &m->peer[r];
        for (int i = 0; i < BOXES; i++) {
            l->mark_put(m->w->dev, q->from[i].full);
            l->mark_put(m->w->dev, q->from[i].taken);
            if (q->from[i].p)
                l->borrow_end(m->w->dev, q->from[i].p);
            free_box(m, &q->box[i]);
        }
    }
    xd_comm_close(&m->host);
    free(m->peer), free(m);
}

/* The location of a rank: the number of the rank's host, and the rank's number on that host. */
typedef struct place { int32_t host, rank; } place;

/* Returns this rank's location. With mailboxes, the number of a host is the world rank of the
 * host's first rank; a host whose ranks have no mailboxes has no number. If the ranks are connected
 * by NCCL links, all ranks of the world count as one host. */
static place my_place(const xd_staging *w, int world_rank)
{
    if (w->links)
        return (place){ 0, world_rank };
    return w->mailboxes ? (place){ w->mailboxes->first, w->mailboxes->rank }
                        : (place){ -1 - world_rank, 0 };
}

static int on_one_host(const place *p, int n)
{
    int one = p[0].host >= 0;
    for (int i = 1; i < n; i++)
        one = one && p[i].host == p[0].host;
    return one;
}

/* Gathers the locations of all ranks of a group. */
static xd_status gather_places(const xd_staging *w, int world_rank, xd_comm *group, place *all,
                               xd_err *e)
{
    const int n = group->size;
    int64_t   rows[MAX_RANKS];
    place     mine = my_place(w, world_rank);
    for (int i = 0; i < n; i++)
        rows[i] = 1;
    xd_req r =
        group->ops->gather(group, xd_view2(all, XD_I32, n, 2), rows, xd_view2(&mine, XD_I32, 1, 2));
    return group->ops->wait(group, &r, 1) == XD_OK ? XD_OK
                                                   : xd_fail(e, XD_ECOMM, "%s", group->err->msg);
}

xd_status xd_direct_open(xd_direct *g, const xd_staging *w, int world_rank, xd_comm *group,
                         xd_err *e)
{
    const int n = group->size;
    place     all[MAX_RANKS];
    *g = (xd_direct){ 0 };
    if (!w->direct || n == 1 || n > MAX_RANKS)
        return XD_OK;
    xd_status s = gather_places(w, world_rank, group, all, e);
    if (s != XD_OK || !on_one_host(all, n))
        return s;
    if (!w->links && (s = group->ops->split(group, 0, group->rank, n, &g->notes, e)) != XD_OK)
        return s;
    g->me = group->rank;
    if (!(g->rank = calloc((size_t)n, sizeof *g->rank)))
        return xd_fail(e, XD_ENOMEM, "no memory for a group of %d ranks", n);
    for (int i = 0; i < n; i++)
        g->rank[i] = all[i].rank;
    g->m = w->mailboxes;
    g->links = w->links;
    return XD_OK;
}

void xd_direct_close(xd_direct *g)
{
    if (g->notes)
        xd_comm_close(&g->notes);
    free(g->rank);
    *g = (xd_direct){ 0 };
}
