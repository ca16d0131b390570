/* moves.c - queues element-wise ops, copies, table lookups and enlargements of images on the GPU */
#include "backend/cuda/cuda.h"

#include "base/minmax.h"

#include <string.h>

/* ---- rows of two operands ----------------------------------------------------------------- */

xd_status xd_cuda_glu(xd_dev *d, xd_stream *s, const xd_glu *a, void *tmp)
{
    int64_t   n = a->out.d[0];
    xd_status st = xd_glu_check(a, XD_CUDA_TYPES);
    (void)s, (void)tmp;
    if (st != XD_OK)
        return st;
    pair_args b = {
        .out = a->out.p,
        .a = a->a.p,
        .b = a->b.p,
        .n = n,
        .C = a->out.d[1],
        .s_out = a->out.s[0],
        .s_a = a->a.s[0],
        .s_b = a->b.p ? a->b.s[0] : 0,
        .out_type = xd_cuda_type(&a->out),
        .a_type = xd_cuda_type(&a->a),
        .b_type = xd_cuda_type(&a->b),
        .act = (int)a->act,
        .sx = a->sx.p,
        .via = (int)a->via,
    };
    if (b.sx && (b.C > XD_GLU_NARROW_MAX || !xd_cuda_aligned(&a->a, b.s_a) ||
                 !xd_cuda_aligned(&a->b, b.s_b)))
        return XD_EUNSUPPORTED;
    if (b.sx)
        return xd_cuda_launch(xd_cuda_of(d), XD_K_glu_e4m3, n, 1, 256, 64 + (size_t)b.C * 2, &b);
    int wide = b.C % 8 == 0 && xd_cuda_aligned(&a->out, b.s_out) && xd_cuda_aligned(&a->a, b.s_a) &&
               xd_cuda_aligned(&a->b, b.s_b);
    return xd_cuda_launch_each(xd_cuda_of(d), wide ? XD_K_glu_wide : XD_K_glu,
                               wide ? b.n * b.C / 8 : b.n * b.C, &b);
}

xd_status xd_cuda_addmul(xd_dev *d, xd_stream *s, const xd_addmul *a, void *tmp)
{
    int64_t   n = a->acc.d[0];
    xd_status st = xd_addmul_check(a, XD_CUDA_TYPES);
    (void)s, (void)tmp;
    if (st != XD_OK)
        return st;
    pair_args b = {
        .out = a->acc.p,
        .a = a->in.p,
        .gate = a->gate.p,
        .n = n,
        .C = a->acc.d[1],
        .s_out = a->acc.s[0],
        .s_a = a->in.s[0],
        .s_gate = xd_cuda_row_stride(&a->gate, n),
        .out_type = xd_cuda_type(&a->acc),
        .a_type = xd_cuda_type(&a->in),
    };
    int wide = b.C % 8 == 0 && xd_cuda_aligned(&a->acc, b.s_out) &&
               xd_cuda_aligned(&a->in, b.s_a) && xd_cuda_aligned(&a->gate, b.s_gate);
    return xd_cuda_launch_each(xd_cuda_of(d), wide ? XD_K_addmul_wide : XD_K_addmul,
                               wide ? b.n * b.C / 8 : b.n * b.C, &b);
}

/* ---- views -------------------------------------------------------------------------------- */

/* Returns the kernel arguments of a copy. The kernel copies five dimensions, so tensors with fewer
 * dimensions get leading dimensions of extent 1. `in` may be absent. */
static copy_args view_of(const xd_tensor *out, const xd_tensor *in)
{
    copy_args v = { .out = out->p,
                    .in = in->p,
                    .n = xd_count(*out),
                    .out_type = (int)out->type,
                    .in_type = (int)in->type };
    for (int k = 0; k < 5; k++) {
        int at = k - (5 - out->nd);
        v.d[k] = at < 0 ? 1 : out->d[at];
        v.s_out[k] = at < 0 ? 0 : out->s[at];
        v.s_in[k] = at < 0 || !in->p ? 0 : in->s[at];
    }
    return v;
}

