/* device_proxy.h - defines a proxy device, which wraps another (real) device. Two proxy devices
 * exist: one records a trace (trace.h), the other measures time (profile.h).
 *
 * A proxy device forwards calls for memory and weight packing to the real device, and has its own
 * versions of the kernels. A new kernel operation needs one line in the macro XD_KERNELS. */
#ifndef XD_OBSERVE_DEVICE_PROXY_H
#define XD_OBSERVE_DEVICE_PROXY_H

#include "backend/backend.h"

/* `dev` is the first field, so that an xd_dev * may be cast to xd_device_proxy * */
typedef struct xd_device_proxy {
    xd_dev     dev;
    xd_ops     ops;
    xd_dev_ops mem;
    xd_dev    *real;
} xd_device_proxy;

/* Calls the macro X for each kernel of a device, with the kernel's member of xd_ops, the type of
 * its arguments, and its xd_op without the prefix XD_OP_. */
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
    X(rotate, xd_rotate, ROTATE)                \
    X(linattn, xd_linattn, LINATTN)          \
    X(code, xd_code, CODE)

/* Opens `w` as a proxy of the device `real`: sets the tables of operations and memory functions,
 * but adds no kernels. close: function that closes the proxy. Other fields of w->dev are not
 * changed. */
void xd_device_proxy_open(xd_device_proxy *w, xd_dev *real, void (*close)(xd_dev *d));

#endif
