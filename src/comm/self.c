/* self.c - the communicator of a run on one rank: every message is to oneself */
#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>

static xd_req nothing(void)
{
    return (xd_req){ 0 };
}

/* Copies between views of the same shape; rows may have any stride, elements follow each
 * other. */
static void copy(xd_tensor to, xd_tensor from)
{
    int64_t inner = 1, outer = 1;
    int     nd = from.nd;
    while (nd > 0 && from.s[nd - 1] == inner && to.s[nd - 1] == inner)
        inner *= from.d[--nd];
    for (int i = 0; i < nd; i++)
        outer *= from.d[i];
    size_t es = xd_dtype_size(from.type);
    for (int64_t o = 0; o < outer; o++) {
        int64_t at = o, a = 0, b = 0;
        for (int i = nd - 1; i >= 0; i--) {
            a += at % from.d[i] * from.s[i];
            b += at % from.d[i] * to.s[i];
            at /= from.d[i];
        }
        memmove((char *)to.p + (size_t)b * es, (const char *)from.p + (size_t)a * es,
                (size_t)inner * es);
    }
}

static xd_status self_split(xd_comm *c, int color, int key, xd_comm **out, xd_err *e)
{
    (void)c, (void)color, (void)key;
    return xd_comm_world(out, "self", e);
}

static void self_close(xd_comm *c)
{
    free(c);
}

static xd_req self_allreduce(xd_comm *c, xd_tensor io, xd_red op)
{
    (void)c, (void)io, (void)op;
    return nothing();
}

static xd_req self_bcast(xd_comm *c, xd_tensor io, int root)
{
    (void)c, (void)io, (void)root;
    return nothing();
}

static xd_req self_gather(xd_comm *c, xd_tensor out, const int64_t *rows, xd_tensor in)
{
    (void)c, (void)rows;
    if (xd_count(in))
        copy(out, in);
    return nothing();
}

static xd_req self_exchange(xd_comm *c, const xd_tensor *from, const xd_tensor *to)
{
    (void)c;
    if (xd_count(from[0]))
        copy(to[0], from[0]);
    return nothing();
}

static xd_req self_send(xd_comm *c, xd_tensor t, int to)
{
    c->priv = t.p;              /* what the next recv from oneself would take                  */
    (void)to;
    return nothing();
}

static xd_req self_recv(xd_comm *c, xd_tensor t, int from)
{
    (void)from;
    if (c->priv && c->priv != t.p)
        memmove(t.p, c->priv, xd_bytes(t));
    c->priv = NULL;
    return nothing();
}

static xd_status self_wait(xd_comm *c, xd_req *r, int n)
{
    (void)c, (void)r, (void)n;
    return XD_OK;
}

static void self_poke(xd_comm *c)
{
    (void)c;
}

static const xd_comm_ops ops = {
    .name = "self", .split = self_split, .close = self_close, .allreduce = self_allreduce,
    .bcast = self_bcast, .gather = self_gather, .exchange = self_exchange, .send = self_send,
    .recv = self_recv, .wait = self_wait, .poke = self_poke,
};

xd_status xd_comm_world(xd_comm **c, const char *kind, xd_err *e)
{
    *c = NULL;
    if (strcmp(kind, "self") != 0)
        return xd_fail(e, XD_EUNSUPPORTED, "no communicator of kind \"%s\" in this build", kind);
    if (!(*c = calloc(1, sizeof **c)))
        return xd_fail(e, XD_ENOMEM, "no memory for a communicator");
    (*c)->ops = &ops;
    (*c)->size = 1;
    return XD_OK;
}

void xd_comm_close(xd_comm **c)
{
    if (c && *c)
        (*c)->ops->close(*c);
    if (c)
        *c = NULL;
}