xd_status xd_cuda_copy_view(xd_cuda_dev *c, const xd_tensor *out, const xd_tensor *in)
{
    copy_args b = view_of(out, in);
    return xd_cuda_launch_each(c, XD_K_copy, b.n, &b);
}

xd_status xd_cuda_copy(xd_dev *d, xd_stream *s, const xd_copy *a, void *tmp)
{
    xd_status st = xd_copy_check(a, XD_CUDA_TYPES);
    (void)s, (void)tmp;
    return st == XD_OK ? xd_cuda_copy_view(xd_cuda_of(d), &a->out, &a->in) : st;
}

xd_status xd_cuda_axpby(xd_dev *d, xd_stream *s, const xd_axpby_args *a, void *tmp)
{
    xd_status st = xd_axpby_check(a);
    (void)s, (void)tmp;
    if (st != XD_OK)
        return st;
    axpby_args b = { view_of(&a->y, &a->x), a->a, a->b };
    return xd_cuda_launch_each(xd_cuda_of(d), XD_K_axpby, b.view.n, &b);
}

xd_status xd_cuda_code(xd_dev *d, xd_stream *s, const xd_code *a, void *tmp)
{
    const int        codes = xd_is_quantized(a->out.type);
    const xd_tensor *v = codes ? &a->in : &a->out;
    xd_status        st = xd_code_check(a, XD_CUDA_TYPES);
    (void)s, (void)tmp;
    if (st != XD_OK)
        return st;
    code_args b = { .out = a->out.p,
                    .in = a->in.p,
                    .n = v->d[0],
                    .H = v->d[1],
                    .D = v->d[2],
                    .s_out0 = a->out.s[0],
                    .s_out1 = a->out.s[1],
                    .s_in0 = a->in.s[0],
                    .s_in1 = a->in.s[1],
                    .out_type = xd_cuda_type(&a->out),
                    .in_type = xd_cuda_type(&a->in),
                    .e4m3 = (codes ? a->out.type : a->in.type) == XD_F8E4M3 };
    return xd_cuda_launch(xd_cuda_of(d), codes ? XD_K_encode : XD_K_decode,
                          xd_ceil_div(b.n * b.H, 4), 1, 128, 0, &b);
}

/* ---- images and tables -------------------------------------------------------------------- */

xd_status xd_cuda_resize(xd_dev *d, xd_stream *s, const xd_resize *a, void *tmp)
{
    xd_status st = xd_resize_check(a);
    (void)s, (void)tmp;
    if (st != XD_OK)
        return st;
    resize_args b = { .out = a->out.p, .in = a->in.p, .size = (int)xd_dtype_size(a->in.type) };
    memcpy(b.d, a->out.d, sizeof b.d);
    for (int i = 0; i < 3; i++)
        b.s_out[i] = a->out.s[i], b.s_in[i] = a->in.s[i], b.factor[i] = a->factor[i];
    return xd_cuda_launch_each(xd_cuda_of(d), XD_K_resize, xd_count(a->out), &b);
}

/* Queues a table lookup. If an id is outside the table, the kernel notes the error, and the next
 * download returns XD_EINVAL. */
xd_status xd_cuda_lookup(xd_dev *d, xd_stream *s, const xd_lookup *a, void *tmp)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    xd_status    st = xd_lookup_check(a, XD_CUDA_TYPES);
    (void)s, (void)tmp;
    if (st != XD_OK)
        return st;
    lookup_args b = {
        .out = a->out.p,
        .table = a->table.p,
        .ids = a->ids.p,
        .n = a->ids.d[0],
        .C = a->out.d[1],
        .s_out = a->out.s[0],
        .s_table = a->table.s[0],
        .s_ids = a->ids.s[0],
        .rows = a->table.d[0],
        .out_type = (int)a->out.type,
        .table_type = (int)a->table.type,
        .failed = (int32_t *)(uintptr_t)c->failed,
    };
    pthread_mutex_lock(&c->lock);
    c->looked_up = 1;
    pthread_mutex_unlock(&c->lock);
    return xd_cuda_launch_each(c, XD_K_lookup, b.n * b.C, &b);
}
