/* rank_group.c - connects the ranks of a server program. Between requests, rank 0 broadcasts
 * commands to the other ranks. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ranks/world.h"
#include "xdit/tools.h"

enum { SHORTEST_US = 20, LONGEST_US = 2000 }; /* seconds: min and max pause between two polls */

struct xd_rank_group { xd_comm *comm; };

xd_status xd_rank_group_open(xd_rank_group **g, xd_err *e)
{
    xd_err own = { 0 };
    e = e ? e : &own;
    *g = calloc(1, sizeof **g);
    if (!*g)
        return xd_fail(e, XD_ENOMEM, "no memory for a group of ranks");
    xd_status s = xd_comm_world(&(*g)->comm, xd_comm_launched() ? "mpi" : "self", e);
    if (s != XD_OK)
        xd_rank_group_close(g);
    return s;
}

void xd_rank_group_close(xd_rank_group **g)
{
    if (!g || !*g)
        return;
    xd_comm_close(&(*g)->comm);
    free(*g);
    *g = NULL;
}

int xd_rank_group_rank(const xd_rank_group *g)
{
    return g->comm->rank;
}

int xd_rank_group_size(const xd_rank_group *g)
{
    return g->comm->size;
}

/* Waits for a message, with growing sleeps between polls, because the next request may be hours
 * away. */
static xd_status wait_idle(xd_comm *c, xd_req r, xd_err *e)
{
    long us = SHORTEST_US;
    while (!c->ops->test(c, &r)) {
        nanosleep(&(struct timespec){ .tv_nsec = us * 1000 }, NULL);
        us = us * 2 < LONGEST_US ? us * 2 : LONGEST_US;
    }
    return xd_world_wait(c, r, e);
}

static xd_status broadcast(xd_comm *c, void *p, int64_t bytes, xd_err *e)
{
    return wait_idle(c, c->ops->bcast(c, xd_view(p, XD_U8, 1, &bytes), 0), e);
}

xd_status xd_rank_group_share(xd_rank_group *g, void **data, size_t *bytes, xd_err *e)
{
    xd_comm *c = g->comm;
    xd_err   own = { 0 };
    int64_t  n = c->rank == 0 ? (int64_t)*bytes : 0;
    e = e ? e : &own;
    if (c->size == 1)
        return XD_OK;
    xd_status s = broadcast(c, &n, sizeof n, e);
    if (s != XD_OK || c->rank == 0)
        return s == XD_OK && n ? broadcast(c, *data, n, e) : s;
    *bytes = (size_t)n;
    *data = calloc(1, (size_t)n + 1);
    if (!*data) /* If the message cannot be allocated, this counts as a communication failure. */
        return xd_fail(e, XD_ECOMM, "no memory for %lld bytes of rank 0", (long long)n);
    return n ? broadcast(c, *data, n, e) : XD_OK;
}
