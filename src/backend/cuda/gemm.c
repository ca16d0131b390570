/* gemm.c - computes linear layers by cuBLASLt. The epilogue of a layer is computed by cuBLASLt if
 * it supports the epilogue, else by a kernel of our own.
 *
 * Rows of a weight are padded with zeros to `wide` elements (weights.c). An input that is narrower,
 * unaligned or of another type is first copied to rows of `wide` elements. Matrix products that
 * cuBLASLt does not support are computed by our own kernels. */
#include "backend/cuda/cuda.h"

#include "backend/cuda/load.h"
#include "base/minmax.h"

/* Offsets in bytes of the buffers in a GEMM's scratch. */
typedef struct places {
    int64_t wide;
    int     copies; /* 1: the input is copied to zero-padded rows */
    size_t  in, sx, w, acc, end;
} places;

/* Returns 1 if the weight's elements must be converted to the type of the input before the
 * multiply. */
static int is_widened(const xd_weight *w)
{
    return w->type == XD_F8E4M3 || (w->type == XD_I8 && w->floats);
}

/* Returns 1 if the input is already e4m3. */
static int is_narrow(const xd_gemm *a)
{
    return a->in.type == XD_F8E4M3;
}

/* Returns 1 if the input is already e4m3 or has to be quantized to e4m3. */
static int wants_fp8(const xd_gemm *a)
{
    return is_narrow(a) || (a->fp8 && a->w->type == XD_F8E4M3 && a->in.type != XD_F32);
}

/* Returns the type in which an input is multiplied if the product is not computed in fp8. */
static xd_dtype wide_type(const xd_gemm *a)
{
    return is_narrow(a) ? XD_BF16 : a->in.type;
}

/* Returns the type of both operands in the matrix product of a GEMM. */
static xd_dtype product_type(const xd_gemm *a, int fp8)
{
    return !fp8 && is_widened(a->w) ? wide_type(a) : a->w->type;
}

static places places_of(const xd_gemm *a, int fp8)
{
    places   p = { .wide = xd_cuda_weight_stride(a->w) };
    int64_t  n = a->out.d[0];
    xd_dtype t = product_type(a, fp8);
    p.copies = a->in.type != t || a->in.d[1] != p.wide || !xd_cuda_aligned(&a->in, a->in.s[0]);
    p.sx = xd_cuda_after(p.in, p.copies ? n * p.wide : 0, xd_dtype_size(t));
    p.w = xd_cuda_after(p.sx, t == XD_I8 || fp8 ? n : 0, sizeof(float));
    p.acc = xd_cuda_after(p.w, t == a->w->type ? 0 : a->w->out * p.wide, xd_dtype_size(t));
    p.end = xd_cuda_after(p.acc, n * a->w->out, sizeof(float));
    return p;
}

size_t xd_cuda_gemm_scratch(const xd_gemm *a)
{
    size_t usual = places_of(a, 0).end;
    return wants_fp8(a) ? xd_max_size(usual, places_of(a, 1).end) : usual;
}

/* ---- operands ----------------------------------------------------------------------------- */

/* Sets *in to the input, converted to the type of the weight and padded to the weight's width. */
static xd_status padded_input(xd_cuda_dev *c, const xd_gemm *a, const places *p, char *tmp,
                              xd_tensor *in)
{
    int64_t n = a->in.d[0], I = a->in.d[1];
    if (!p->copies) {
        *in = a->in;
        return XD_OK;
    }
    *in = xd_view2(tmp + p->in, product_type(a, 0), n, p->wide);
    CUresult r = I < p->wide ? c->cu->cuMemsetD8Async((CUdeviceptr)(uintptr_t)in->p, 0,
                                                      xd_bytes(*in), c->stream)
                             : XD_CU_SUCCESS;
    if (r != XD_CU_SUCCESS)
        return xd_cuda_check("cuMemsetD8Async", r);
    if (is_narrow(a)) {
        widen_args b = { .out = in->p, .in = a->in.p, .n = n * I, .out_type = XD_BF16 };
        return xd_cuda_launch_each(c, XD_K_widen, b.n / 16, &b);
    }
    xd_tensor part = xd_cols(*in, 0, I);
    return xd_cuda_copy_view(c, &part, &a->in);
}

/* Sets *in to the input, quantized to the weight's 8-bit type. The scales of the input's rows are
 * written to the scratch at p->sx. */
static xd_status narrow_input(xd_cuda_dev *c, const xd_gemm *a, const places *p, char *tmp,
                              xd_tensor *in)
{
    int64_t n = a->in.d[0];
    *in = a->in;
    if (is_narrow(a))
        return XD_OK;
    *in = xd_view2(tmp + p->in, a->w->type, n, p->wide);
    integers_args b = {
        .q = in->p,
        .sx = (float *)(void *)(tmp + p->sx),
        .in = a->in.p,
        .n = n,
        .C = a->in.d[1],
        .wide = p->wide,
        .s_in = a->in.s[0],
        .in_type = xd_cuda_type(&a->in),
        .e4m3 = a->w->type == XD_F8E4M3,
    };
    if (a->in.type != XD_F32 && b.C % 8 == 0 && b.wide <= 16384 && xd_cuda_aligned(&a->in, b.s_in))
        return xd_cuda_launch(c, XD_K_integers_wide, n, 1, 256, 64, &b);
    return xd_cuda_launch(c, XD_K_integers, xd_ceil_div(n, 4), 1, 128, 0, &b);
}

