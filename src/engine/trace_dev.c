/* trace_dev.c - a device that notes when each kernel of another one began and ended.
 *
 * It is the real device to whoever looks into it (same priv, same name); only the table differs. */
#include <stdlib.h>

#include "engine/trace.h"

typedef struct noted {          /* the device comes first: a pointer to one is one to the other */
    xd_dev     dev;
    xd_ops     ops;
    xd_dev_ops mem;
    xd_dev    *real;
    xd_trace  *t;
} noted;

static noted *of(xd_dev *d)
{
    return (noted *)(void *)d;
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

static void close(xd_dev *d)
{
    xd_dev_close(&of(d)->real);
    free(of(d));
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

/* ---- kernels: noted ------------------------------------------------------------------------- */

#define NOTED(slot, type, op)                                                                     \
    static xd_status slot(xd_dev *d, xd_stream *s, const type *a, void *tmp)                       \
    {                                                                                              \
        noted    *n = of(d);                                                                       \
        int64_t   t0 = xd_trace_now(n->t);                                                         \
        xd_status st = n->real->ops->slot(n->real, s, a, tmp);                                     \
        xd_trace_add(n->t, XD_EV_OP, t0, op, 0, 0);                                                \
        return st;                                                                                 \
    }

NOTED(gemm, xd_gemm, XD_OP_GEMM)
NOTED(attn, xd_attn_args, XD_OP_ATTN)
NOTED(merge, xd_merge, XD_OP_MERGE)
NOTED(norm, xd_norm, XD_OP_NORM)
NOTED(moments, xd_moments, XD_OP_MOMENTS)
NOTED(gnorm, xd_gnorm, XD_OP_GNORM)
NOTED(glu, xd_glu, XD_OP_GLU)
NOTED(addmul, xd_addmul, XD_OP_ADDMUL)
NOTED(axpby, xd_axpby_args, XD_OP_AXPBY)
NOTED(conv, xd_conv, XD_OP_CONV)
NOTED(resize, xd_resize, XD_OP_RESIZE)
NOTED(lookup, xd_lookup, XD_OP_LOOKUP)
NOTED(copy, xd_copy, XD_OP_COPY)
NOTED(qknorm, xd_qknorm, XD_OP_QKNORM)
_Static_assert(XD_OP_QKNORM == XD_NOPS - 1, "a new op is noted here and put into the table below");

xd_status xd_trace_dev(xd_trace *t, xd_dev **d, xd_err *e)
{
    noted *n = t ? calloc(1, sizeof *n) : NULL;
    if (!t)
        return XD_OK;
    if (!n)
        return xd_fail(e, XD_ENOMEM, "no memory for a trace");
    n->dev = **d;
    n->real = *d;
    n->t = t;
    n->mem = (xd_dev_ops){ get, put, sync, memory, close };
    n->ops = (xd_ops){
        .name = (*d)->ops->name, .scratch = scratch, .pack_size = pack_size, .pack_tmp = pack_tmp,
        .pack = pack, .gemm = gemm, .attn = attn, .merge = merge, .norm = norm,
        .moments = moments, .gnorm = gnorm, .glu = glu, .addmul = addmul, .axpby = axpby,
        .conv = conv, .resize = resize, .lookup = lookup, .copy = copy,
        .qknorm = qknorm,
    };
    n->dev.mem = &n->mem;
    n->dev.ops = &n->ops;
    *d = &n->dev;
    return XD_OK;
}
