/* arenas.c - opens the scratch memory of a request, which is memory of the device or memory that
 * all ranks of a host map */

#include "pipeline/arenas.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/pages.h"
#include "model/component.h"
#include "pipeline/context.h"

xd_status xd_device_arena_open(xd_arena *a, xd_dev *dev, size_t bytes, xd_err *e)
{
    size_t cap = dev->counts ? (size_t)1 << 60 : xd_pages_round_up(bytes);
    void  *p = dev->mem->get(dev, cap ? cap : xd_page_bytes());
    if (!p)
        return xd_fail(e, XD_ENOMEM, "no memory for the %s of activations",
                       xd_size_text((double)bytes).s);
    xd_arena_init(a, p, cap ? cap : xd_page_bytes());
    return XD_OK;
}

void xd_device_arena_close(xd_arena *a, xd_dev *dev)
{
    if (a->base)
        dev->mem->put(dev, a->base, a->cap);
    *a = (xd_arena){ 0 };
}

/* Returns the size in bytes of this rank's window, which is memory that every rank of the host
 * maps. Returns 0 if the address space of the process is too small for the windows of all ranks. */
static size_t window_bytes(const xd_context *ctx, size_t bytes)
{
    const size_t spare = (size_t)16 << 20; /* address space kept free for message buffers */
    size_t       machine, process;
    xd_host_memory(&machine, &process);
    return process > spare && bytes < (process - spare) / (size_t)ctx->world.host->size ? bytes : 0;
}

xd_status xd_request_arena_open(xd_context *ctx, xd_arena *a, size_t bytes, xd_status s, xd_err *e)
{
    const int *n = ctx->plan.deg.n, trades = ctx->dev->host_memory &&
                                             n[XD_ULYSSES] * n[XD_RING] * n[XD_TENSOR] > 1 &&
                                             ctx->world.host && ctx->world.host->size > 1;
    ctx->window = trades && s != XD_ECOMM
                      ? ctx->world.host->ops->window_open(ctx->world.host,
                                                          s == XD_OK ? window_bytes(ctx, bytes) : 0)
                      : NULL;
    if (trades && ctx->world.host->rank == 0)
        xd_log(XD_LOG_DEBUG, ctx->window ? "ranks of this host read each other's memory"
                                         : "ranks of this host send each other messages");
    if (ctx->window)
        xd_arena_init(a, ctx->window, xd_pages_round_up(bytes));
    return s == XD_OK && !ctx->window ? xd_device_arena_open(a, ctx->dev, bytes, e) : s;
}

void xd_request_arena_close(xd_context *ctx, xd_arena *a)
{
    if (!ctx->window) {
        xd_device_arena_close(a, ctx->dev);
        return;
    }
    ctx->world.host->ops->window_close(ctx->world.host, ctx->window);
    ctx->window = NULL;
    *a = (xd_arena){ 0 };
}

void *xd_host_buffer(const xd_context *ctx, size_t bytes)
{
    return malloc(bytes && !ctx->dev->counts ? bytes : 1);
}

void xd_prefetch_component(xd_context *ctx, xd_component *p)
{
    xd_component_prefetch(p, ctx->count, ctx->type, ctx->spare, ctx->cancel);
}