/* Sets *w to the weight, converted to the type of the input. */
static xd_status widened_weight(xd_cuda_dev *c, const xd_gemm *a, const places *p, char *tmp,
                                const void **w)
{
    widen_args b = { .out = tmp + p->w,
                     .in = a->w->p,
                     .n = a->w->out * p->wide,
                     .out_type = (int)wide_type(a),
                     .integers = a->w->type == XD_I8 };
    *w = b.out;
    return xd_cuda_launch_each(c, XD_K_widen, b.n / 16, &b);
}

/* ---- products ----------------------------------------------------------------------------- */

/* Computes out = residual + gate * act(acc + bias). The sums `acc` are F32, or I32 if integers were
 * multiplied. The sums are first multiplied by the scales of the input's rows, sx, and of the
 * weight's rows, sw. `sx` or `sw` is NULL if the sums are already multiplied by these scales. */
static xd_status run_epilogue(xd_cuda_dev *c, const xd_gemm *a, const xd_tensor *acc,
                              const float *sx, const float *sw)
{
    int64_t       n = a->out.d[0], O = a->w->out;
    epilogue_args b = {
        .out = a->out.p,
        .acc = acc->p,
        .residual = a->residual.p,
        .bias = a->bias.p,
        .gate = a->gate.p,
        .sx = sx,
        .sw = sw,
        .n = n,
        .O = O,
        .s_out = a->out.s[0],
        .s_acc = O,
        .s_residual = a->residual.p ? a->residual.s[0] : 0,
        .out_type = xd_cuda_type(&a->out),
        .residual_type = xd_cuda_type(&a->residual),
        .bias_type = xd_cuda_type(&a->bias),
        .act = (int)a->act,
        .integers = acc->type == XD_I32,
    };
    int wide = !b.integers && O % 8 == 0 && xd_cuda_aligned(&a->bias, 0) &&
               xd_cuda_aligned(&a->out, b.s_out) && xd_cuda_aligned(&a->residual, b.s_residual);
    return xd_cuda_launch_each(c, wide ? XD_K_epilogue_wide : XD_K_epilogue,
                               wide ? n * O / 8 : n * O, &b);
}

/* Computes a GEMM with our convolution kernels. The rows of the GEMM are the pixels of an image of
 * one row. If `sums` is not NULL, the F32 product is written to `sums` without the epilogue. */
static xd_status own_product(xd_cuda_dev *c, const xd_gemm *a, const xd_tensor *in, const void *w,
                             float *sums)
{
    int64_t   n = in->d[0], O = a->w->out;
    conv_args b = {
        .out = sums ? (void *)sums : a->out.p,
        .in = in->p,
        .w = w,
        .s_out = { 0, 0, sums ? O : a->out.s[0] },
        .s_in = { 0, 0, in->s[0] },
        .T = 1,
        .Hin = 1,
        .Win = (int)n,
        .To = 1,
        .Ho = 1,
        .Wo = (int)n,
        .C = (int)in->d[1],
        .O = (int)O,
        .kernel = { 1, 1, 1 },
        .stride = { 1, 1, 1 },
        .groups = 1,
        .in_type = xd_cuda_type(in),
        .out_type = sums ? XD_F32 : xd_cuda_type(&a->out),
    };
    if (!sums) {
        b.residual = a->residual.p, b.bias = a->bias.p, b.gate = a->gate.p;
        b.s_residual[2] = a->residual.p ? a->residual.s[0] : 0;
        b.residual_type = xd_cuda_type(&a->residual), b.bias_type = xd_cuda_type(&a->bias);
        b.act = (int)a->act;
    }
    b.wide = O % 8 == 0 && (sums || (xd_cuda_aligned(&a->out, b.s_out[2]) &&
                                     xd_cuda_aligned(&a->bias, 0) && xd_cuda_aligned(&a->gate, 0) &&
                                     xd_cuda_aligned(&a->residual, b.s_residual[2])));
    if (b.in_type != XD_F32 && b.C > 0)
        return xd_cuda_launch(c, b.in_type == XD_F16 ? XD_K_conv_f16 : XD_K_conv,
                              xd_ceil_div(n, 128), xd_ceil_div(O, 128), 256, XD_CUDA_CONV_SHARED,
                              &b);
    return xd_cuda_launch(c, XD_K_conv_any, xd_ceil_div(n * O, 128), 1, 128, 0, &b);
}

/* Returns 1 if cuBLASLt's approximate GELU may be used, because rounding the results to 16 bits
 * hides the error of the approximation. */
static int takes_gelu(const xd_gemm *a)
{
    return a->act == XD_GELU_TANH && xd_dtype_size(a->out.type) == 2;
}

