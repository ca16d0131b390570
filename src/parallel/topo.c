/* topo.c - converts ranks to coordinates on the parallel axes, and opens the groups of ranks along
 * axes */
#include "parallel/topo.h"

#include <string.h>

int xd_degrees_product(xd_degrees d)
{
    int product = 1;
    for (int a = 0; a < XD_NAXES; a++)
        product *= d.n[a];
    return product;
}

int xd_topo_sp(const xd_topo *t, int ulysses, int ring)
{
    return ulysses + ring * t->deg.n[XD_ULYSSES];
}

/* Opens the group of this rank along the axes [from, to): the ranks that have the same coordinates
 * as this rank on all other axes. */
static xd_status open_group(xd_topo *t, int from, int to, xd_comm **out, xd_err *e)
{
    int unit = 1, size = 1, key = 0, first = t->world->rank;
    for (int a = 0; a < to; unit *= t->deg.n[a++]) {
        if (a < from)
            continue;
        first -= t->at[a] * unit;
        key += t->at[a] * size;
        size *= t->deg.n[a];
    }
    return t->world->ops->split(t->world, first, key, size, out, e);
}

xd_status xd_topo_open(xd_topo *t, xd_comm *world, xd_degrees deg, xd_err *e)
{
    memset(t, 0, sizeof *t);
    t->world = world;
    t->deg = deg;
    for (int a = 0; a < XD_NAXES; a++)
        if (deg.n[a] < 1)
            return xd_fail(e, XD_EINVAL, "a parallel degree is %d; it must be 1 or more", deg.n[a]);
    if (xd_degrees_product(deg) != world->size)
        return xd_fail(e, XD_EINVAL, "the product of the degrees is %d and there are %d ranks",
                       xd_degrees_product(deg), world->size);
    for (int a = 0, unit = 1; a < XD_NAXES; unit *= deg.n[a++])
        t->at[a] = world->rank / unit % deg.n[a];
    xd_status s = XD_OK;
    for (int a = 0; s == XD_OK && a < XD_NAXES; a++)
        s = open_group(t, a, a + 1, &t->group[a], e);
    if (s == XD_OK)
        s = open_group(t, XD_ULYSSES, XD_RING + 1, &t->tokens, e);
    if (s == XD_OK)
        s = open_group(t, XD_TENSOR, XD_CFG + 1, &t->replica, e);
    return s;
}

xd_status xd_topo_find_hosts(xd_topo *t, xd_dtype codes, xd_err *e)
{
    xd_status s = XD_OK;
    for (int a = 0; s == XD_OK && a < XD_NAXES; a++) {
        xd_comm *host = NULL;
        s = t->group[a]->ops->split_host(t->group[a], &host, e);
        t->between[a] = host && host->size < t->group[a]->size;
        xd_comm_close(&host);
    }
    t->codes = codes;
    return s;
}

void xd_topo_assume_hosts(xd_topo *t, xd_dtype codes, int ranks_per_host)
{
    for (int a = 0, unit = 1; a < XD_NAXES; unit *= t->deg.n[a++]) {
        const int first = t->world->rank - t->at[a] * unit, last = first + (t->deg.n[a] - 1) * unit;
        t->between[a] = first / ranks_per_host != last / ranks_per_host;
    }
    t->codes = codes;
}

xd_dtype xd_topo_codes(const xd_topo *t, xd_axis axis)
{
    return t->between[axis] ? t->codes : XD_F32;
}

void xd_topo_close(xd_topo *t)
{
    for (int a = 0; a < XD_NAXES; a++)
        xd_comm_close(&t->group[a]);
    xd_comm_close(&t->tokens);
    xd_comm_close(&t->replica);
    memset(t, 0, sizeof *t);
}
