/* arenas.c - memory of a request: on a device, and mapped by the other ranks of the host */
#include "engine/ranks.h"

#include "base/log.h"
#include "base/pages.h"

xd_status xd_room_open(xd_arena *a, xd_dev *dev, size_t bytes, xd_err *e)
{
    size_t cap = dev->counts ? (size_t)1 << 60 : xd_pages_whole(bytes);
    void  *p = dev->mem->get(dev, cap ? cap : XD_PAGE);
    if (!p)
        return xd_fail(e, XD_ENOMEM, "no memory for the %s of activations", xd_size_text((double)bytes).s);
    xd_arena_init(a, p, cap ? cap : XD_PAGE);
    return XD_OK;
}

void xd_room_close(xd_arena *a, xd_dev *dev)
{
    if (a->base)
        dev->mem->put(dev, a->base, a->cap);
    *a = (xd_arena){ 0 };
}

/* All ranks of a host see what they lend: that takes the address space of all. */
static size_t lent_bytes(const xd_engine *g, size_t bytes)
{
    const size_t spare = (size_t)16 << 20;      /* of address space, for messages              */
    size_t       machine, process;
    xd_cpu_room(&machine, &process);
    return process > spare && bytes < (process - spare) / (size_t)g->world.host->size ? bytes : 0;
}

xd_status xd_ranks_room_open(xd_engine *g, xd_arena *a, size_t bytes, xd_status s, xd_err *e)
{
    const int *n = g->plan.deg.n, trades = n[XD_ULYSSES] * n[XD_RING] * n[XD_TENSOR] > 1 && g->world.host && g->world.host->size > 1;
    g->lent = trades && s != XD_ECOMM ? g->world.host->ops->lend(g->world.host, s == XD_OK ? lent_bytes(g, bytes) : 0) : NULL;
    if (trades && g->world.host->rank == 0)
        xd_log(XD_LOG_DEBUG, g->lent ? "ranks of this host read each other's memory"
                                     : "ranks of this host send each other messages");
    if (g->lent)
        xd_arena_init(a, g->lent, xd_pages_whole(bytes));
    return s == XD_OK && !g->lent ? xd_room_open(a, g->dev, bytes, e) : s;
}

void xd_ranks_room_close(xd_engine *g, xd_arena *a)
{
    if (!g->lent) {
        xd_room_close(a, g->dev);
        return;
    }
    g->world.host->ops->unlend(g->world.host, g->lent);
    g->lent = NULL;
    *a = (xd_arena){ 0 };
}

void xd_read_ahead(xd_engine *g, xd_part *p)
{
    xd_part_ahead(p, g->count, g->type, g->spare, &g->cancel);
}
