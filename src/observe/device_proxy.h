/* device_proxy.h - defines a proxy device, which wraps another (real) device. The tracing device
 * and the timing device are proxy devices.
 *
 * A proxy device forwards calls for memory and weight packing to the real device. The tracing
 * device and the timing device add their own kernels to the proxy. A new op needs one line in
 * XD_KERNELS. */
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

/* List of all kernels of a device, for code that is generated per kernel. For each kernel, the list
 * calls X with the kernel's member of xd_ops, the type of the kernel's arguments, and the kernel's
 * xd_op without the prefix XD_OP_. */
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

/* Opens proxy `w` of `real`: sets the proxy's tables of ops and memory functions, but adds no
 * kernels. close: function that closes the proxy. Fields of w->dev that the proxy does not need are
 * not changed. */
void xd_device_proxy_open(xd_device_proxy *w, xd_dev *real, void (*close)(xd_dev *d));

#endif
