/* shared_weights.c - opening the shared-memory block, and agreement on the outcome of loading */
#include "model/shared_weights.h"

#include "base/log.h"

#include "model/component.h"
#include "ranks/world.h"

xd_status xd_shared_weights_agree(const xd_component *p, xd_status mine, xd_err *e)
{
    return xd_world_agree_in(p->group.c, p->group.me, mine, e);
}

xd_status xd_shared_weights_open(xd_component *p, xd_status s, xd_err *e)
{
    int    first;
    size_t bytes = xd_component_held_bytes(p);
    if ((s = xd_shared_weights_agree(p, s, e)) != XD_OK)
        return s;
    char *base = p->group.c->ops->share(p->group.c, bytes + XD_ALIGN, &first);
    if (!base) {
        xd_log(XD_LOG_INFO, "%s: there is no shared memory of %s: every rank keeps weights of its "
               "own", p->name,
               xd_size_text((double)bytes).s);
        return XD_OK;
    }
    size_t lead = (XD_ALIGN - (uintptr_t)base % XD_ALIGN) % XD_ALIGN;   /* equal on all ranks  */
    xd_store_use_block(p->store, base + lead, bytes, p->group.c->rank, p->group.c->size);
    p->shared = 1;
    return XD_OK;
}

double xd_shared_weights_saved(const xd_component *p)
{
    int    shares = p->group.c && (!p->store || p->shared);
    size_t held = p->stream.streamed ? p->stream.resident + (size_t)p->stream.slots * p->stream.slot
                                     : p->packed;
    return shares ? (double)held * (1 - 1.0 / p->group.c->size) : 0;
}
