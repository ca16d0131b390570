/* mpi_call.c - implements the communication calls of a group by messages between pairs of ranks.
 *
 * MPI's own collectives are not used: pairwise messages can be counted and have any sizes and
 * strides, and sums have an order that does not depend on the MPI library. */
#include "comm/kinds.h"
#include "comm/mpi_op.h"

#include <string.h>

/* Returns the i-th of the other ranks. The order starts after this rank, so that the ranks do not
 * all send to rank 0 first. */
static int nth_peer(const xd_comm *c, int i)
{
    return (c->rank + i) % c->size;
}

xd_req xd_mpi_send(xd_comm *c, xd_tensor t, int to)
{
    xd_mpi_op *j = xd_mpi_op_begin(c, 0);
    if (j)
        xd_mpi_op_send_view(j, t, to);
    return xd_mpi_op_start(j);
}

xd_req xd_mpi_recv(xd_comm *c, xd_tensor t, int from)
{
    xd_mpi_op *j = xd_mpi_op_begin(c, 0);
    if (j)
        xd_mpi_op_recv_view(j, t, from);
    return xd_mpi_op_start(j);
}

/* Starts an exchange. To a rank of the same host, this function sends a note with the position of
 * the view in shared memory. To a rank of another host, it sends the tensor's bytes, except for
 * exchange_places, which sends nothing to other hosts. The array `get` is modified only by
 * exchange_views and exchange_places. */
static void post_exchange(xd_mpi_op *j, const xd_tensor *give, xd_tensor *get)
{
    const xd_comm *c = &j->g->c;
    for (int i = 1; i < c->size; i++) {
        int from = nth_peer(c, c->size - i);
        if (xd_shares_memory(c, from))
            xd_zero_copy_recv(j, &get[from], from);
        else if (j->kind != XD_EXCHANGE_PLACES)
            xd_mpi_op_recv_view(j, get[from], from);
    }
    for (int i = 1; i < c->size; i++) {
        int to = nth_peer(c, i);
        if (xd_shares_memory(c, to))
            xd_zero_copy_send(j, give[to], to);
        else if (j->kind != XD_EXCHANGE_PLACES)
            xd_mpi_op_send_view(j, give[to], to);
    }
    j->then = j->nviews ? xd_zero_copy_finish : NULL;
}

xd_req xd_mpi_exchange(xd_comm *c, const xd_tensor *give, const xd_tensor *get)
{
    xd_mpi_op *j = xd_mpi_op_begin(c, 1);
    xd_tensor *to;
    if (!j)
        return xd_mpi_op_start(j);
    memcpy(&to, &get, sizeof to); /* the array `get` is not modified by this kind of exchange */
    post_exchange(j, give, to);
    if (!xd_comm_copy(get[c->rank], give[c->rank]))
        xd_mpi_op_fail(j, XD_EINVAL,
                       "the views that a rank exchanges with itself differ in shape "
                       "or type");
    return xd_mpi_op_start(j);
}

static xd_req exchange_in_place(xd_comm *c, const xd_tensor *give, xd_tensor *get,
                                xd_exchange_kind how)
{
    xd_mpi_op *j = xd_mpi_op_begin(c, 1);
    if (!j)
        return xd_mpi_op_start(j);
    j->kind = how;
    post_exchange(j, give, get);
    get[c->rank] = give[c->rank];
    return xd_mpi_op_start(j);
}

xd_req xd_mpi_exchange_views(xd_comm *c, const xd_tensor *give, xd_tensor *get)
{
    return exchange_in_place(c, give, get, XD_EXCHANGE_VIEWS);
}

xd_req xd_mpi_exchange_places(xd_comm *c, const xd_tensor *give, xd_tensor *get)
{
    return exchange_in_place(c, give, get, XD_EXCHANGE_PLACES);
}

/* Gathers the rows of all ranks in `out`. This rank's rows are first copied to their position in
 * `out`, and are sent to the other ranks from this position. */
