/* component_weights.c - inactive sets of weights of a component, and switching between sets */
#include <stdlib.h>
#include <string.h>

#include "model/component.h"

xd_status xd_component_weights_open(xd_component_weights *w, const xd_component *p, xd_err *e)
{
    memset(w, 0, sizeof *w);
    xd_status s = xd_net_open(&w->net, p->def, p->config, p->dir, e);
    if (s != XD_OK) {
        xd_net_close(&w->net);
        return s;
    }
    w->net.first = p->net.first;
    w->net.last = p->net.last;
    return s;
}

#define EXCHANGE(type, a, b) do { type own_ = a; a = b; b = own_; } while (0)

void xd_component_exchange(xd_component *p, xd_component_weights *w)
{
    char nonfinite[sizeof w->nonfinite];
    xd_component_prefetch_end(p);
    p->exchanges++;
    EXCHANGE(xd_net, p->net, w->net);
    EXCHANGE(xd_net, p->shadow, w->shadow);
    EXCHANGE(xd_store *, p->store, w->store);
    EXCHANGE(size_t, p->packed, w->packed);
    EXCHANGE(size_t, p->block_bytes, w->block_bytes);
    EXCHANGE(size_t, p->mapped, w->mapped);
    EXCHANGE(size_t *, p->blocks_of, w->blocks_of);
    EXCHANGE(size_t *, p->mapped_of, w->mapped_of);
    EXCHANGE(size_t, p->work, w->work);
    EXCHANGE(size_t, p->host_work, w->host_work);
    EXCHANGE(xd_stream_plan, p->stream, w->stream);
    EXCHANGE(xd_readahead *, p->ahead, w->ahead);
    EXCHANGE(size_t *, p->ahead_upto, w->ahead_upto);
    EXCHANGE(xd_weight_group, p->group, w->group);
    EXCHANGE(int, p->shared, w->shared);
    EXCHANGE(const xd_source_sums *, p->src.sums, w->sums);
    EXCHANGE(void *, p->src.sums_self, w->sums_self);
    memcpy(nonfinite, p->nonfinite, sizeof nonfinite);
    memcpy(p->nonfinite, w->nonfinite, sizeof nonfinite);
    memcpy(w->nonfinite, nonfinite, sizeof nonfinite);
}

void xd_component_weights_drop(xd_component_weights *w, xd_component *p)
{
    if (!w->net.def)
        return;
    xd_component_exchange(p, w);
    xd_component_drop(p);
    xd_component_exchange(p, w);
}

void xd_component_weights_close(xd_component_weights *w, xd_component *p)
{
    if (!w->net.def)
        return;
    xd_component_weights_drop(w, p);
    xd_net_close(&w->net);
    xd_net_close(&w->shadow);
    free(w->blocks_of);
    memset(w, 0, sizeof *w);
}
