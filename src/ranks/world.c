/* world.c - lets all ranks of a group agree on the first failure of any rank */
#include "ranks/world.h"

xd_status xd_world_wait(xd_comm *c, xd_req r, xd_err *e)
{
    if (c->ops->wait(c, &r, 1) == XD_OK)
        return XD_OK;
    xd_status s = xd_fail(e, XD_ECOMM, "a message between ranks failed%s%s",
                          c->err->msg[0] ? ": " : "", c->err->msg);
    if (e) /* The rank number -1 means that every rank reports this error itself. */
        e->rank = -1;
    return s;
}

xd_status xd_world_agree_in(xd_comm *c, int me, xd_status mine, xd_err *e)
{
    int     relayed = e->rank >= 0 && e->rank != me;
    int32_t who = mine == XD_OK ? INT32_MAX : c->rank + (relayed ? c->size : 0);
    int64_t one = 1, size = sizeof(xd_err);
    xd_err  sent = *e, lost = { .rank = -1 };
    if (c->size == 1)
        return mine;
    if (xd_world_wait(c, c->ops->allreduce(c, xd_view(&who, XD_I32, 1, &one), XD_MIN), &lost) !=
        XD_OK)
        goto out_of_step;
    if (who == INT32_MAX)
        return XD_OK;
    sent.code = mine;
    if (sent.rank < 0)
        sent.rank = me;
    if (xd_world_wait(c, c->ops->bcast(c, xd_view(&sent, XD_U8, 1, &size), who % c->size), &lost) !=
        XD_OK)
        goto out_of_step;
    *e = sent;
    return sent.code;
out_of_step: /* A communication error is reported only if this rank has no error of its own. */
    if (mine == XD_OK)
        *e = lost;
    e->rank = -1;
    return XD_ECOMM;
}

xd_status xd_world_agree(const xd_world *w, xd_status mine, xd_err *e)
{
    if (mine != XD_OK)
        xd_abort_notice_send(w->abort_notice, e);
    xd_status s = xd_world_agree_in(w->used, w->used->rank, mine, e);
    if (s != XD_OK && s != XD_ECOMM && xd_abort_notice_reset(w->abort_notice, e) != XD_OK) {
        e->rank = -1;
        return XD_ECOMM;
    }
    return s;
}

int xd_world_all(const xd_world *w, int mine)
{
    xd_comm *c = w->used;
    int32_t  v = mine != 0;
    int64_t  one = 1;
    if (c->size == 1)
        return v;
    xd_req r = c->ops->allreduce(c, xd_view(&v, XD_I32, 1, &one), XD_MIN);
    return c->ops->wait(c, &r, 1) == XD_OK && v;
}

void xd_world_settle(const xd_world *w, xd_comm *c, xd_exec *x)
{
    xd_err    e = x->err;
    xd_status s = xd_world_agree_in(c, w->used->rank, e.code, &e);
    if (s == XD_OK)
        return;
    x->err = e;
    x->err.code = s;
}

static void watch_notice(void *watcher, xd_exec *x)
{
    xd_abort_notice_watch(watcher, x);
}

void xd_world_watch(const xd_world *w, xd_exec *x)
{
    x->watch = w->abort_notice ? watch_notice : NULL;
    x->watcher = w->abort_notice;
}

xd_status xd_world_judge(const xd_world *w, xd_status s, xd_err *e)
{
    int alone = w->all ? w->all->size == 1 || w->idle || (w->used && w->used->size == 1)
                       : !xd_comm_launched();
    if (s == XD_OK || alone || e->rank >= 0)
        return s;
    return XD_ECOMM;
}

int64_t xd_world_sent(const xd_world *w, int64_t since)
{
    xd_comm *c = w->used;
    int64_t  one = 1, bytes = c->traffic->bytes - since;
    xd_err   e = { 0 };
    if (c->size > 1 &&
        xd_world_wait(c, c->ops->allreduce(c, xd_view(&bytes, XD_I64, 1, &one), XD_SUM), &e) !=
            XD_OK)
        return -1;
    return bytes;
}

xd_status xd_world_broadcast(const xd_world *w, void *p, int64_t bytes, xd_err *e)
{
    xd_comm *c = w->used;
    if (c->size == 1)
        return XD_OK;
    return xd_world_wait(c, c->ops->bcast(c, xd_view(p, XD_U8, 1, &bytes), 0), e);
}
