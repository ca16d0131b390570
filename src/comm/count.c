/* count.c - defines a communicator that sends nothing and counts the bytes that it would send.
 *
 * The communicator never dereferences tensors, so a plan's traffic can be counted for any rank of
 * any number of ranks without running these ranks. Collective operations are split into the same
 * messages as in mpi.c (kinds.h). Messages of zero bytes are not sent by MPI and are not
 * counted. */
#include "comm/comm.h"

#include "comm/count_memory.h"
#include "comm/kinds.h"

#include <stdlib.h>

enum { LATER = 8 };

/* The second half of an all-reduce in which each rank sums one piece of the elements. The second
 * half begins when the first half, which is the operation with the number `number`, has ended. It
 * sends `bytes` bytes to each rank. */
typedef struct second {
    xd_comm *c;
    int64_t  number, bytes;
} second;

typedef struct tally { /* counters that the world communicator shares with its groups */
    xd_traffic         traffic;
    xd_err             err;
    int                users, groups;
    const xd_recorder *rec;   /* recorder that receives every operation, or NULL */
    int64_t            begun; /* number of operations that have begun */
    int64_t           *to;    /* [size of the world]: bytes that a collective sends to each rank */
    xd_count_world     memory;
    second             later[LATER]; /* all-reduces whose second half has not begun */
} tally;

typedef struct counter { /* `c` must be first: an xd_comm * is cast to counter * */
    xd_comm        c;
    tally         *y;
    int            id;
    xd_count_group memory;
} counter;

static xd_status open_group(tally *y, int color, int rank, int size, xd_comm **out, xd_err *e);

static counter *counter_of(xd_comm *c)
{
    return (counter *)(void *)c;
}

static xd_status count_split(xd_comm *c, int color, int key, int size, xd_comm **out, xd_err *e)
{
    *out = NULL;
    if (size < 1 || size > c->size || key < 0 || key >= size)
        return xd_fail(e, XD_EINVAL, "rank %d of a group of %d among %d ranks", key, size, c->size);
    return open_group(counter_of(c)->y, color, key, size, out, e);
}

/* Makes the group of the ranks on this rank's host, assuming that all ranks are on one host. A
 * caller that counts for several hosts splits the groups itself. */
static xd_status count_host(xd_comm *c, xd_comm **out, xd_err *e)
{
    return open_group(counter_of(c)->y, -1, c->rank, c->size, out, e);
}

static void count_close(xd_comm *c)
{
    tally *y = counter_of(c)->y;
    xd_count_group_close(&counter_of(c)->memory);
    if (--y->users == 0) {
        xd_count_world_close(&y->memory);
        free(y->to);
        free(y);
    }
    free(c);
}

/* Counts the device memory of a call that sends the view `out` to rank r and receives the view `in`
 * from that rank. */
static void count_views(xd_comm *c, int r, xd_tensor out, xd_tensor in, int packs)
{
    counter *k = counter_of(c);
    xd_count_send(&k->y->memory, &k->memory, r, out, packs);
    xd_count_recv(&k->y->memory, &k->memory, r, in, packs);
}

/* Counts `bytes` that the current collective sends to rank r. */
static void count_bytes(xd_comm *c, int r, size_t bytes)
{
    if (!bytes || r == c->rank)
        return;
    c->traffic->bytes += (int64_t)bytes;
    c->traffic->messages++;
    counter_of(c)->y->to[r] += (int64_t)bytes;
}

static void reset_bytes(xd_comm *c)
{
    for (int r = 0; r < c->size; r++)
        counter_of(c)->y->to[r] = 0;
}

/* Reports to the recorder that an operation begins. Returns a request for the operation. The end of
 * the operation is reported to the recorder when the caller waits for this request. */
static xd_req report_begin(xd_comm *c, xd_message what, int peer, const int64_t *bytes)
{
    tally *y = counter_of(c)->y;
    if (!y->rec || counter_of(c)->id < 0)
        return (xd_req){ 0 };
    y->rec->begin(y->rec->cookie, ++y->begun, counter_of(c)->id, what, peer, bytes);
    return (xd_req){ c, y->begun };
}

static xd_req report_collective(xd_comm *c)
{
    return c->size > 1 ? report_begin(c, XD_MESSAGE_COLLECTIVE, -1, counter_of(c)->y->to)
                       : (xd_req){ 0 };
}

/* Counts an all-reduce. An all-reduce that is split into pieces is reported as two calls. The
 * second call begins when the first call has ended, which in this communicator is when the caller
 * waits for the first call. */
