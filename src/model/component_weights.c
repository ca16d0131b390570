/* component_weights.c - opens, shares and closes the sets of weights of a component.
 *
 * To use another set of weights, a component exchanges two pointers. */
#include <stdlib.h>
#include <string.h>

#include "model/component.h"

xd_weights *xd_weights_keep(xd_weights *w)
{
    w->refs++;
    return w;
}

void xd_weights_release(xd_weights **w)
{
    if (*w && --(*w)->refs == 0) {
        xd_net_close(&(*w)->net);
        free(*w);
    }
    *w = NULL;
}

static void close_counts(xd_weight_counts **c)
{
    if (*c) {
        xd_net_close(&(*c)->shadow);
        free((*c)->blocks_of);
        free(*c);
    }
    *c = NULL;
}

/* ---- sets for other LoRA files --------------------------------------------------------------- */

xd_status xd_component_weights_open(xd_component_weights *v, const xd_component *p, xd_err *e)
{
    const xd_weights *of = p->w;
    xd_weights       *w = calloc(1, sizeof *w);
    *v = (xd_component_weights){ w, calloc(1, sizeof *v->count) };
    if (!w || !v->count) {
        free(w);
        free(v->count);
        *v = (xd_component_weights){ 0 };
        return xd_fail(e, XD_ENOMEM, "no memory for component %s", p->name);
    }
    *w = (xd_weights){ .refs = 1,
                       .src = of ? of->src : (xd_source){ 0 },
                       .tp = of ? of->tp : 1,
                       .tp_at = of ? of->tp_at : 0 };
    if (!of)
        return XD_OK;
    w->src.sums = NULL;
    w->blocks = of->blocks;
    w->stays = of->stays;
    w->streams = of->streams;
    xd_status s = xd_net_open(&w->net, p->def, p->config, p->dir, e);
    w->net.first = of->net.first;
    w->net.last = of->net.last;
    if (s != XD_OK) {
        xd_weights_release(&v->w);
        close_counts(&v->count);
    }
    return s;
}

void xd_component_swap(xd_component *p, xd_component_weights *v)
{
    xd_component_weights was = { p->w, p->count };
    xd_component_prefetch_end(p);
    p->w = v->w;
    p->count = v->count;
    *v = was;
}

void xd_component_weights_drop(xd_component_weights *v, xd_component *p)
{
    if (!v->w)
        return;
    xd_component_swap(p, v);
    xd_component_drop(p);
    xd_component_swap(p, v);
}

void xd_component_weights_close(xd_component_weights *v, xd_component *p)
{
    xd_component_weights_drop(v, p);
    xd_weights_release(&v->w);
    close_counts(&v->count);
}

/* ---- components that share weights ----------------------------------------------------------- */

xd_status xd_component_share(xd_component *p, xd_err *e)
{
    xd_weights_keep(p->w);
    p->count = calloc(1, sizeof *p->count);
    return p->count ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory for component %s", p->name);
}

void xd_component_follow(xd_component *p, const xd_component *of)
{
    if (p->w == of->w)
        return;
    xd_weights_release(&p->w);
    p->w = xd_weights_keep(of->w);
    xd_net_close(&p->count->shadow);
}

void xd_component_unshare(xd_component *p)
{
    xd_weights_release(&p->w);
    close_counts(&p->count);
}

xd_status xd_component_fork(xd_component *p, xd_err *e)
{
    const xd_weights *of = p->w;
    p->w = calloc(1, sizeof *p->w);
    p->count = calloc(1, sizeof *p->count);
    if (!p->w || !p->count)
        return xd_fail(e, XD_ENOMEM, "no memory for component %s", p->name);
    *p->w = (xd_weights){ .refs = 1,
                          .src = of->src,
                          .net = of->net,
                          .tp = 1,
                          .blocks = of->blocks,
                          .stays = of->stays,
                          .streams = of->streams };
    p->w->net.stream = NULL;
    p->w->net.layer = NULL;
    p->w->net.glob = NULL;
    p->w->net.first = 0;
    p->files = NULL;
    if (p->kind != XD_KIND_TEXT) /* text encoders keep the blocks that the recipe needs */
        p->w->net.last = of->net.nlayers;
    return XD_OK;
}

void xd_component_unfork(xd_component *p)
{
    free(p->w); /* `p` does not own the network */
    p->w = NULL;
    close_counts(&p->count);
}
