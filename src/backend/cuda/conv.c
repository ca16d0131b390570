/* conv.c - computes convolutions of channels-last images on the GPU, as implicit GEMMs or, if
 * XDIT_CUDNN=all, by cuDNN */
#include "backend/cuda/cudnn_plans.h"

#include <string.h>

#include "base/minmax.h"

/* cuDNN is used only for at least this number of multiplications. */
#define LEAST_CUDNN_PRODUCTS (1 << 23)

static conv_args args_of(const xd_conv *a)
{
    const xd_weight *w = a->w;
    conv_args        b = {
        .out = a->out.p,
        .in = a->in.p,
        .w = w->p,
        .residual = a->residual.p,
        .bias = a->bias.p,
        .bias_type = xd_cuda_type(&a->bias),
        .T = (int)a->in.d[0],
        .Hin = (int)a->in.d[1],
        .Win = (int)a->in.d[2],
        .To = (int)a->out.d[0],
        .Ho = (int)a->out.d[1],
        .Wo = (int)a->out.d[2],
        .C = (int)w->in,
        .O = (int)w->out,
        .groups = w->groups > 1 ? w->groups : 1,
        .in_type = xd_cuda_type(&a->in),
        .out_type = xd_cuda_type(&a->out),
        .residual_type = xd_cuda_type(&a->residual),
    };
    for (int i = 0; i < 3; i++) {
        b.s_out[i] = a->out.s[i], b.s_in[i] = a->in.s[i];
        b.s_residual[i] = a->residual.p ? a->residual.s[i] : 0;
        b.kernel[i] = w->kernel[i], b.stride[i] = a->stride[i], b.lo[i] = a->lo[i];
    }
    return b;
}

/* ---- cuDNN -------------------------------------------------------------------------------- */

/* Returns 1 if all positions of t can begin at multiples of 16 bytes. */
static int has_aligned_strides(const xd_tensor *t)
{
    return t->s[0] % 8 == 0 && t->s[1] % 8 == 0 && t->s[2] % 8 == 0 && t->s[3] == 1;
}

/* Returns 1 if cuDNN may support this convolution, provided that all addresses are aligned. */
static int is_plain(const xd_conv *a)
{
    const xd_weight *w = a->w;
    const int64_t    taps = (int64_t)w->kernel[0] * w->kernel[1] * w->kernel[2];
    const int64_t    rows = a->out.d[0] * a->out.d[1] * a->out.d[2];
    return a->in.type != XD_F32 && a->out.type == a->in.type && w->groups <= 1 && w->in % 8 == 0 &&
           w->out % 8 == 0 && w->in > 0 && (!a->residual.p || a->residual.type == a->out.type) &&
           (!a->bias.p || a->bias.type == XD_F32 || a->bias.type == a->in.type) &&
           rows * taps * w->in * w->out >= LEAST_CUDNN_PRODUCTS && has_aligned_strides(&a->in) &&
           has_aligned_strides(&a->out) && (!a->residual.p || has_aligned_strides(&a->residual));
}

/* Writes the padding after axis i, and cuts the positions off that no window reads. */
static void set_axis(xd_cudnn_conv *x, int i)
{
    const int64_t read = (x->out[i] - 1) * x->stride[i] + x->kernel[i];
    x->in[i] = xd_min(x->in[i], read - x->lo[i]);
    x->hi[i] = (int32_t)(read - x->lo[i] - x->in[i]);
}

