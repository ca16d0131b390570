/* zero_copy.c - an exchange between ranks of one host through shared-memory windows
 *
 * The giver sends a note that says where in its window (shared.c) a view lies, and with which
 * strides. exchange: the receiver copies the view once, directly into its own layout, and confirms;
 * then the giver may go on. A view that the giver has already written to its destination
 * (exchange_places) is not copied. exchange_views, exchange_places: the receiver gets the view
 * itself. Data that is in no window (of a rank that has failed) follows the note as a message. The
 * call's first tag is for notes, the second for messages, the third for confirmations. */
#include "comm/kinds.h"
#include "comm/mpi_op.h"

#include <string.h>

typedef struct note {
    uint64_t block;             /* 0: in no window, follows as a message                       */
    int64_t  at, elems, s[XD_MAXDIM];
    int64_t  mine;              /* 1: in the giver's own part; the giver waits for the copy    */
} note;

struct xd_zero_copy {
    xd_tensor view, *got;       /* got: result of exchange_views and exchange_places           */
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
    int64_t         at;
    int             mine = 0;
    return xd_all_share_memory(c) && xd_window_find(g->world, p, &at, &mine) && mine;
}

static xd_zero_copy *add(xd_mpi_op *j, xd_tensor t, int peer, int gives)
{
    size_t most = 2 * (size_t)j->g->c.size;
    if (!j->near && !(j->near = (void *)xd_mpi_op_stage(j, most * sizeof *j->near)))
        return NULL;
    xd_zero_copy *n = &j->near[j->nnear++];
    *n = (xd_zero_copy){ .view = t, .peer = peer, .gives = gives };
    return n;
}

void xd_zero_copy_give(xd_mpi_op *j, xd_tensor t, int to)
{
    xd_zero_copy *n = xd_comm_bytes(t) ? add(j, t, to, 1) : NULL;
    int      mine = 0;
    if (!n)
        return;
    n->n.block = xd_window_find(j->g->world, t.p, &n->n.at, &mine);
    n->n.elems = xd_comm_elems(t);
    n->n.mine = mine;
    memcpy(n->n.s, t.s, sizeof n->n.s);
    if (n->n.block && j->trade != XD_EXCHANGE_PLACES)
        xd_mpi_op_count(j, xd_comm_bytes(t), to);
    xd_mpi_op_tell(j, &n->n, sizeof n->n, to);
}

void xd_zero_copy_take(xd_mpi_op *j, xd_tensor *t, int from)
{
    xd_zero_copy *n = xd_comm_bytes(*t) ? add(j, *t, from, 0) : NULL;
    if (!n)
        return;
    n->got = t;
    xd_mpi_op_recv(j, &n->n, sizeof n->n, from);
}

/* Bytes from the first element of a view to behind its last. */
static int64_t extent(xd_tensor t)
{
    int64_t n = 1;
    for (int i = 0; i < t.nd; i++)
        n += (t.d[i] - 1) * t.s[i];
    return n * (int64_t)xd_dtype_size(t.type);
}

static void take(xd_mpi_op *j, const xd_zero_copy *n)
{
    xd_tensor from = n->view;
    memcpy(from.s, n->n.s, sizeof from.s);
    from.p = xd_window_address(j->g->world, n->n.block, n->n.at, extent(from));
    if (n->n.elems != xd_comm_elems(n->view) || !from.p)
        xd_mpi_op_fail(j, XD_ECOMM,
                       "rank %d of a group of %d gives %lld elements, %lld were expected", n->peer,
                       j->g->c.size, (long long)n->n.elems, (long long)xd_comm_elems(n->view));
    else if (j->trade == XD_EXCHANGE_COPY)
        xd_comm_copy(n->view, from);
    else
        *n->got = from;
}

void xd_zero_copy_finish(xd_mpi_op *j)
{
    j->tag++;
    for (int i = 0; i < j->nnear && j->trade != XD_EXCHANGE_PLACES; i++) {
        const xd_zero_copy *n = &j->near[i];
        if (!n->n.block)
            (n->gives ? xd_mpi_op_give : xd_mpi_op_take)(j, n->view, n->peer);
    }
    j->tag++;
    for (int i = 0; i < j->nnear; i++) {
        xd_zero_copy *n = &j->near[i];
        const int told = j->trade == XD_EXCHANGE_COPY && n->n.mine;
        if (!n->n.block)
            continue;
        if (!n->gives)
            take(j, n);
        if (told && n->gives)
            xd_mpi_op_recv(j, &n->taken, 1, n->peer);
        else if (told)
            xd_mpi_op_tell(j, &n->taken, 1, n->peer);
    }
}
