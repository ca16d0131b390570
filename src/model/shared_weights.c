/* shared_weights.c - allocates memory for weights that several ranks share, and checks that all of
 * these ranks have loaded the weights */
#include "model/shared_weights.h"

#include "base/log.h"
#include "base/pages.h"

#include "model/component.h"
#include "ranks/world.h"

xd_status xd_shared_weights_agree(const xd_component *p, xd_status mine, xd_err *e)
{
    return xd_world_agree_in(p->w->group.c, p->w->group.me, mine, e);
}

/* Pins the host copy of the streamed blocks on all ranks of the share group or, if one of them
 * fails, on none. */
static xd_status open_copy(xd_component *p, xd_dev *dev, xd_err *e)
{
    int       first;
    size_t    bytes = xd_pages_round_up(p->w->stream.host);
    xd_err    why = { 0 };
    char     *copy = p->w->group.c->ops->share(p->w->group.c, bytes, &first);
    xd_status pinned = copy          ? dev->mem->pin_pages(dev, copy, bytes)
                       : dev->counts ? XD_OK
                                     : XD_ENOMEM;
    if (pinned != XD_OK)
        xd_fail(&why, XD_ENOMEM, "no pinned memory");
    xd_status s = xd_shared_weights_agree(p, why.code, &why);
    if (s == XD_OK) {
        p->w->group.copy = copy;
        p->w->group.dev = dev;
        return XD_OK;
    }
    if (pinned == XD_OK)
        dev->mem->unpin_pages(dev, copy);
    if (s != XD_ENOMEM)
        return xd_fail(e, s, "%s", why.msg);
    xd_log(XD_LOG_INFO,
           "%s: cannot allocate %s of shared and pinned memory for streamed blocks: "
           "every rank keeps its own copy",
           p->name, xd_size_text((double)bytes).s);
    return XD_OK;
}

void xd_shared_weights_close(xd_component *p)
{
    xd_dev *dev = p->w->group.dev;
    if (p->w->group.copy)
        dev->mem->unpin_pages(dev, p->w->group.copy);
    xd_comm_close(&p->w->group.c);
    p->w->group = (xd_weight_group){ 0 };
    p->w->shared = 0;
}

xd_status xd_shared_weights_open(xd_component *p, xd_dev *dev, xd_status s, xd_err *e)
{
    int    first;
    size_t bytes = xd_component_held_bytes(p);
    if ((s = xd_shared_weights_agree(p, s, e)) != XD_OK)
        return s;
    if (p->w->group.streams)
        return open_copy(p, dev, e);
    char *base = p->w->group.c->ops->share(p->w->group.c, bytes + XD_ALIGN, &first);
    if (!base) {
        xd_log(XD_LOG_INFO,
               "%s: there is no shared memory of %s: every rank keeps weights of its "
               "own",
               p->name, xd_size_text((double)bytes).s);
        return XD_OK;
    }
    size_t lead = (XD_ALIGN - (uintptr_t)base % XD_ALIGN) % XD_ALIGN; /* the same on all ranks */
    xd_store_use_block(p->w->store, base + lead, bytes, p->w->group.c->rank, p->w->group.c->size);
    p->w->shared = 1;
    return XD_OK;
}

double xd_shared_weights_saved_bytes(const xd_component *p)
{
    const xd_weights *w = p->w;
    if (!w)
        return 0;
    int    shares = w->group.c && !w->group.streams && (!w->store || w->shared);
    size_t held = w->stream.streamed ? w->stream.resident + (size_t)w->stream.slots * w->stream.slot
                                     : p->count->packed;
    return shares ? (double)held * (1 - 1.0 / w->group.c->size) : 0;
}
