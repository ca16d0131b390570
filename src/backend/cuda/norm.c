/* norm.c - queues the norms of rows, of heads (with rotary embedding), and of groups of channels on
 * the GPU */
#include "backend/cuda/cuda.h"

#include "base/minmax.h"

xd_status xd_cuda_norm(xd_dev *d, xd_stream *s, const xd_norm *a, void *tmp)
{
    /* maximum number of 256-element chunks of a row in each of the kernels norm_5 to norm_16 and
     * norm_wide */
    static const int most[] = { 5, 8, 12, 16, 32 };
    int64_t          n = a->in.d[0], C = a->in.d[1];
    int              k = 0;
    xd_status        st = xd_norm_check(a, XD_CUDA_TYPES);
    (void)s, (void)tmp;
    if (st != XD_OK)
        return st;
    norm_args b = {
        .out = a->out.p,
        .in = a->in.p,
        .gain = a->gain.p,
        .bias = a->bias.p,
        .scale = a->scale.p,
        .shift = a->shift.p,
        .like = a->like.p,
        .n = n,
        .C = C,
        .s_out = a->out.s[0],
        .s_in = a->in.s[0],
        .s_like = a->like.s[0],
        .s_scale = xd_cuda_row_stride(&a->scale, n),
        .s_shift = xd_cuda_row_stride(&a->shift, n),
        .in_type = xd_cuda_type(&a->in),
        .out_type = xd_cuda_type(&a->out),
        .rms = a->rms,
        .eps = a->eps,
    };
    if (a->add.p) {
        b.sum = a->in.p, b.add = a->add.p, b.gate = a->gate.p;
        b.s_add = a->add.s[0], b.s_gate = xd_cuda_row_stride(&a->gate, n);
        b.add_type = xd_cuda_type(&a->add);
    }
    if (a->sx.p)
        b.sx = a->sx.p, b.via = (int)a->via;
    b.wide = C % 8 == 0 && !b.like && xd_cuda_aligned(&a->out, b.s_out) &&
             xd_cuda_aligned(&a->in, b.s_in) && xd_cuda_aligned(&a->gain, 0) &&
             xd_cuda_aligned(&a->bias, 0) && xd_cuda_aligned(&a->scale, b.s_scale) &&
             xd_cuda_aligned(&a->shift, b.s_shift) &&
             (!b.add || (b.in_type == XD_F32 && xd_cuda_aligned(&a->add, b.s_add) &&
                         xd_cuda_aligned(&a->gate, b.s_gate)));
    while (k < 5 && C > most[k] * 256)
        k++;
    int first = b.sx ? XD_K_norm_5_e4m3 : XD_K_norm_5;
    if (b.wide && k == 4) /* a block of threads for each row */
        return xd_cuda_launch(xd_cuda_of(d), first + k, n, 1, 256, XD_CUDA_NORM_SHARED, &b);
    return xd_cuda_launch(xd_cuda_of(d), b.wide && k < 4 ? first + k : XD_K_norm_any,
                          xd_ceil_div(n, 4), 1, 128, 0, &b);
}

static qknorm_heads heads_of(const xd_qk_heads *a)
{
    if (!a->in.p)
        return (qknorm_heads){ .H = 0 };
    return (qknorm_heads){ .out = a->out.p,
                           .in = a->in.p,
                           .gain = a->gain.p,
                           .bias = a->bias.p,
                           .H = a->in.d[1],
                           .s_out0 = a->out.s[0],
                           .s_out1 = a->out.s[1],
                           .s_in0 = a->in.s[0],
                           .s_in1 = a->in.s[1] };
}

/* Returns 1 if the heads can be read and written in accesses of 16 bytes. */
static int are_aligned(const xd_qk_heads *a)
{
    return !a->in.p ||
           (xd_cuda_aligned(&a->in, a->in.s[0]) && xd_cuda_aligned(&a->in, a->in.s[1]) &&
            xd_cuda_aligned(&a->out, a->out.s[0]) && xd_cuda_aligned(&a->out, a->out.s[1]) &&
            xd_cuda_aligned(&a->gain, 0) && xd_cuda_aligned(&a->bias, 0));
}

xd_status xd_cuda_qknorm(xd_dev *d, xd_stream *s, const xd_qknorm *a, void *tmp)
{
    int64_t     n = a->in.d[0], D = a->in.d[2];
    xd_qk_heads first = { a->out, a->in, a->gain, a->bias };
    xd_status   st = xd_qknorm_check(a, XD_CUDA_TYPES);
    (void)s, (void)tmp;
    if (st != XD_OK)
        return st;
    qknorm_args b = {
        .of = { heads_of(&first), heads_of(&a->also) },
        .cos = a->cos.p,
        .sin = a->sin.p,
        .n = n,
        .D = D,
        .s_cos = xd_cuda_row_stride(&a->cos, n),
        .s_sin = xd_cuda_row_stride(&a->sin, n),
        .in_type = xd_cuda_type(&a->in),
        .out_type = xd_cuda_type(&a->out),
        .norm = a->norm,
        .rms = a->rms,
        .halves = a->halves,
        .eps = a->eps,
    };
    int near = D <= 128 && D % 8 == 0 && !(a->halves && a->cos.p) && are_aligned(&first) &&
               are_aligned(&a->also) && xd_cuda_aligned(&a->cos, b.s_cos) &&
               xd_cuda_aligned(&a->sin, b.s_sin);
    if (near) {
        int k = D <= 32 ? 0 : D <= 64 ? 1 : 2;
        b.slices = xd_ceil_div(xd_max(b.of[0].H, b.of[1].H), XD_CUDA_QKNORM_HEADS >> k);
        return xd_cuda_launch(xd_cuda_of(d), XD_K_qknorm_32 + k, xd_ceil_div(n * b.slices, 8), 1,
                              256, 0, &b);
    }
    return xd_cuda_launch(xd_cuda_of(d), XD_K_qknorm_any,
                          xd_ceil_div(n * (b.of[0].H + b.of[1].H), 4), 1, 128,
                          (size_t)D * 4 * sizeof(float), &b);
}

