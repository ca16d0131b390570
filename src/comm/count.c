/* count.c - a communicator that sends nothing and counts what would be sent.
 *
 * It follows no address, so a plan can be counted for any rank of any number before there are
 * such ranks. It cuts collectives as mpi.c does (kinds.h); messages without bytes are not sent
 * there and not counted here. */
#include "comm/comm.h"

#include "comm/kinds.h"

#include <stdlib.h>

typedef struct tally {          /* shared by a world and its groups                            */
    xd_traffic traffic;
    xd_err     err;
    int        users;
} tally;

static xd_status open_group(tally *y, int rank, int size, xd_comm **out, xd_err *e);

static xd_status count_split(xd_comm *c, int color, int key, int size, xd_comm **out, xd_err *e)
{
    (void)color;
    *out = NULL;
    if (size < 1 || size > c->size || key < 0 || key >= size)
        return xd_fail(e, XD_EINVAL, "rank %d of a group of %d among %d ranks", key, size, c->size);
    return open_group(c->priv, key, size, out, e);
}

/* One host is assumed: whoever counts for several asks for the group it wants. */
static xd_status count_host(xd_comm *c, xd_comm **out, xd_err *e)
{
    return open_group(c->priv, c->rank, c->size, out, e);
}

static void count_close(xd_comm *c)
{
    tally *y = c->priv;
    if (--y->users == 0)
        free(y);
    free(c);
}

static void add(xd_comm *c, size_t bytes, int64_t messages)
{
    if (!bytes)
        return;
    c->traffic->bytes += (int64_t)bytes * messages;
    c->traffic->messages += messages;
}

static xd_req count_allreduce(xd_comm *c, xd_tensor io, xd_red op)
{
    int64_t n = xd_comm_elems(io), from = xd_piece(n, c->rank, c->size);
    int64_t mine = xd_piece(n, c->rank + 1, c->size) - from;
    (void)op;
    if (xd_reduce_direct(xd_comm_bytes(io), c->size)) {
        add(c, xd_comm_bytes(io), c->size - 1);
        return (xd_req){ 0 };
    }
    size_t es = xd_dtype_size(io.type);
    for (int r = 0; r < c->size; r++)
        if (r != c->rank)
            add(c, (size_t)(xd_piece(n, r + 1, c->size) - xd_piece(n, r, c->size)) * es, 1);
    add(c, (size_t)mine * es, c->size - 1);
    return (xd_req){ 0 };
}

static xd_req count_bcast(xd_comm *c, xd_tensor io, int root)
{
    int child[32];
    add(c, xd_comm_bytes(io),
        xd_tree_children((c->rank - root + c->size) % c->size, c->size, child));
    return (xd_req){ 0 };
}

static xd_req count_gather(xd_comm *c, xd_tensor out, const int64_t *rows, xd_tensor in)
{
    (void)in;
    add(c, (size_t)rows[c->rank] * xd_gather_row(out), c->size - 1);
    return (xd_req){ 0 };
}

static xd_req count_exchange(xd_comm *c, const xd_tensor *give, const xd_tensor *get)
{
    (void)get;
    for (int r = 0; r < c->size; r++)
        if (r != c->rank)
            add(c, xd_comm_bytes(give[r]), 1);
    return (xd_req){ 0 };
}

static xd_req count_send(xd_comm *c, xd_tensor t, int to)
{
    if (to != c->rank)
        add(c, xd_comm_bytes(t), 1);
    return (xd_req){ 0 };
}

static xd_req count_recv(xd_comm *c, xd_tensor t, int from)
{
    (void)c, (void)t, (void)from;
    return (xd_req){ 0 };
}

static xd_status count_wait(xd_comm *c, xd_req *r, int n)
{
    (void)c;
    for (int i = 0; i < n; i++)
        r[i] = (xd_req){ 0 };
    return XD_OK;
}

static int count_test(xd_comm *c, xd_req *r)
{
    (void)c, (void)r;
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
    .name = "count", .split = count_split, .split_host = count_host, .close = count_close,
    .allreduce = count_allreduce, .bcast = count_bcast, .gather = count_gather,
    .exchange = count_exchange, .send = count_send, .recv = count_recv, .wait = count_wait,
    .test = count_test, .drop = count_drop, .poke = count_nothing,
    .barrier = count_nothing, .share = count_share,
    .abort = count_abort,
};

static xd_status open_group(tally *y, int rank, int size, xd_comm **out, xd_err *e)
{
    xd_comm *c = *out = malloc(sizeof *c);
    if (!c)
        return xd_fail(e, XD_ENOMEM, "no memory for a communicator");
    y->users++;
    *c = (xd_comm){ &ops, rank, size, &y->traffic, &y->err, y };
    return XD_OK;
}

xd_status xd_comm_count(xd_comm **c, int rank, int size, xd_err *e)
{
    *c = NULL;
    if (size < 1 || rank < 0 || rank >= size)
        return xd_fail(e, XD_EINVAL, "rank %d of %d cannot be counted", rank, size);
    tally *y = calloc(1, sizeof *y);
    if (!y)
        return xd_fail(e, XD_ENOMEM, "no memory for a communicator");
    xd_err_clear(&y->err);
    xd_status s = open_group(y, rank, size, c, e);
    if (s != XD_OK)
        free(y);
    return s;
}
