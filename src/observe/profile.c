/* profile.c - implements a proxy device that measures the time of each kernel of the real device */
#include "observe/profile.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

static void close_none(xd_dev *d)
{
    (void)d;
}

static void record_sample(xd_profile *p, xd_op op, double t0, int64_t begin)
{
    xd_counts c = { 0 };
    xd_stamps_end(&p->stamps, op, begin);
    if (!p->stamps.dev) {
        p->w.real->mem->sync(p->w.real, NULL);
        p->op[op].seconds += xd_now_s() - t0;
    } else if (xd_stamps_full(&p->stamps)) {
        xd_profile_collect(p);
    }
    xd_dev_counts(p->count, &c, 1);
    p->op[op].flops += c.flops;
    p->op[op].bytes += c.bytes;
    p->op[op].calls++;
}

#define TIMED(slot, type, op)                                                                      \
    static xd_status slot(xd_dev *d, xd_stream *s, const type *a, void *tmp)                       \
    {                                                                                              \
        xd_profile *p = d->priv;                                                                   \
        xd_counts old = { 0 };                                                                     \
        xd_dev_counts(p->count, &old, 1);                                                          \
        p->count->ops->slot(p->count, s, a, tmp);                                                  \
        double  t0 = xd_now_s();                                                                   \
        int64_t begin = xd_stamps_begin(&p->stamps);                                               \
        xd_status st = p->w.real->ops->slot(p->w.real, s, a, tmp);                                 \
        record_sample(p, XD_OP_##op, t0, begin);                                                   \
        return st;                                                                                 \
    }

XD_KERNELS(TIMED)

#define PUT(slot, type, op) p->w.ops.slot = slot;

void xd_profile_open(xd_profile *p, xd_dev *real, xd_dev *count)
{
    memset(p, 0, sizeof *p);
    p->count = count;
    xd_device_proxy_open(&p->w, real, close_none);
    XD_KERNELS(PUT)
    xd_stamps_open(&p->stamps, real);
    p->w.dev.priv = p;
    snprintf(p->w.dev.name, sizeof p->w.dev.name, "%.31s", real->name);
}

void xd_profile_close(xd_profile *p)
{
    xd_stamps_close(&p->stamps);
}

void xd_profile_collect(xd_profile *p)
{
    int n = xd_stamps_read(&p->stamps);
    for (int i = 0; i < n; i++)
        p->op[p->stamps.v[i].op].seconds +=
            1e-9 * (double)(p->stamps.v[i].end - p->stamps.v[i].begin);
}

void xd_profile_reset(xd_profile *p)
{
    xd_stamps_read(&p->stamps);
    memset(p->op, 0, sizeof p->op);
}

const char *xd_op_name(xd_op op)
{
    static const char *const names[] = {
        "gemm",       "attention", "norm",          "moments",     "group norm",
        "activation", "gated add", "axpby",         "convolution", "resize",
        "lookup",     "copy",      "norm and rope", "rotation",    "linear attention",
        "codes",
    };
    _Static_assert(sizeof names / sizeof *names == XD_NOPS, "an op has no name");
    return names[op];
}
