/* profile.c - a device that times another one */
#include "engine/profile.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

static xd_profile *of(xd_dev *d)
{
    return d->priv;
}

/* ---- memory and packing: passed on ---------------------------------------------------------- */

static void *get(xd_dev *d, size_t bytes)
{
    return of(d)->real->mem->get(of(d)->real, bytes);
}

static void put(xd_dev *d, void *p, size_t bytes)
{
    of(d)->real->mem->put(of(d)->real, p, bytes);
}

static void sync(xd_dev *d, xd_stream *s)
{
    of(d)->real->mem->sync(of(d)->real, s);
}

static void memory(xd_dev *d, size_t *available, size_t *total)
{
    of(d)->real->mem->memory(of(d)->real, available, total);
}

static void close_none(xd_dev *d)
{
    (void)d;
}

static size_t scratch(xd_dev *d, xd_op op, const void *args)
{
    return of(d)->real->ops->scratch(of(d)->real, op, args);
}

static size_t pack_size(xd_dev *d, xd_weight *w)
{
    return of(d)->real->ops->pack_size(of(d)->real, w);
}

static size_t pack_tmp(xd_dev *d, const xd_weight *w, xd_dtype src)
{
    return of(d)->real->ops->pack_tmp(of(d)->real, w, src);
}

static xd_status pack(xd_dev *d, xd_weight *w, xd_tensor src, void *tmp)
{
    return of(d)->real->ops->pack(of(d)->real, w, src, tmp);
}

/* ---- kernels: timed ------------------------------------------------------------------------- */

static void note(xd_profile *p, xd_op op, double t0)
{
    xd_counts c = { 0 };
    p->real->mem->sync(p->real, NULL);
    p->op[op].seconds += xd_now_s() - t0;
    xd_dev_counts(p->count, &c, 1);
    p->op[op].flops += c.flops;
    p->op[op].bytes += c.bytes;
    p->op[op].calls++;
}

#define TIMED(slot, type, op)                                                                     \
    static xd_status slot(xd_dev *d, xd_stream *s, const type *a, void *tmp)                       \
    {                                                                                              \
        xd_profile *p = of(d);                                                                     \
        xd_counts   old = { 0 };                                                                   \
        xd_dev_counts(p->count, &old, 1);                                                          \
        p->count->ops->slot(p->count, s, a, tmp);                                                  \
        double    t0 = xd_now_s();                                                                 \
        xd_status st = p->real->ops->slot(p->real, s, a, tmp);                                     \
        note(p, op, t0);                                                                           \
        return st;                                                                                 \
    }

TIMED(gemm, xd_gemm, XD_OP_GEMM)
TIMED(attn, xd_attn_args, XD_OP_ATTN)
TIMED(merge, xd_merge, XD_OP_MERGE)
TIMED(norm, xd_norm, XD_OP_NORM)
TIMED(moments, xd_moments, XD_OP_MOMENTS)
TIMED(gnorm, xd_gnorm, XD_OP_GNORM)
TIMED(glu, xd_glu, XD_OP_GLU)
TIMED(addmul, xd_addmul, XD_OP_ADDMUL)
TIMED(axpby, xd_axpby_args, XD_OP_AXPBY)
TIMED(conv, xd_conv, XD_OP_CONV)
TIMED(resize, xd_resize, XD_OP_RESIZE)
TIMED(lookup, xd_lookup, XD_OP_LOOKUP)
TIMED(copy, xd_copy, XD_OP_COPY)
TIMED(qknorm, xd_qknorm, XD_OP_QKNORM)

void xd_profile_open(xd_profile *p, xd_dev *real, xd_dev *count)
{
    memset(p, 0, sizeof *p);
    p->real = real;
    p->count = count;
    p->mem = (xd_dev_ops){ get, put, sync, memory, close_none };
    p->ops = (xd_ops){
        .name = real->ops->name, .scratch = scratch, .pack_size = pack_size, .pack_tmp = pack_tmp,
        .pack = pack, .gemm = gemm, .attn = attn, .merge = merge, .norm = norm,
        .moments = moments, .gnorm = gnorm, .glu = glu, .addmul = addmul, .axpby = axpby,
        .conv = conv, .resize = resize, .lookup = lookup, .copy = copy, .qknorm = qknorm,
    };
    p->dev.mem = &p->mem;
    p->dev.ops = &p->ops;
    p->dev.priv = p;
    snprintf(p->dev.name, sizeof p->dev.name, "%.31s", real->name);
}

void xd_profile_reset(xd_profile *p)
{
    memset(p->op, 0, sizeof p->op);
}

const char *xd_op_name(xd_op op)
{
    static const char *const names[XD_NOPS] = {
        "gemm", "attention", "merge", "norm", "moments", "group norm", "activation",
        "gated add", "axpby", "convolution", "resize", "lookup", "copy",
        "norm and rope",
    };
    return names[op];
}
