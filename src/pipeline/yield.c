/* yield.c - lets other engines of the program run at certain points of a request */
#include "pipeline/yield.h"

#include "base/clock.h"
#include "pipeline/context.h"
#include "ranks/world.h"

/* Returns 1 if the request may let other engines run; the result is equal on all ranks. */
static int can_yield(const xd_job *j)
{
    const xd_context *ctx = j->ctx;
    return j->r->callbacks.on_turn && ctx->plan.deg.n[XD_DATA] == 1 &&
           ctx->world.used->size == ctx->world.all->size;
}

static xd_status call_on_turn(xd_job *j, xd_err *e)
{
    double    t0 = xd_now_s();
    xd_err    mine = { .rank = -1 };
    xd_status s = j->r->callbacks.on_turn(j->r->callbacks.cookie, &mine);
    j->away_s += xd_now_s() - t0;
    return s == XD_OK ? s : xd_fail(e, s, "%s", mine.msg);
}

xd_status xd_yield_now(xd_job *j, xd_err *e)
{
    if (!can_yield(j))
        return XD_OK;
    xd_status s = call_on_turn(j, e);
    xd_yield_seconds(j); /* the times of the stages exclude the time for which other engines ran */
    return xd_world_agree(&j->ctx->world, s, e);
}

static void yield_or_fail(xd_job *j, xd_exec *x)
{
    xd_err e = { .rank = -1 };
    if (call_on_turn(j, &e) != XD_OK)
        xd_exec_fail(x, e.code, "%s", e.msg);
}

void xd_yield_in_step(xd_job *j, xd_exec *x)
{
    if (can_yield(j))
        yield_or_fail(j, x);
}

/* Called when an op pauses: lets other engines run if no rank has failed. After the failure of one
 * rank, no rank yields any more, because a failed or cancelled request must not wait for other
 * engines. */
static void yield_at_pause(void *pauser, xd_exec *x)
{
    xd_job *j = pauser;
    if (j->may_yield && (j->may_yield = xd_world_all(&j->ctx->world, xd_ok(x))))
        yield_or_fail(j, x);
}

void xd_yield_begin(xd_job *j)
{
    j->may_yield = can_yield(j);
}

void xd_yield_watch(xd_job *j, xd_exec *x)
{
    x->pause = j->may_yield ? yield_at_pause : NULL;
    x->pauser = j;
}

void xd_yield_end(xd_job *j)
{
    if (j->may_yield)
        xd_world_all(&j->ctx->world, 0);
    j->may_yield = 0;
}

xd_status xd_yield_follow(xd_job *j, xd_err *e)
{
    xd_status s = XD_OK;
    while (can_yield(j) && xd_world_all(&j->ctx->world, 1)) {
        xd_status mine = call_on_turn(j, s == XD_OK ? e : NULL);
        s = s == XD_OK ? mine : s;
    }
    return s;
}

double xd_yield_seconds(xd_job *j)
{
    double s = j->away_s - j->away_reported_s;
    j->away_reported_s = j->away_s;
    return s;
}