static xd_req count_allreduce(xd_comm *c, xd_tensor io, xd_red op)
{
    tally  *y = counter_of(c)->y;
    int64_t n = xd_comm_elems(io), from = xd_reduce_piece(n, c->rank, c->size);
    int64_t mine = xd_reduce_piece(n, c->rank + 1, c->size) - from;
    size_t  es = xd_dtype_size(io.type);
    int     direct = xd_reduce_direct(xd_comm_bytes(io), c->size);
    xd_count_sum(&y->memory, &counter_of(c)->memory, io, op);
    reset_bytes(c);
    for (int r = 0; r < c->size; r++)
        count_bytes(
            c, r,
            direct ? xd_comm_bytes(io)
                   : (size_t)(xd_reduce_piece(n, r + 1, c->size) - xd_reduce_piece(n, r, c->size)) *
                         es);
    xd_req q = report_collective(c);
    for (int i = 0; i < LATER && q.tag && !direct; i++)
        if (!y->later[i].number) {
            y->later[i] = (second){ c, q.tag, mine * (int64_t)es };
            break;
        }
    for (int r = 0; r < c->size && !direct; r++)
        if (mine && r != c->rank) {
            c->traffic->bytes += mine * (int64_t)es;
            c->traffic->messages++;
        }
    return q;
}

static xd_req count_bcast(xd_comm *c, xd_tensor io, int root)
{
    int child[32], n = xd_tree_children((c->rank - root + c->size) % c->size, c->size, child);
    const xd_tensor none = { .type = io.type };
    reset_bytes(c);
    xd_count_call(&counter_of(c)->y->memory);
    for (int r = 0; r < c->size; r++) /* in a direct broadcast, the root sends to all ranks */
        count_views(c, r, c->rank == root ? io : none, r == root ? io : none, 1);
    for (int i = 0; i < n; i++)
        count_bytes(c, (child[i] + root) % c->size, xd_comm_bytes(io));
    return report_collective(c);
}

static xd_req count_gather(xd_comm *c, xd_tensor out, const int64_t *rows, xd_tensor in)
{
    int64_t at = 0;
    reset_bytes(c);
    xd_count_call(&counter_of(c)->y->memory);
    for (int r = 0; r < c->size; at += rows[r++]) {
        count_views(c, r, in, xd_rows(out, at, rows[r]), 1);
        count_bytes(c, r, (size_t)rows[c->rank] * xd_gather_row(out));
    }
    return report_collective(c);
}

static xd_req count_circulate(xd_comm *c, const xd_tensor *part)
{
    const int next = (c->rank + 1) % c->size;
    reset_bytes(c);
    xd_count_call(&counter_of(c)->y->memory);
    for (int r = 0; r < c->size; r++)
        count_views(c, r, part[c->rank], part[r], 0);
    for (int r = 0; r < c->size && c->size > 1; r++)
        if (r != next)
            count_bytes(c, next, xd_comm_bytes(part[r]));
    return report_collective(c);
}

static xd_req count_exchange(xd_comm *c, const xd_tensor *give, const xd_tensor *get)
{
    reset_bytes(c);
    xd_count_call(&counter_of(c)->y->memory);
    for (int r = 0; r < c->size; r++) {
        count_views(c, r, give[r], get[r], 0);
        count_bytes(c, r, xd_comm_bytes(give[r]));
    }
    return report_collective(c);
}

static xd_req count_exchange_views(xd_comm *c, const xd_tensor *give, xd_tensor *get)
{
    get[c->rank] = give[c->rank];
    return count_exchange(c, give, get);
}

static xd_req count_exchange_places(xd_comm *c, const xd_tensor *give, xd_tensor *get)
{
    get[c->rank] = give[c->rank];
    return (xd_req){ 0 };
}

static xd_req count_send(xd_comm *c, xd_tensor t, int to)
{
    int64_t bytes = (int64_t)xd_comm_bytes(t);
    if (to == c->rank || !bytes)
        return (xd_req){ 0 };
    c->traffic->bytes += bytes;
    c->traffic->messages++;
    xd_count_call(&counter_of(c)->y->memory);
    xd_count_send(&counter_of(c)->y->memory, &counter_of(c)->memory, to, t, 0);
    return report_begin(c, XD_MESSAGE_SEND, to, &bytes);
}

