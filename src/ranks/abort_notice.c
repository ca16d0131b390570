/* abort_notice.c - sends the failure of a rank to all other ranks at once */
#include "ranks/abort_notice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

static const double PAUSE_S = 1e-3; /* seconds between two polls for notices */

typedef struct notice { /* message that tells the failure of a rank */
    /* code: status of the rank that failed (0: no failure); rank: the number of this rank. */
    int32_t code, rank;
    char    msg[1000];
} notice;

struct xd_abort_notice {
    xd_comm *c;
    int      sent;
    double   checked_s; /* time of the last poll for notices */
    /* mine: the notice that this rank sends; received: [size]: the notices of the other ranks. */
    notice   mine, *received;
    /* [size]: for each other rank, `in` is the pending receive of a notice and `out` is the
     * pending send. */
    xd_req  *in, *out;
};

static xd_tensor bytes_of(notice *f)
{
    return xd_view(f, XD_U8, 1, (int64_t[]){ (int64_t)sizeof *f });
}

static void post_receives(xd_abort_notice *a)
{
    for (int i = 0; i < a->c->size; i++)
        if (i != a->c->rank)
            a->in[i] = a->c->ops->recv(a->c, bytes_of(&a->received[i]), i);
    a->sent = 0;
}

xd_status xd_abort_notice_open(xd_abort_notice **out, xd_comm *c, xd_err *e)
{
    *out = NULL;
    if (c->size == 1)
        return XD_OK;
    xd_abort_notice *a = calloc(1, sizeof *a);
    if (!a)
        return xd_fail(e, XD_ENOMEM, "no memory for the abort notices of %d ranks", c->size);
    *out = a;
    a->received = calloc((size_t)c->size, sizeof *a->received);
    a->in = calloc((size_t)c->size, sizeof *a->in);
    a->out = calloc((size_t)c->size, sizeof *a->out);
    xd_status s = c->ops->split(c, 0, c->rank, c->size, &a->c, e);
    if (s == XD_OK && (!a->received || !a->in || !a->out))
        s = xd_fail(e, XD_ENOMEM, "no memory for the abort notices of %d ranks", c->size);
    if (s == XD_OK)
        post_receives(a);
    return s;
}

void xd_abort_notice_close(xd_abort_notice **out)
{
    xd_abort_notice *a = *out;
    if (!a)
        return;
    if (a->c && a->in)
        a->c->ops->drop(a->c, a->in, a->c->size);
    xd_comm_close(&a->c);
    free(a->received), free(a->in), free(a->out), free(a);
    *out = NULL;
}

static void send_notices(xd_abort_notice *a)
{
    a->sent = 1;
    for (int i = 0; i < a->c->size; i++)
        if (i != a->c->rank)
            a->out[i] = a->c->ops->send(a->c, bytes_of(&a->mine), i);
}

void xd_abort_notice_send(xd_abort_notice *a, const xd_err *e)
{
    if (!a || a->sent || (e->rank >= 0 && e->rank != a->c->rank))
        return;
    a->mine = (notice){ .code = (int32_t)e->code, .rank = a->c->rank };
    snprintf(a->mine.msg, sizeof a->mine.msg, "%.*s", (int)sizeof a->mine.msg - 1, e->msg);
    send_notices(a);
}

static void check_notices(xd_abort_notice *a, xd_exec *x)
{
    for (int i = 0; i < a->c->size && xd_ok(x); i++) {
        if (i == a->c->rank || !a->c->ops->test(a->c, &a->in[i]) || !a->received[i].code)
            continue;
        xd_fail(&x->err, (xd_status)a->received[i].code, "%s", a->received[i].msg);
        x->err.rank = a->received[i].rank;
    }
}

void xd_abort_notice_watch(xd_abort_notice *a, xd_exec *x)
{
    double now = xd_now_s();
    if (!xd_ok(x)) {
        xd_abort_notice_send(a, &x->err);
    } else if (now - a->checked_s > PAUSE_S) {
        a->checked_s = now;
        check_notices(a, x);
    }
}

xd_status xd_abort_notice_reset(xd_abort_notice *a, xd_err *e)
{
    if (!a)
        return XD_OK;
    if (!a->sent) {
        a->mine = (notice){ 0 };
        send_notices(a);
    }
    int ok = a->c->ops->wait(a->c, a->in, a->c->size) == XD_OK;
    ok = a->c->ops->wait(a->c, a->out, a->c->size) == XD_OK && ok;
    memset(a->received, 0, (size_t)a->c->size * sizeof *a->received);
    if (!ok)
        return xd_fail(e, XD_ECOMM, "a message between ranks failed");
    post_receives(a);
    return XD_OK;
}