static xd_status float_gemm(xd_cuda_dev *c, const xd_gemm *a, const places *p, char *tmp)
{
    int         scaled = is_widened(a->w);
    int         whole = !a->gate.p && !a->residual.p && !scaled;
    const void *w = a->w->p;
    xd_tensor   in;
    xd_status   s = padded_input(c, a, p, tmp, &in);
    if (s == XD_OK && scaled)
        s = widened_weight(c, a, p, tmp, &w);
    if (s != XD_OK)
        return s;
    const float    *sx = a->sx.p, *sw = xd_cuda_weight_scales(a->w);
    xd_cuda_product q = { .out = a->out,
                          .in = in,
                          .w = w,
                          .s_w = p->wide,
                          .bias = a->bias.p,
                          .bias_type = a->bias.type,
                          .gelu = takes_gelu(a) };
    if (p->wide && whole && (a->act == XD_NONE || q.gelu) && xd_cuda_multiply(c, &q))
        return XD_OK;
    q.out = xd_view2(tmp + p->acc, XD_F32, a->out.d[0], a->w->out);
    q.bias = NULL, q.gelu = 0;
    if (p->wide && xd_cuda_multiply(c, &q))
        return run_epilogue(c, a, &q.out, sx, sw);
    if (!scaled)
        return own_product(c, a, &in, w, NULL);
    s = own_product(c, a, &in, w, q.out.p);
    return s == XD_OK ? run_epilogue(c, a, &q.out, sx, sw) : s;
}

static xd_status integer_gemm(xd_cuda_dev *c, const xd_gemm *a, const places *p, char *tmp)
{
    xd_tensor in;
    xd_status s = narrow_input(c, a, p, tmp, &in);
    if (s != XD_OK)
        return s;
    xd_cuda_product q = { .out = xd_view2(tmp + p->acc, XD_I32, a->out.d[0], a->w->out),
                          .in = in,
                          .w = a->w->p,
                          .s_w = p->wide };
    if (!p->wide || !xd_cuda_multiply(c, &q)) {
        integer_product_args b = {
            .sums = q.out.p, .in = in.p, .w = a->w->p, .n = in.d[0], .O = a->w->out, .wide = p->wide
        };
        s = xd_cuda_launch_each(c, XD_K_integer_product, b.n * b.O, &b);
    }
    return s == XD_OK ? run_epilogue(c, a, &q.out, (const float *)(void *)(tmp + p->sx),
                                     xd_cuda_weight_scales(a->w))
                      : s;
}

/* Computes an fp8 GEMM. cuBLASLt computes as much of the GEMM as it supports: the complete linear
 * layer, or the matrix product with row scales, or the product alone. Returns 0 if cuBLASLt
 * supports none of these computations. */
static int fp8_gemm(xd_cuda_dev *c, const xd_gemm *a, const places *p, char *tmp, xd_status *s)
{
    const float *sw = xd_cuda_weight_scales(a->w),
                *sx = is_narrow(a) ? a->sx.p : (const void *)(tmp + p->sx);
    const int whole = !a->gate.p && !a->residual.p;
    xd_tensor in;
    if (!p->wide || (*s = narrow_input(c, a, p, tmp, &in)) != XD_OK)
        return p->wide != 0;
    xd_cuda_product q = { .out = a->out,
                          .in = in,
                          .w = a->w->p,
                          .s_w = p->wide,
                          .bias = a->bias.p,
                          .bias_type = a->bias.type,
                          .sx = sx,
                          .sw = sw,
                          .gelu = takes_gelu(a) };
    if (whole && (a->act == XD_NONE || q.gelu) && xd_cuda_multiply(c, &q))
        return 1;
    q.out = xd_view2(tmp + p->acc, XD_F32, a->out.d[0], a->w->out);
    q.bias = NULL, q.gelu = 0;
    if (xd_cuda_multiply(c, &q)) {
        *s = run_epilogue(c, a, &q.out, NULL, NULL);
        return 1;
    }
    q.sx = q.sw = NULL;
    if (!xd_cuda_multiply(c, &q))
        return 0;
    *s = run_epilogue(c, a, &q.out, sx, sw);
    return 1;
}

xd_status xd_cuda_gemm(xd_dev *d, xd_stream *s, const xd_gemm *a, void *tmp)
{
    xd_status st = xd_gemm_check(a, XD_CUDA_TYPES);
    (void)s;
    if (st != XD_OK || !a->out.d[0] || !a->w->out)
        return st;
    places p = places_of(a, wants_fp8(a) && d->fp8_gemm);
    if (wants_fp8(a) && d->fp8_gemm && fp8_gemm(xd_cuda_of(d), a, &p, tmp, &st))
        return st;
    if (wants_fp8(a))
        p = places_of(a, 0);
    return a->w->type == XD_I8 && !a->w->floats ? integer_gemm(xd_cuda_of(d), a, &p, tmp)
                                                : float_gemm(xd_cuda_of(d), a, &p, tmp);
}
