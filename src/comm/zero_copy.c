/* zero_copy.c - exchanges data between ranks of one host through shared-memory windows.
 *
 * The sender sends a note with the position and the strides of a view in its window (shared.c). In
 * a plain exchange, the receiver copies the view once, directly into its own layout, and confirms
 * the copy; the sender waits for the confirmation. In exchange_places, the sender has already
 * written the data to its destination, so nothing is copied. In exchange_views and exchange_places,
 * the receiver gets a view of the sender's memory instead of a copy. A failed rank's data may be
 * outside the windows; such data is sent as a message after the note. Each call uses three message
 * tags: the first for notes, the second for data outside the windows, the third for
 * confirmations. */
#include "comm/kinds.h"
#include "comm/mpi_op.h"

#include <string.h>

typedef struct note {
    /* Number of the shared-memory block that has the data; 0: the data is sent as a message. */
    uint64_t block;
    int64_t  at, elems, s[XD_MAXDIM];
    /* 1: the data is in the sender's part of the window, and the sender waits until the receiver
     * has copied the data */
    int64_t  mine;
} note;

struct xd_zero_copy {
    xd_tensor view, *got; /* view: view to send; got: address at which to store the received view */
    int       peer, gives;
    note      n;
    char      taken;
};

int xd_shares_memory(const xd_comm *c, int rank)
{
    const xd_mpi_group *g = c->priv;
    return g->world->window && g->host[rank];
}

int xd_all_share_memory(const xd_comm *c)
{
    int all = 1;
    for (int r = 0; r < c->size; r++)
        all &= xd_shares_memory(c, r);
    return all;
}

int xd_mpi_in_window(xd_comm *c, const void *p)
{
    const xd_mpi_group *g = c->priv;
    int64_t             at;
    int                 mine = 0;
    return xd_all_share_memory(c) && xd_window_find(g->world, p, &at, &mine) && mine;
}

static xd_zero_copy *add_view(xd_mpi_op *j, xd_tensor t, int peer, int gives)
{
    size_t cap = 2 * (size_t)j->g->c.size;
    if (!j->views && !(j->views = (void *)xd_mpi_op_stage(j, cap * sizeof *j->views)))
        return NULL;
    xd_zero_copy *n = &j->views[j->nviews++];
    *n = (xd_zero_copy){ .view = t, .peer = peer, .gives = gives };
    return n;
}

void xd_zero_copy_send(xd_mpi_op *j, xd_tensor t, int to)
{
    xd_zero_copy *n = xd_comm_bytes(t) ? add_view(j, t, to, 1) : NULL;
    int           mine = 0;
    if (!n)
        return;
    n->n.block = xd_window_find(j->g->world, t.p, &n->n.at, &mine);
    n->n.elems = xd_comm_elems(t);
    n->n.mine = mine;
    memcpy(n->n.s, t.s, sizeof n->n.s);
    if (n->n.block && j->kind != XD_EXCHANGE_PLACES)
        xd_mpi_op_count(j, xd_comm_bytes(t), to);
    xd_mpi_op_send_uncounted(j, &n->n, sizeof n->n, to);
}

void xd_zero_copy_recv(xd_mpi_op *j, xd_tensor *t, int from)
{
    xd_zero_copy *n = xd_comm_bytes(*t) ? add_view(j, *t, from, 0) : NULL;
    if (!n)
        return;
    n->got = t;
    xd_mpi_op_recv(j, &n->n, sizeof n->n, from);
}

/* Returns the number of bytes that a view spans, from the beginning of the first element to the end
 * of the last element. */
static int64_t byte_extent(xd_tensor t)
{
    int64_t n = 1;
    for (int i = 0; i < t.nd; i++)
        n += (t.d[i] - 1) * t.s[i];
    return n * (int64_t)xd_dtype_size(t.type);
}

static void receive_view(xd_mpi_op *j, const xd_zero_copy *n)
{
    xd_tensor from = n->view;
    memcpy(from.s, n->n.s, sizeof from.s);
    from.p = xd_window_address(j->g->world, n->n.block, n->n.at, byte_extent(from));
    if (n->n.elems != xd_comm_elems(n->view) || !from.p)
        xd_mpi_op_fail(j, XD_ECOMM,
                       "rank %d of a group of %d sent %lld elements; %lld were expected", n->peer,
                       j->g->c.size, (long long)n->n.elems, (long long)xd_comm_elems(n->view));
    else if (j->kind == XD_EXCHANGE_COPY)
        xd_comm_copy(n->view, from);
    else
        *n->got = from;
}

void xd_zero_copy_finish(xd_mpi_op *j)
{
    j->tag++;
    for (int i = 0; i < j->nviews && j->kind != XD_EXCHANGE_PLACES; i++) {
        const xd_zero_copy *n = &j->views[i];
        if (!n->n.block)
            (n->gives ? xd_mpi_op_send_view : xd_mpi_op_recv_view)(j, n->view, n->peer);
    }
    j->tag++;
    for (int i = 0; i < j->nviews; i++) {
        xd_zero_copy *n = &j->views[i];
        const int     confirmed = j->kind == XD_EXCHANGE_COPY && n->n.mine;
        if (!n->n.block)
            continue;
        if (!n->gives)
            receive_view(j, n);
        if (confirmed && n->gives)
            xd_mpi_op_recv(j, &n->taken, 1, n->peer);
        else if (confirmed)
            xd_mpi_op_send_uncounted(j, &n->taken, 1, n->peer);
    }
}
