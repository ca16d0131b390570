/* linattn.c - queues the two parts of linear attention on the GPU */
#include "backend/cuda/cuda.h"

#include "base/minmax.h"

static linattn_heads heads_of(const xd_tensor *t)
{
    return (linattn_heads){ .p = t->p, .s0 = t->s[0], .s1 = t->s[1], .type = xd_cuda_type(t) };
}

static void set_tables(linattn_args *b, const xd_linattn *a)
{
    b->cos = a->cos.p, b->s_cos = a->cos.s[0];
    b->sin = a->sin.p, b->s_sin = a->sin.s[0];
}

xd_status xd_cuda_linattn(xd_dev *d, xd_stream *s, const xd_linattn *a, void *tmp)
{
    const int64_t H = a->sums.d[0], D = a->sums.d[1];
    xd_status     st = xd_linattn_check(a, XD_CUDA_TYPES);
    linattn_args  b = { .sums = a->sums.p, .H = H, .D = D };
    (void)s, (void)tmp;
    if (st == XD_OK && a->k.p) {
        set_tables(&b, a);
        b.q = heads_of(&a->k), b.v = heads_of(&a->v), b.n = a->k.d[0];
        st = xd_cuda_launch(xd_cuda_of(d), XD_K_linattn_sums, xd_ceil_div(H * D * (D + 1), 256), 1,
                            256, 0, &b);
    }
    if (st == XD_OK && a->q.p) {
        set_tables(&b, a);
        b.q = heads_of(&a->q), b.v = heads_of(&a->out), b.n = a->q.d[0];
        st = xd_cuda_launch(xd_cuda_of(d), XD_K_linattn_out, xd_ceil_div(b.n * H * D, 256), 1, 256,
                            0, &b);
    }
    return st;
}
