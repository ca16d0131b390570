/* topo.c - rank <-> coordinates, and the groups */
#include "parallel/topo.h"

#include <string.h>

xd_status xd_topo_open(xd_topo *t, xd_comm *world, xd_degrees deg, xd_err *e)
{
    int product = 1;
    memset(t, 0, sizeof *t);
    t->world = world;
    t->deg = deg;
    for (int a = 0; a < XD_NAXES; a++) {
        if (deg.n[a] < 1 || deg.n[a] > world->size)
            return xd_fail(e, XD_EINVAL, "a degree of %d on %d ranks", deg.n[a], world->size);
        product *= deg.n[a];
    }
    if (product != world->size)
        return xd_fail(e, XD_EINVAL, "the degrees multiply to %d, there are %d ranks", product,
                       world->size);
    for (int a = 0, unit = 1; a < XD_NAXES; unit *= deg.n[a++])
        t->at[a] = world->rank / unit % deg.n[a];
    for (int a = 0, unit = 1; a < XD_NAXES; unit *= deg.n[a++]) {
        xd_status s = world->ops->split(world, world->rank - t->at[a] * unit, t->at[a],
                                        &t->group[a], e);
        if (s != XD_OK)
            return s;
    }
    return XD_OK;
}

void xd_topo_close(xd_topo *t)
{
    for (int a = 0; a < XD_NAXES; a++)
        xd_comm_close(&t->group[a]);
    memset(t, 0, sizeof *t);
}
