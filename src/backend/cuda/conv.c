/* conv.c - computes convolutions of channels-last images as implicit GEMMs on the GPU */
#include "backend/cuda/cuda.h"

#include "base/minmax.h"

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

xd_status xd_cuda_conv(xd_dev *d, xd_stream *s, const xd_conv *a, void *tmp)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    xd_status    st = xd_conv_check(a, XD_CUDA_TYPES);
    (void)s, (void)tmp;
    if (st != XD_OK)
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
