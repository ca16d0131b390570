/* local.c - implements the hooks at the end of every hook stack, which call kernels for a single
 * rank. Also implements xd_run, which allocates a kernel's scratch memory from the arena, runs the
 * kernel and rewinds the arena. */
#include "exec/run.h"

#include "base/par.h"
#include "exec/exec.h"
#include "exec/late.h"

void xd_run(xd_exec *x, xd_op op, const char *name, const void *args)
{
    const xd_ops *o = x->dev->ops;
    xd_par_poke();
    if (x->watch)
        x->watch(x->watcher, x);
    xd_late_before(x, op, args);
    if (!xd_ok(x))
        return;
    if (xd_cancel_check(x->cancel, &x->err) != XD_OK)
        return;
    size_t mark = xd_arena_mark(x->tmp), need = o->scratch(x->dev, op, args);
    void  *tmp = need ? xd_arena_get(x->tmp, need) : NULL;
    if (need && !tmp) {
        xd_exec_fail(x, XD_ENOMEM, "%s needs %zu bytes of scratch, %zu of %zu are left", name, need,
                     x->tmp->cap - x->tmp->used, x->tmp->cap);
        return;
    }
    xd_status  s = XD_EUNSUPPORTED;
    xd_dev    *d = x->dev;
    xd_stream *st = x->st;
    switch (op) {
    case XD_OP_GEMM: s = o->gemm(d, st, args, tmp); break;
    case XD_OP_ATTN: s = o->attn(d, st, args, tmp); break;
    case XD_OP_NORM: s = o->norm(d, st, args, tmp); break;
    case XD_OP_MOMENTS: s = o->moments(d, st, args, tmp); break;
    case XD_OP_GNORM: s = o->gnorm(d, st, args, tmp); break;
    case XD_OP_GLU: s = o->glu(d, st, args, tmp); break;
    case XD_OP_ADDMUL: s = o->addmul(d, st, args, tmp); break;
    case XD_OP_AXPBY: s = o->axpby(d, st, args, tmp); break;
    case XD_OP_CONV: s = o->conv(d, st, args, tmp); break;
    case XD_OP_RESIZE: s = o->resize(d, st, args, tmp); break;
    case XD_OP_LOOKUP: s = o->lookup(d, st, args, tmp); break;
    case XD_OP_COPY: s = o->copy(d, st, args, tmp); break;
    case XD_OP_QKNORM: s = o->qknorm(d, st, args, tmp); break;
    case XD_OP_ROTATE: s = o->rotate(d, st, args, tmp); break;
    case XD_OP_LINATTN: s = o->linattn(d, st, args, tmp); break;
    case XD_OP_CODE: s = o->code(d, st, args, tmp); break;
    case XD_NOPS: break;
    }
    if (s != XD_OK)
        xd_exec_fail(x, s, "%s failed on %s: %s", name, x->dev->name, xd_status_name(s));
    xd_arena_rewind(x->tmp, mark);
}

static void local_attn(xd_exec *x, const xd_hooks *m, xd_attn_args *a)
{
    (void)m;
    if (xd_check(x, x->group == XD_GROUP_NONE, "attention in groups is not open for this model"))
        xd_run(x, XD_OP_ATTN, "attention", a);
}

static void local_conv(xd_exec *x, const xd_hooks *m, xd_conv *a)
{
    (void)m;
    xd_run(x, XD_OP_CONV, "convolution", a);
}

static void local_sum(xd_exec *x, const xd_hooks *m, xd_over over, xd_tensor io)
{
    (void)x, (void)m, (void)over, (void)io; /* one rank: the sum is `io` itself */
}

/* Returns empty halos, because a single rank has all rows of the image. */
static void local_halo(xd_exec *x, const xd_hooks *m, xd_halo_args *a)
{
    (void)x, (void)m;
    a->above = a->below = a->in;
    a->above.d[1] = a->below.d[1] = 0;
}

/* Adds the partial sums of a group norm. A single rank has all rows of the feature map, so no
 * messages are needed. */
static void local_rowsum(xd_exec *x, const xd_hooks *m, int64_t wide, xd_tensor partial,
                         xd_tensor sums, int64_t *rows)
{
    (void)m, (void)wide;
    *rows = partial.d[0];
    const int64_t n = partial.d[1] * partial.d[2];
    xd_run(x, XD_OP_MOMENTS, "sums of rows",
           &(xd_moments){ xd_view(sums.p, XD_F64, 1, &n),
                          xd_view2(partial.p, XD_F64, partial.d[0], n), 0 });
}

static void local_linear(xd_exec *x, const xd_hooks *m, const xd_linattn *a)
{
    (void)m;
    xd_run(x, XD_OP_LINATTN, "sums of linear attention",
           &(xd_linattn){ .k = a->k, .v = a->v, .sums = a->sums, .cos = a->cos, .sin = a->sin });
}

/* Returns no rows, because a single rank has all tokens. */
static void local_near(xd_exec *x, const xd_hooks *m, xd_near_args *a)
{
    (void)x, (void)m;
    a->near = xd_rows(a->in, 0, 0);
}

const xd_hooks xd_hooks_local = {
    .attn = local_attn,
    .conv = local_conv,
    .sum = local_sum,
    .halo = local_halo,
    .rowsum = local_rowsum,
    .linear = local_linear,
    .near = local_near,
};