static xd_req count_recv(xd_comm *c, xd_tensor t, int from)
{
    int64_t bytes = (int64_t)xd_comm_bytes(t);
    if (from == c->rank || !bytes)
        return (xd_req){ 0 };
    xd_count_call(&counter_of(c)->y->memory);
    xd_count_recv(&counter_of(c)->y->memory, &counter_of(c)->memory, from, t, 0);
    return report_begin(c, XD_MESSAGE_RECV, from, &bytes);
}

static void report_second(tally *y, int64_t number)
{
    for (int i = 0; i < LATER; i++) {
        second s = y->later[i];
        if (s.number != number)
            continue;
        y->later[i].number = 0;
        for (int r = 0; r < s.c->size; r++)
            y->to[r] = r == s.c->rank ? 0 : s.bytes;
        y->rec->end(y->rec->cookie, report_collective(s.c).tag);
    }
}

static xd_status count_wait(xd_comm *c, xd_req *r, int n)
{
    tally             *y = counter_of(c)->y;
    const xd_recorder *rec = y->rec;
    for (int i = 0; i < n; i++) {
        if (rec && r[i].tag) {
            rec->end(rec->cookie, r[i].tag);
            report_second(y, r[i].tag);
        }
        r[i] = (xd_req){ 0 };
    }
    return XD_OK;
}

static int count_test(xd_comm *c, xd_req *r)
{
    count_wait(c, r, 1);
    return 1;
}

static void count_nothing(xd_comm *c)
{
    (void)c;
}

static void *count_share(xd_comm *c, size_t bytes, int *first)
{
    (void)bytes;
    *first = c->rank == 0;
    return NULL;
}

static void *count_window_open(xd_comm *c, size_t bytes)
{
    (void)c, (void)bytes;
    return NULL;
}

static int count_in_window(xd_comm *c, const void *p)
{
    (void)c, (void)p;
    return 0;
}

static void count_abort(xd_comm *c, int code)
{
    (void)c;
    _Exit(code);
}

static void count_drop(xd_comm *c, xd_req *r, int n)
{
    (void)c;
    for (int i = 0; i < n; i++)
        r[i] = (xd_req){ 0 };
}

static const xd_comm_ops ops = {
    .name = "count",
    .split = count_split,
    .split_host = count_host,
    .close = count_close,
    .allreduce = count_allreduce,
    .bcast = count_bcast,
    .gather = count_gather,
    .circulate = count_circulate,
    .exchange = count_exchange,
    .exchange_views = count_exchange_views,
    .exchange_places = count_exchange_places,
    .send = count_send,
    .recv = count_recv,
    .wait = count_wait,
    .test = count_test,
    .drop = count_drop,
    .poke = count_nothing,
    .barrier = count_nothing,
    .share = count_share,
    .window_open = count_window_open,
    .in_window = count_in_window,
    .abort = count_abort,
};

static xd_status open_group(tally *y, int color, int rank, int size, xd_comm **out, xd_err *e)
{
    counter *m = malloc(sizeof *m);
    *out = NULL;
    if (!m)
        return xd_fail(e, XD_ENOMEM, "no memory for a communicator");
    xd_count_group memory;
    if (!xd_count_group_open(&memory, rank, size)) {
        free(m);
        return xd_fail(e, XD_ENOMEM, "no memory for a communicator");
    }
    y->users++;
    *m = (counter){
        { &ops, rank, size, &y->traffic, &y->err, NULL }, y, color < 0 ? -1 : y->groups++, memory
    };
    if (y->rec && m->id >= 0)
        y->rec->group(y->rec->cookie, m->id, color, rank, size);
    *out = &m->c;
    return XD_OK;
}

xd_status xd_comm_record(xd_comm **c, int rank, int size, const xd_recorder *rec, xd_err *e)
{
    *c = NULL;
    if (size < 1 || rank < 0 || rank >= size)
        return xd_fail(e, XD_EINVAL, "rank %d of %d cannot be counted", rank, size);
    tally   *y = calloc(1, sizeof *y);
    int64_t *to = calloc((size_t)size, sizeof *to);
    if (!y || !to) {
        free(y);
        free(to);
        return xd_fail(e, XD_ENOMEM, "no memory for a communicator");
    }
    y->rec = rec;
    y->to = to;
    y->memory.traffic = &y->traffic;
    xd_err_clear(&y->err);
    xd_status s = open_group(y, 0, rank, size, c, e);
    if (s != XD_OK) {
        free(to);
        free(y);
    }
    return s;
}

xd_status xd_comm_count(xd_comm **c, int rank, int size, xd_err *e)
{
    return xd_comm_record(c, rank, size, NULL, e);
}
