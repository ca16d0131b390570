/* registry.c - lists the parallel methods. The hooks of the methods run in the order of the
 * list. */
#include "parallel/method.h"

#include <stdint.h>
#include <string.h>

extern const xd_method xd_method_ulysses, xd_method_stale, xd_method_displaced, xd_method_ring,
    xd_method_prefix, xd_method_halo, xd_method_tensor, xd_method_window, xd_method_references,
    xd_method_fast_attn, xd_method_groups, xd_method_alone, xd_method_linear, xd_method_near;

const xd_method *const xd_methods[] = {
    &xd_method_fast_attn,  /* DiTFastAttn: reuses attention outputs of earlier steps or passes */
    &xd_method_ulysses,    /* Ulysses: exchanges tokens for heads, so later hooks get fewer heads */
    &xd_method_stale,      /* PipeFusion: adds K, V of the other patches */
    &xd_method_references, /* without PipeFusion: adds stored K, V of reference images */
    &xd_method_displaced,  /* DistriFusion: adds other ranks' K, V of the last step */
    &xd_method_ring,       /* ring attention: adds the K, V of the other ring ranks */
    &xd_method_prefix,     /* without ring attention: adds K, V that every rank has */
    &xd_method_halo,       /* parallel VAE: one band of image rows for each rank */
    &xd_method_tensor,     /* sums the partial results of tensor shards */
    &xd_method_alone,      /* limits reference images to their own K, V */
    &xd_method_window,     /* local attention: tiles of queries attend to boxes of keys */
    &xd_method_groups,     /* attention within frames, or over the frames at one place */
    &xd_method_linear,     /* linear attention: sums over ranks, and of other patches */
    &xd_method_near,       /* convolutions over tokens: rows of neighbouring tokens */
    NULL,                  /* end of the list; the attention kernel is called last */
};

xd_status xd_method_stack_open_of(xd_method_stack *c, const xd_method *const *methods,
                                  const xd_method_args *a, xd_err *e)
{
    int n = 0;
    memset(c, 0, sizeof *c);
    c->head = &xd_hooks_local;
    while (methods[n])
        n++;
    if (n > XD_MAXMETHODS)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "there are %d parallel methods for attention; at most "
                       "%d can be stacked (XD_MAXMETHODS)",
                       n, XD_MAXMETHODS);
    c->methods = methods;
    for (int i = n - 1; i >= 0; i--) {
        xd_status s = methods[i]->open(a, c->head, &c->open[i], e);
        if (s != XD_OK) {
            xd_method_stack_close(c);
            return s;
        }
        if (c->open[i]) {
            c->head = c->open[i];
            c->bytes += c->open[i]->bytes;
        }
    }
    return XD_OK;
}

xd_status xd_method_stack_open(xd_method_stack *c, const xd_method_args *a, xd_err *e)
{
    return xd_method_stack_open_of(c, xd_methods, a, e);
}

void xd_method_stack_open_alone(xd_method_stack *c, xd_exec *x, int grouped, int prefix)
{
    static const xd_topo one = { .deg = { { 1, 1, 1, 1, 1, 1 } } };
    xd_err               e = { 0 };
    xd_method_args       a = { .what = XD_FOR_DIT,
                               .topo = &one,
                               .lay = x->lay,
                               .dev = x->dev,
                               .act = x->act,
                               .npass = 1,
                               .prefix = prefix,
                               .grouped = grouped };
    if (xd_method_stack_open(c, &a, &e) != XD_OK)
        xd_exec_fail(x, e.code, "%s", e.msg);
    x->hooks = c->head;
}

void xd_method_stack_close(xd_method_stack *c)
{
    for (int i = 0; c->methods && c->methods[i]; i++)
        if (c->open[i])
            c->methods[i]->close(c->open[i]);
    memset(c, 0, sizeof *c);
    c->head = &xd_hooks_local;
}

void *xd_failed_buffer(xd_exec *x, void *p, size_t bytes, xd_comm *c)
{
    uintptr_t from = (uintptr_t)x->tmp->base, at = (uintptr_t)p;
    if (at >= from && at + bytes <= from + x->tmp->cap)
        return p;
    if (bytes > x->tmp->cap) {
        xd_fail(c->err, x->err.code, "%s", x->err.msg);
        c->ops->abort(c, 1);
    }
    return x->tmp->base;
}
