/* slow_device.c - defines a proxy device that simulates a slower device: each kernel busy-waits
 * after its work */
#include "observe/slow_device.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "observe/device_proxy.h"

typedef struct slowed { /* the proxy must be first: an xd_dev * is cast to slowed * */
    xd_device_proxy w;
    double          factor;
    long            from, to; /* kernels [from, to) are slow */
    long            kernels;  /* number of kernels so far */
} slowed;

static slowed *device_of(xd_dev *d)
{
    return (slowed *)(void *)d;
}

static void close_device(xd_dev *d)
{
    xd_dev_close(&device_of(d)->w.real);
    free(device_of(d));
}

static void wait_from(slowed *n, double t0)
{
    double end = t0 + n->factor * (xd_now_s() - t0);
    long   i = n->kernels++;
    while (i >= n->from && i < n->to && xd_now_s() < end)
        ;
}

#define SLOWED(slot, type, op)                                                                     \
    static xd_status slot(xd_dev *d, xd_stream *s, const type *a, void *tmp)                       \
    {                                                                                              \
        slowed *n = device_of(d);                                                                  \
        double t0 = xd_now_s();                                                                    \
        xd_status st = n->w.real->ops->slot(n->w.real, s, a, tmp);                                 \
        wait_from(n, t0);                                                                          \
        return st;                                                                                 \
    }

XD_KERNELS(SLOWED)

#define PUT(slot, type, op) n->w.ops.slot = slot;

/* Returns the factor by which a rank is slowed down, from a list such as "1:2,3:1.5". Returns 1 if
 * the list does not contain the rank. With "1:2:500:900", only kernels 500 to 899 of rank 1 are
 * slow. */
static double factor_of(const char *list, int rank, slowed *n)
{
    for (const char *p = list; p && *p;) {
        char  *end;
        long   r = strtol(p, &end, 10);
        double f = *end == ':' ? strtod(end + 1, &end) : 1;
        n->from = *end == ':' ? strtol(end + 1, &end, 10) : 0;
        n->to = *end == ':' ? strtol(end + 1, &end, 10) : LONG_MAX;
        if (r == rank)
            return f;
        p = end + strcspn(end, ",");
        p += *p == ',';
    }
    return 1;
}

xd_status xd_slow_device(xd_dev **d, int rank, xd_err *e)
{
    slowed how = { .kernels = 0 }, *n;
    double f = factor_of(getenv("XDIT_SLOW"), rank, &how);
    if (!(f > 1))
        return XD_OK;
    if (!(n = calloc(1, sizeof *n)))
        return xd_fail(e, XD_ENOMEM, "no memory for a slow device");
    *n = how;
    n->factor = f;
    n->w.dev = **d;
    n->w.dev.graphs = NULL; /* no CUDA graphs: the proxy could not slow down their kernels */
    xd_device_proxy_open(&n->w, *d, close_device);
    XD_KERNELS(PUT)
    *d = &n->w.dev;
    return XD_OK;
}
