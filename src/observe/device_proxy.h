/* device_proxy.h - a device that wraps another one: base of the tracing and the timing device
 *
 * Memory and packing calls are forwarded to the real device. Each proxy has its own kernels. A new
 * op is one line of XD_KERNELS. */
#ifndef XD_OBSERVE_DEVICE_PROXY_H
#define XD_OBSERVE_DEVICE_PROXY_H

#include "backend/backend.h"

typedef struct xd_device_proxy { /* `dev` comes first: an xd_dev * is also an xd_device_proxy * */
    xd_dev     dev;
    xd_ops     ops;
    xd_dev_ops mem;
    xd_dev    *real;
} xd_device_proxy;

/* X(slot, type of the arguments, op) for every kernel of a device. */
#define XD_KERNELS(X)                           \
    X(gemm, xd_gemm, GEMM)                      \
    X(attn, xd_attn_args, ATTN)                 \
    X(norm, xd_norm, NORM)                      \
    X(moments, xd_moments, MOMENTS)             \
    X(gnorm, xd_gnorm, GNORM)                   \
    X(glu, xd_glu, GLU)                         \
    X(addmul, xd_addmul, ADDMUL)                \
    X(axpby, xd_axpby_args, AXPBY)              \
    X(conv, xd_conv, CONV)                      \
    X(resize, xd_resize, RESIZE)                \
    X(lookup, xd_lookup, LOOKUP)                \
    X(copy, xd_copy, COPY)                      \
    X(qknorm, xd_qknorm, QKNORM)                \
    X(rotate, xd_rotate, ROTATE)

/* Opens proxy `w` of `real`: sets its tables of ops and memory functions, without kernels. close:
 * function that closes the proxy. Other fields of w->dev do not change. */
void xd_device_proxy_open(xd_device_proxy *w, xd_dev *real, void (*close)(xd_dev *d));

#endif
