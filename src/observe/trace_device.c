/* trace_device.c - defines a proxy device that records the begin and end of each kernel.
 *
 * A kernel of an asynchronous device is recorded as two events: the call on the host, and the
 * execution on the device, whose time is read later (xd_trace_collect). The proxy copies the fields
 * of the real device, such as priv and name; only the table of ops differs. */
#include <stdlib.h>

#include "observe/device_proxy.h"
#include "observe/trace.h"

typedef struct noted { /* the proxy must be first: an xd_dev * is cast to noted * */
    xd_device_proxy w;
    /* recorder of events, which also queues the device's timestamps (t->device) */
    xd_trace       *t;
} noted;

static noted *device_of(xd_dev *d)
{
    return (noted *)(void *)d;
}

static void close_device(xd_dev *d)
{
    xd_stamps_close(&device_of(d)->t->device);
    xd_dev_close(&device_of(d)->w.real);
    free(device_of(d));
}

#define NOTED(slot, type, op)                                                                      \
    static xd_status slot(xd_dev *d, xd_stream *s, const type *a, void *tmp)                       \
    {                                                                                              \
        noted *n = device_of(d);                                                                   \
        int64_t t0 = xd_trace_now(n->t);                                                           \
        int64_t begin = n->t->on ? xd_stamps_begin(&n->t->device) : -1;                            \
        xd_status st = n->w.real->ops->slot(n->w.real, s, a, tmp);                                 \
        xd_stamps_end(&n->t->device, XD_OP_##op, begin);                                           \
        if (xd_stamps_full(&n->t->device))                                                         \
            xd_trace_collect(n->t);                                                                \
        xd_trace_add(n->t, XD_EV_OP, t0, XD_OP_##op, 0, 0);                                        \
        return st;                                                                                 \
    }

XD_KERNELS(NOTED)

#define PUT(slot, type, op) n->w.ops.slot = slot;

xd_status xd_trace_device(xd_trace *t, xd_dev **d, xd_err *e)
{
    noted *n = t ? calloc(1, sizeof *n) : NULL;
    if (!t)
        return XD_OK;
    if (!n)
        return xd_fail(e, XD_ENOMEM, "no memory for a trace");
    n->t = t;
    n->w.dev = **d;
    xd_device_proxy_open(&n->w, *d, close_device);
    XD_KERNELS(PUT)
    xd_stamps_open(&t->device, n->w.real);
    *d = &n->w.dev;
    return XD_OK;
}