xd_req xd_mpi_gather(xd_comm *c, xd_tensor out, const int64_t *rows, xd_tensor in)
{
    xd_mpi_op *j = xd_mpi_op_begin(c, 1);
    size_t     row = xd_gather_row(out), mine = (size_t)rows[c->rank] * row;
    char      *p = out.p;
    if (!j)
        return xd_mpi_op_start(j);
    for (int i = 1; i < c->size; i++) {
        int r = nth_peer(c, c->size - i);
        if (rows[r])
            xd_mpi_op_recv(j, p + (size_t)xd_gather_at(rows, r) * row, (size_t)rows[r] * row, r);
    }
    if (mine != xd_comm_bytes(in))
        xd_mpi_op_fail(j, XD_EINVAL, "an all-gather got %zu bytes, its rows have %zu",
                       xd_comm_bytes(in), mine);
    if (!mine)
        return xd_mpi_op_start(j);
    p += (size_t)xd_gather_at(rows, c->rank) * row;
    if (mine == xd_comm_bytes(in))
        xd_comm_pack(p, in);
    for (int i = 1; i < c->size; i++)
        xd_mpi_op_send(j, p, mine, nth_peer(c, i));
    return xd_mpi_op_start(j);
}

/* Sends to the next rank the tensor that this rank received in the previous hop. */
static void post_hop(xd_mpi_op *j)
{
    const xd_comm   *c = &j->g->c;
    const xd_tensor *part = (const xd_tensor *)(void *)j->stage;
    const int        R = c->size, now = (c->rank - j->hop + R) % R;
    xd_mpi_op_recv_view(j, part[(now - 1 + R) % R], (c->rank - 1 + R) % R);
    xd_mpi_op_send_view(j, part[now], (c->rank + 1) % R);
    j->then = ++j->hop < R - 1 ? post_hop : NULL;
}

xd_req xd_mpi_circulate(xd_comm *c, const xd_tensor *part)
{
    const size_t bytes = (size_t)c->size * sizeof *part;
    xd_mpi_op   *j = c->size > 1 ? xd_mpi_op_begin(c, 1) : NULL;
    if (!j)
        return c->size > 1 ? xd_mpi_op_start(j) : (xd_req){ 0 };
    j->hop = 0;
    if ((j->stage = xd_mpi_op_stage(j, bytes))) {
        memcpy(j->stage, part, bytes);
        post_hop(j);
    }
    return xd_mpi_op_start(j);
}

static void bcast_down(xd_mpi_op *j)
{
    const xd_comm *c = &j->g->c;
    int            child[32];
    int            n = xd_tree_children((c->rank - j->root + c->size) % c->size, c->size, child);
    for (int i = 0; i < n; i++)
        xd_mpi_op_send(j, j->io.p, xd_comm_bytes(j->io), (child[i] + j->root) % c->size);
}

xd_req xd_mpi_bcast(xd_comm *c, xd_tensor io, int root)
{
    xd_mpi_op *j = xd_mpi_op_begin(c, 1);
    if (!j)
        return xd_mpi_op_start(j);
    j->io = io;
    j->root = root;
    if (c->rank == root) {
        bcast_down(j);
    } else {
        int v = (c->rank - root + c->size) % c->size;
        xd_mpi_op_recv(j, io.p, xd_comm_bytes(io), (xd_tree_parent(v) + root) % c->size);
        j->then = bcast_down;
    }
    return xd_mpi_op_start(j);
}

/* Sums n elements of every rank in the order of the ranks. The elements of rank r are in slot r of
 * the staging buffer. The elements of this rank are at `io`; the sum replaces these elements. */