static xd_cudnn_shape shape_of(const xd_conv *a)
{
    const xd_weight *w = a->w;
    xd_cudnn_shape   shape;
    xd_cudnn_conv    x;
    memset(&shape, 0, sizeof shape);
    memset(&x, 0, sizeof x);
    for (int i = 0; i < 3; i++) {
        x.in[i] = a->in.d[i], x.out[i] = a->out.d[i];
        x.s_in[i] = a->in.s[i], x.s_out[i] = a->out.s[i];
        x.s_residual[i] = a->residual.p ? a->residual.s[i] : 0;
        x.kernel[i] = w->kernel[i], x.stride[i] = a->stride[i], x.lo[i] = a->lo[i];
        set_axis(&x, i);
    }
    /* frames that are computed separately are the images of a batch */
    x.axes = x.kernel[0] == 1 && x.stride[0] == 1 && !x.lo[0] && !x.hi[0] ? 2 : 3;
    x.C = (int32_t)w->in, x.O = (int32_t)w->out, x.type = (int32_t)a->in.type;
    x.bias = !a->bias.p ? 0 : a->bias.type == XD_F32 ? 1 : 2;
    x.residual = a->residual.p != NULL;
    shape.op = XD_OP_CONV;
    memcpy(&shape.of.conv, &x, sizeof x);
    return shape;
}

/* Returns 1 if each axis has positions: a window may lie in the padding as a whole. */
static int has_positions(const xd_cudnn_shape *shape)
{
    const int64_t *d = shape->of.conv.in;
    return d[0] > 0 && d[1] > 0 && d[2] > 0;
}

void xd_cuda_conv_expect(xd_cuda_dev *c, const xd_conv *a)
{
    struct xd_cuda_cudnn *x;
    if (!c || !is_plain(a) || !(x = xd_cuda_cudnn_for(c, XD_OP_CONV)))
        return;
    const xd_cudnn_shape shape = shape_of(a);
    if (has_positions(&shape))
        xd_cudnn_expect(x, &shape);
}

/* Computes a convolution by cuDNN. Returns 0 if cuDNN is not used or does not support the shape. */
static int run_cudnn(xd_cuda_dev *c, const xd_conv *a, xd_status *s)
{
    struct xd_cuda_cudnn *x;
    if (!is_plain(a) || !xd_cuda_aligned(&a->in, 0) || !xd_cuda_aligned(&a->out, 0) ||
        !xd_cuda_aligned(&a->residual, 0) || !xd_cuda_aligned(&a->bias, 0) ||
        !(x = xd_cuda_cudnn_for(c, XD_OP_CONV)))
        return 0;
    const xd_cudnn_shape shape = shape_of(a);
    xd_cudnn_known      *plan = has_positions(&shape) ? xd_cudnn_wait(x, &shape) : NULL;
    xd_cudnn_operands    o = {
        .in = a->in.p, .w = a->w->p, .bias = a->bias.p, .residual = a->residual.p, .out = a->out.p
    };
    return plan && xd_cudnn_run(x, plan, &o, "convolution of cuDNN", s);
}

/* ---- calls -------------------------------------------------------------------------------- */

xd_status xd_cuda_conv(xd_dev *d, xd_stream *s, const xd_conv *a, void *tmp)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    xd_status    st = xd_conv_check(a, XD_CUDA_TYPES);
    (void)s, (void)tmp;
    if (st != XD_OK || run_cudnn(c, a, &st))
        return st;
    conv_args b = args_of(a);
    int64_t   rows = a->out.d[0] * a->out.d[1] * a->out.d[2];
    int       tensor_cores = b.in_type != XD_F32 && b.groups == 1 && b.C > 0 && b.C % 8 == 0;
    for (int i = 0; i < 3; i++)
        tensor_cores = tensor_cores && xd_cuda_aligned(&a->in, b.s_in[i]);
    b.wide = xd_cuda_aligned(&a->bias, 0) && b.O % 8 == 0;
    for (int i = 0; i < 3; i++)
        b.wide = b.wide && xd_cuda_aligned(&a->out, b.s_out[i]) &&
                 xd_cuda_aligned(&a->residual, b.s_residual[i]);
    if (tensor_cores)
        return xd_cuda_launch(c, b.in_type == XD_F16 ? XD_K_conv_f16 : XD_K_conv,
                              xd_ceil_div(rows, 128), xd_ceil_div(b.O, 128), 256,
                              XD_CUDA_CONV_SHARED, &b);
    return xd_cuda_launch(c, XD_K_conv_any, xd_ceil_div(rows * b.O, 128), 1, 128, 0, &b);
}