/* Returns 1 if the kernel moments_wide supports these groups of channels. The kernel needs aligned
 * rows, a number of channels that is a multiple of 32, and groups of `wide` channels, where `wide`
 * is a power of two from 2 to 1024. */
static int takes_slabs(const xd_moments *a, int64_t wide)
{
    return (wide & (wide - 1)) == 0 && wide >= 2 && wide <= 1024 && a->in.d[2] % 32 == 0 &&
           xd_cuda_aligned(&a->in, a->in.s[0]) && xd_cuda_aligned(&a->in, a->in.s[1]);
}

static xd_status add_rows(xd_cuda_dev *c, const xd_moments *a)
{
    add_rows_args b = { .out = a->out.p, .in = a->in.p, .R = a->in.d[0], .step = a->in.s[0] };
    return xd_cuda_launch(c, XD_K_add_rows, a->in.d[1], 1, 128, 128 * 8, &b);
}

xd_status xd_cuda_moments(xd_dev *d, xd_stream *s, const xd_moments *a, void *tmp)
{
    xd_status st = xd_moments_check(a, XD_CUDA_TYPES);
    (void)s, (void)tmp;
    if (st != XD_OK)
        return st;
    if (!a->groups)
        return add_rows(xd_cuda_of(d), a);
    moments_args b = {
        .sums = a->out.p,
        .in = a->in.p,
        .R = a->in.d[0],
        .P = a->in.d[1],
        .C = a->in.d[2],
        .s_row = a->in.s[0],
        .s_position = a->in.s[1],
        .s_sum_row = a->out.s[0],
        .s_sum_group = a->out.s[1],
        .in_type = xd_cuda_type(&a->in),
        .groups = a->groups,
    };
    const int64_t wide = b.C / b.groups;
    if (takes_slabs(a, wide))
        return xd_cuda_launch(xd_cuda_of(d), XD_K_moments_wide, b.R, b.C / xd_max(wide, 32), 128,
                              128 * 128, &b);
    return xd_cuda_launch(xd_cuda_of(d), XD_K_moments, b.R, b.groups, 128, 128 * 16, &b);
}

xd_status xd_cuda_gnorm(xd_dev *d, xd_stream *s, const xd_gnorm *a, void *tmp)
{
    int       nd = a->in.nd;
    xd_status st = xd_gnorm_check(a, XD_CUDA_TYPES);
    (void)s, (void)tmp;
    if (st != XD_OK)
        return st;
    gnorm_args b = {
        .out = a->out.p,
        .in = a->in.p,
        .sums = a->sums.p,
        .gain = a->gain.p,
        .bias = a->bias.p,
        .scale = a->scale.p,
        .shift = a->shift.p,
        .C = a->in.d[nd - 1],
        .n = 1,
        .d = { 1, 1, 1 },
        .s_group = a->sums.s[0],
        .s_moment = a->sums.s[1],
        .in_type = xd_cuda_type(&a->in),
        .out_type = xd_cuda_type(&a->out),
        .groups = a->groups,
        .silu = a->silu,
        .count = a->count,
        .eps = a->eps,
    };
    for (int i = 0; i < nd - 1; i++) {
        int k = i + 4 - nd;
        b.d[k] = a->in.d[i], b.s_in[k] = a->in.s[i], b.s_out[k] = a->out.s[i];
        b.n *= a->in.d[i];
    }
    for (int i = 0; i < 3 && a->scale.p; i++) {
        b.cell[i] = a->scale.d[i] ? a->in.d[i] / a->scale.d[i] : 1;
        b.s_scale[i] = a->scale.s[i], b.s_shift[i] = a->shift.s[i];
    }
    if ((size_t)b.groups * 8 > XD_CUDA_GNORM_SHARED)
        return XD_EUNSUPPORTED;
    /* A thread normalizes up to 16 elements. It normalizes fewer elements if there would otherwise
     * be fewer than 2048 blocks of threads, so that all multiprocessors have work. */
    b.each = 256 * xd_max(1, xd_min(16, b.n * b.C / (256 * 2048)));
    return xd_cuda_launch(xd_cuda_of(d), XD_K_gnorm, xd_ceil_div(b.n * b.C, b.each), 1, 256,
                          (size_t)b.groups * 8, &b);
}
