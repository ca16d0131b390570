/* late.c - postpones additions to the hidden state, to fuse them into the next norm */
#include "exec/late.h"

#include "exec/op.h"
#include "exec/run.h"

void xd_late_open(xd_exec *x, xd_late *l, xd_tensor h)
{
    *l = (xd_late){ .h = h };
    x->late = NULL;
    if (!x->dev->norm_adds || x->act == XD_F16 || h.type != XD_F32 || !xd_contiguous(h))
        return;
    l->y = xd_new(x, h.d[0], h.d[1]);
    l->gates = xd_new_f32(x, XD_LATE_MOST, h.d[1]);
    x->late = l;
}

/* Performs the pending addition i (an addition to the hidden state) now. */
static void settle(xd_exec *x, xd_late *l, int i)
{
    xd_addmul a = l->of[i];
    l->of[i] = l->of[--l->n];
    xd_run(x, XD_OP_ADDMUL, "gated addition", &a);
}

static void settle_all(xd_exec *x, xd_late *l)
{
    while (l->n)
        settle(x, l, l->n - 1);
}

void xd_late_close(xd_exec *x)
{
    if (x->late)
        settle_all(x, x->late);
    x->late = NULL;
}

/* Returns 1 if the tensors t and `rows` overlap in memory. */
static int meets(const xd_tensor *t, const xd_tensor *rows)
{
    const char *a = t->p, *b = rows->p;
    if (!a || !xd_count(*t) || !xd_count(*rows))
        return 0;
    int64_t end = (int64_t)xd_dtype_size(t->type);
    for (int i = 0; i < t->nd; i++)
        end += (t->d[i] - 1) * t->s[i] * (int64_t)xd_dtype_size(t->type);
    return a < b + xd_bytes(*rows) && b < a + end;
}

static void settle_met(xd_exec *x, xd_late *l, const xd_tensor *t)
{
    for (int i = l->n - 1; i >= 0; i--)
        if (meets(t, &l->of[i].acc) || meets(t, &l->of[i].in))
            settle(x, l, i);
}

xd_tensor xd_late_room(xd_exec *x, xd_tensor acc)
{
    xd_late *l = x->late;
    if (!l || acc.nd != 2 || acc.d[1] != l->h.d[1] || acc.s[0] != l->h.s[0] || acc.type != XD_F32 ||
        !acc.d[0] || !meets(&acc, &l->h))
        return (xd_tensor){ 0 };
    int64_t   row = ((const float *)acc.p - (const float *)l->h.p) / l->h.s[0];
    xd_tensor y = xd_rows(l->y, row, acc.d[0]);
    settle_met(x, l, &y);
    return y;
}

void xd_late_add(xd_exec *x, xd_tensor acc, xd_tensor gate, xd_tensor y)
{
    xd_late *l = x->late;
    if (l->n == XD_LATE_MOST)
        settle_all(x, l);
    l->of[l->n++] = (xd_addmul){ acc, gate, y };
}

void xd_late_take(xd_exec *x, xd_norm *a)
{
    xd_late *l = x->late;
    for (int i = 0; l && i < l->n; i++) {
        const xd_addmul *w = &l->of[i];
        if (w->acc.p == a->in.p && w->acc.d[0] == a->in.d[0] && w->acc.d[1] == a->in.d[1] &&
            a->in.p != a->out.p) {
            a->add = w->in, a->gate = w->gate;
            l->of[i] = l->of[--l->n];
            return;
        }
    }
}

/* Lists the operands through which an op may access rows of the hidden state. Returns the number of
 * listed operands, which is at most three, or -1 if the operands of this op are unknown. */
static int operands_of(xd_op op, const void *args, xd_tensor t[3])
{
    const xd_gemm       *gemm = args;
    const xd_norm       *norm = args;
    const xd_addmul     *addmul = args;
    const xd_copy       *copy = args;
    const xd_axpby_args *axpby = args;
    const xd_glu        *glu = args;
    switch (op) {
    case XD_OP_GEMM: t[0] = gemm->out, t[1] = gemm->in, t[2] = gemm->residual; return 3;
    case XD_OP_NORM: t[0] = norm->out, t[1] = norm->in, t[2] = norm->like; return 3;
    case XD_OP_ADDMUL: t[0] = addmul->acc, t[1] = addmul->in; return 2;
    case XD_OP_COPY: t[0] = copy->out, t[1] = copy->in; return 2;
    case XD_OP_AXPBY: t[0] = axpby->y, t[1] = axpby->x; return 2;
    case XD_OP_GLU: t[0] = glu->out, t[1] = glu->a, t[2] = glu->b; return 3;
    default: return -1;
    }
}

void xd_late_before(xd_exec *x, xd_op op, const void *args)
{
    xd_late  *l = x->late;
    xd_tensor t[3];
    int       n = l && l->n ? operands_of(op, args, t) : 0;
    if (n < 0)
        settle_all(x, l);
    for (int i = 0; i < n; i++)
        settle_met(x, l, &t[i]);
}

/* Returns a row of l->gates that no pending addition to the hidden state uses. */
static xd_tensor free_gate(const xd_late *l)
{
    xd_tensor row = l->gates;
    for (int k = 0, used = 1; used; k++) {
        row = xd_rows(l->gates, k, 1);
        used = 0;
        for (int i = 0; i < l->n; i++)
            used |= l->of[i].gate.p == row.p;
    }
    return row;
}

void xd_late_keep(xd_exec *x, size_t mark)
{
    xd_late *l = x->late;
    for (int i = 0; l && i < l->n; i++) {
        xd_tensor  *gate = &l->of[i].gate;
        const char *p = gate->p, *begin = x->tmp->base + mark;
        if (!p || p < begin || p >= begin + (x->tmp->used - mark))
            continue;
        xd_tensor row = free_gate(l);
        xd_run(x, XD_OP_COPY, "gate", &(xd_copy){ row, *gate });
        *gate = row;
    }
}