static void sum_slots(xd_mpi_op *j, char *io, int64_t n)
{
    const xd_comm *c = &j->g->c;
    size_t         size = (size_t)n * xd_dtype_size(j->io.type);
    char          *sum = c->rank ? j->stage : io;
    for (int r = 1; r < c->size; r++)
        xd_reduce(sum, r == c->rank ? io : j->stage + (size_t)r * size, n, j->io.type, j->op);
    if (sum != io && size)
        memcpy(io, sum, size);
}

static void direct_end(xd_mpi_op *j)
{
    sum_slots(j, j->io.p, xd_comm_elems(j->io));
}

static void direct_begin(xd_mpi_op *j)
{
    const xd_comm *c = &j->g->c;
    size_t         bytes = xd_comm_bytes(j->io);
    if (!(j->stage = xd_mpi_op_stage(j, bytes * (size_t)c->size)))
        return;
    for (int i = 1; i < c->size; i++)
        xd_mpi_op_recv(j, j->stage + (size_t)nth_peer(c, i) * bytes, bytes, nth_peer(c, i));
    for (int i = 1; i < c->size; i++)
        xd_mpi_op_send(j, j->io.p, bytes, nth_peer(c, i));
    j->then = direct_end;
}

/* In an all-reduce, each rank sums one piece of the elements. Returns the address of the piece that
 * rank r sums, and sets *bytes to the size of this piece. */
static char *piece_at(const xd_mpi_op *j, int r, size_t *bytes)
{
    int64_t n = xd_comm_elems(j->io), from = xd_reduce_piece(n, r, j->g->c.size);
    size_t  es = xd_dtype_size(j->io.type);
    *bytes = (size_t)(xd_reduce_piece(n, r + 1, j->g->c.size) - from) * es;
    return (char *)j->io.p + (size_t)from * es;
}

static void pieces_end(xd_mpi_op *j)
{
    const xd_comm *c = &j->g->c;
    size_t         mine, theirs;
    char          *p = piece_at(j, c->rank, &mine);
    sum_slots(j, p, (int64_t)(mine / xd_dtype_size(j->io.type)));
    j->tag++;
    for (int i = 1; i < c->size; i++) {
        char *q = piece_at(j, nth_peer(c, i), &theirs);
        xd_mpi_op_recv(j, q, theirs, nth_peer(c, i));
    }
    for (int i = 1; i < c->size; i++)
        xd_mpi_op_send(j, p, mine, nth_peer(c, i));
}

void xd_sum_by_messages(xd_mpi_op *j)
{
    const xd_comm *c = &j->g->c;
    size_t         mine, theirs;
    piece_at(j, c->rank, &mine);
    if (!(j->stage = xd_mpi_op_stage(j, mine * (size_t)c->size)))
        return;
    for (int i = 1; i < c->size; i++)
        xd_mpi_op_recv(j, j->stage + (size_t)nth_peer(c, i) * mine, mine, nth_peer(c, i));
    for (int i = 1; i < c->size; i++) {
        const char *q = piece_at(j, nth_peer(c, i), &theirs);
        xd_mpi_op_send(j, q, theirs, nth_peer(c, i));
    }
    j->then = pieces_end;
}

xd_req xd_mpi_allreduce(xd_comm *c, xd_tensor io, xd_red op)
{
    xd_mpi_op *j = xd_mpi_op_begin(c, 1);
    if (!j || !xd_comm_elems(io) || c->size == 1)
        return xd_mpi_op_start(j);
    j->io = io;
    j->op = op;
    if (io.type != XD_F32 && io.type != XD_F64 && io.type != XD_I32 && io.type != XD_I64)
        xd_mpi_op_fail(j, XD_EUNSUPPORTED, "an all-reduce of type %s is not supported",
                       xd_dtype_name(io.type));
    else if (xd_reduce_direct(xd_comm_bytes(io), c->size))
        direct_begin(j);
    else
        (xd_all_share_memory(c) ? xd_zero_copy_sum : xd_sum_by_messages)(j);
    return xd_mpi_op_start(j);
}
