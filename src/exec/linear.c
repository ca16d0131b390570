/* linear.c - computes linear attention of this rank's tokens over all ranks' tokens.
 *
 * The keys and values enter only by sums over tokens, which have the same size for any number of
 * tokens. So ranks exchange sums instead of keys and values. */
#include "exec/op.h"

#include "exec/run.h"

xd_tensor xd_attn_linear_turned(xd_exec *x, xd_tensor q, xd_tensor k, xd_tensor v, xd_tensor cos,
                                xd_tensor sin)
{
    const int64_t   H = q.d[1], D = q.d[2];
    xd_tensor       out = xd_new_as(x, x->act, 3, q.d);
    size_t          mark = xd_arena_mark(x->tmp);
    xd_tensor       sums = xd_new_as(x, XD_F32, 3, (int64_t[]){ H, D, D + 1 });
    const xd_hooks *m = x->hooks;
    xd_check(x, x->B == 1, "linear attention in batches is not supported");
    while (!m->linear)
        m = m->next;
    m->linear(x, m, &(xd_linattn){ .k = k, .v = v, .sums = sums, .cos = cos, .sin = sin });
    xd_run(x, XD_OP_LINATTN, "linear attention",
           &(xd_linattn){ .out = out, .q = q, .sums = sums, .cos = cos, .sin = sin });
    xd_arena_rewind(x->tmp, mark);
    return out;
}

xd_tensor xd_attn_linear(xd_exec *x, xd_tensor q, xd_tensor k, xd_tensor v)
{
    return xd_attn_linear_turned(x, q, k, v, (xd_tensor){ 0 }, (xd_tensor){ 0 });
}
