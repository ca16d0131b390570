/* turns.c - turns of other engines between the parts of a request */
#include "pipeline/turns.h"

#include "base/clock.h"
#include "pipeline/context.h"
#include "ranks/world.h"

/* Are there turns at all? Equal on all ranks. */
static int has_turns(const xd_job *j)
{
    const xd_context *ctx = j->ctx;
    return j->r->on_turn && ctx->plan.deg.n[XD_DATA] == 1 &&
           ctx->world.used->size == ctx->world.all->size;
}

/* An engine beside another one lends what it has loaded, so that the others need not load it. */
static xd_status call_program(xd_job *j, xd_err *e)
{
    xd_context *ctx = j->ctx;
    double      t0 = xd_now_s();
    xd_err      mine = { .rank = -1 };
    if (ctx->lend)
        ctx->lend(ctx, 1);
    xd_status s = j->r->on_turn(j->r->cookie, &mine);
    if (ctx->lend)
        ctx->lend(ctx, 0);
    j->away_s += xd_now_s() - t0;
    return s == XD_OK ? s : xd_fail(e, s, "%s", mine.msg);
}

xd_status xd_turns_take(xd_job *j, xd_err *e)
{
    if (!has_turns(j))
        return XD_OK;
    xd_status s = call_program(j, e);
    xd_turns_seconds(j);        /* no part's                                                   */
    return xd_world_agree(&j->ctx->world, s, e);
}

static void turn_or_fail(xd_job *j, xd_exec *x)
{
    xd_err e = { .rank = -1 };
    if (call_program(j, &e) != XD_OK)
        xd_exec_fail(x, e.code, "%s", e.msg);
}

void xd_turns_step(xd_job *j, xd_exec *x)
{
    if (has_turns(j))
        turn_or_fail(j, x);
}

/* The first rank that does not go on ends the turns of all: a request that has failed, or is
 * cancelled, is not to wait for others. */
static void pause_for_turn(void *pauser, xd_exec *x)
{
    xd_job *j = pauser;
    if (j->in_turns && (j->in_turns = xd_world_all(&j->ctx->world, xd_ok(x))))
        turn_or_fail(j, x);
}

void xd_turns_begin(xd_job *j)
{
    j->in_turns = has_turns(j);
}

void xd_turns_watch(xd_job *j, xd_exec *x)
{
    x->pause = j->in_turns ? pause_for_turn : NULL;
    x->pauser = j;
}

void xd_turns_end(xd_job *j)
{
    if (j->in_turns)
        xd_world_all(&j->ctx->world, 0);
    j->in_turns = 0;
}

xd_status xd_turns_attend(xd_job *j, xd_err *e)
{
    xd_status s = XD_OK;
    while (has_turns(j) && xd_world_all(&j->ctx->world, 1)) {
        xd_status mine = call_program(j, s == XD_OK ? e : NULL);
        s = s == XD_OK ? mine : s;
    }
    return s;
}

double xd_turns_seconds(xd_job *j)
{
    double s = j->away_s - j->told_s;
    j->told_s = j->away_s;
    return s;
}
