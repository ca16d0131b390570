/* near.c - an exchange between ranks of one host: what one of them gives is read where it lies
 *
 * A view in memory that its owner lends (shared.c) is told by a note: where in that memory and with which strides. Of an
 * exchange the other rank copies it once, laid out as it wants it, and says so, and the owner may go on; what
 * lies where it is wanted, written there by its giver, stays. Shown or offered, the view itself is what the other rank gets.
 * What lies elsewhere (of a rank that has failed) follows the note as a message. Of the call's tags the first is the
 * notes', the second that of messages, the third says that a copy is made. */
#include "comm/kinds.h"
#include "comm/mpi_job.h"

#include <string.h>

typedef struct note {
    uint64_t block;             /* 0: it comes as a message                                    */
    int64_t  at, elems, s[XD_MAXDIM];
    int64_t  mine;              /* whose giver waits until it is copied                        */
} note;

struct xd_near {
    xd_tensor view, *got;       /* got: of what is shown or offered                            */
    int       peer, gives;
    note      n;
    char      taken;
};

int xd_is_near(const xd_comm *c, int rank)
{
    const xd_group *g = c->priv;
    return g->world->lent && g->host[rank];
}

int xd_all_near(const xd_comm *c)
{
    int all = 1;
    for (int r = 0; r < c->size; r++)
        all &= xd_is_near(c, r);
    return all;
}

int xd_mpi_lends(xd_comm *c, const void *p)
{
    const xd_group *g = c->priv;
    int64_t         at;
    int             mine = 0;
    return xd_all_near(c) && xd_lent_at(g->world, p, &at, &mine) && mine;
}

static xd_near *add(xd_job *j, xd_tensor t, int peer, int gives)
{
    size_t most = 2 * (size_t)j->g->c.size;
    if (!j->near && !(j->near = (void *)xd_job_stage(j, most * sizeof *j->near)))
        return NULL;
    xd_near *n = &j->near[j->nnear++];
    *n = (xd_near){ .view = t, .peer = peer, .gives = gives };
    return n;
}

void xd_near_give(xd_job *j, xd_tensor t, int to)
{
    xd_near *n = xd_comm_bytes(t) ? add(j, t, to, 1) : NULL;
    int      mine = 0;
    if (!n)
        return;
    n->n.block = xd_lent_at(j->g->world, t.p, &n->n.at, &mine);
    n->n.elems = xd_comm_elems(t);
    n->n.mine = mine;
    memcpy(n->n.s, t.s, sizeof n->n.s);
    if (n->n.block && j->trade != XD_OFFERED)
        xd_job_count(j, xd_comm_bytes(t), to);
    xd_job_tell(j, &n->n, sizeof n->n, to);
}

void xd_near_take(xd_job *j, xd_tensor *t, int from)
{
    xd_near *n = xd_comm_bytes(*t) ? add(j, *t, from, 0) : NULL;
    if (!n)
        return;
    n->got = t;
    xd_job_recv(j, &n->n, sizeof n->n, from);
}

/* From the first element of a view behind its last. */
static int64_t extent(xd_tensor t)
{
    int64_t n = 1;
    for (int i = 0; i < t.nd; i++)
        n += (t.d[i] - 1) * t.s[i];
    return n * (int64_t)xd_dtype_size(t.type);
}

static void take(xd_job *j, const xd_near *n)
{
    xd_tensor from = n->view;
    memcpy(from.s, n->n.s, sizeof from.s);
    from.p = xd_lent_find(j->g->world, n->n.block, n->n.at, extent(from));
    if (n->n.elems != xd_comm_elems(n->view) || !from.p)
        xd_job_fail(j, XD_ECOMM, "rank %d of a group of %d gives %lld elements, %lld were expected", n->peer,
                    j->g->c.size, (long long)n->n.elems, (long long)xd_comm_elems(n->view));
    else if (j->trade == XD_COPIED)
        xd_comm_copy(n->view, from);
    else
        *n->got = from;
}

void xd_near_then(xd_job *j)
{
    j->tag++;
    for (int i = 0; i < j->nnear && j->trade != XD_OFFERED; i++) {
        const xd_near *n = &j->near[i];
        if (!n->n.block)
            (n->gives ? xd_job_give : xd_job_take)(j, n->view, n->peer);
    }
    j->tag++;
    for (int i = 0; i < j->nnear; i++) {
        xd_near *n = &j->near[i];
        const int told = j->trade == XD_COPIED && n->n.mine;
        if (!n->n.block)
            continue;
        if (!n->gives)
            take(j, n);
        if (told && n->gives)
            xd_job_recv(j, &n->taken, 1, n->peer);
        else if (told)
            xd_job_tell(j, &n->taken, 1, n->peer);
    }
}
