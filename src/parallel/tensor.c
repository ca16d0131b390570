/* tensor.c - implements tensor parallelism (Shoeybi et al. 2019, arXiv:1909.08053): each rank
 * computes some of the output features of a layer, and has those weights of the next layer that
 * multiply these features. This file sums the ranks' partial results. */
#include <stdlib.h>

#include "exec/op.h"
#include "parallel/method.h"

extern const xd_method xd_method_tensor;

typedef struct tensor {
    xd_hooks hooks;
    xd_comm *c;
} tensor;

static void tensor_sum(xd_exec *x, const xd_hooks *m, xd_over over, xd_tensor io)
{
    const tensor *s = m->priv;
    if (over != XD_OVER_FEATURES)
        return;
    /* The other ranks wait for this rank's partial result, so a rank that has failed still sends
     * a buffer. */
    if (!xd_ok(x))
        io.p = xd_failed_buffer(x, io.p, xd_bytes(io), s->c);
    xd_req r = s->c->ops->allreduce(s->c, io, XD_SUM);
    if (s->c->ops->wait(s->c, &r, 1) != XD_OK)
        xd_exec_fail(x, XD_ECOMM, "tensor parallelism: a sum over ranks failed");
}

static void close_tensor(xd_hooks *m)
{
    free(m->priv);
}

static xd_status open_tensor(const xd_method_args *a, const xd_hooks *next, xd_hooks **out,
                             xd_err *e)
{
    *out = NULL;
    if (a->what == XD_FOR_VAE || a->topo->deg.n[XD_TENSOR] == 1)
        return XD_OK;
    tensor *s = calloc(1, sizeof *s);
    if (!s)
        return xd_fail(e, XD_ENOMEM, "no memory for tensor parallelism");
    s->hooks = (xd_hooks){ .sum = tensor_sum, .next = next, .priv = s };
    s->c = a->topo->group[XD_TENSOR];
    *out = &s->hooks;
    return XD_OK;
}

const xd_method xd_method_tensor = { "tensor", open_tensor, close_tensor };
