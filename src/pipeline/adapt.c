/* adapt.c - decides between two steps whether the ranks' shares of the tokens change */
#include "pipeline/adapt.h"

#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "model/model.h"
#include "pipeline/context.h"
#include "pipeline/denoise_inside.h"
#include "pipeline/job.h"
#include "plan/balance.h"
#include "ranks/world.h"

/* A step is slow if it takes SLOWER times the fastest step with these shares. After SLOW_STEPS slow
 * steps in a row the speeds are measured, which takes about 0.06 s. A test that changes nothing
 * doubles the time until the next one, from LEAST_S to MOST_S. */
static const double SLOWER = 1.25, LEAST_S = 1, MOST_S = 60, UNEVEN_S = 5;
enum { SLOW_STEPS = 2 };

/* Returns 1 if shares may change during the request. */
static int is_adaptive(const xd_job *j)
{
    const xd_context *ctx = j->ctx;
    return ctx->adaptive && !ctx->borrowed && !j->audio_numbers && !ctx->dev->counts &&
           ctx->plan.deg.n[XD_ULYSSES] * ctx->plan.deg.n[XD_RING] > 1;
}

/* Returns 1 if the speeds are measured after a step: steps have become slow, or shares have been
 * uneven for some time. */
static int is_due(xd_denoise *f, double seconds)
{
    xd_pace *p = &f->j->pace;
    double   since = xd_now_s() - (p->tested_s > 0 ? p->tested_s : f->j->start_s);
    int      uneven = xd_balance_uneven(f->j->ctx->balance) && since >= UNEVEN_S;
    p->fastest = p->fastest > 0 ? fmin(p->fastest, seconds) : seconds;
    p->slow = seconds > SLOWER * p->fastest ? p->slow + 1 : 0;
    int due = since >= p->wait_s && (p->slow >= SLOW_STEPS || uneven);
    return xd_denoise_decide(f, due) && xd_ok(&f->x);
}

/* Returns 1 if the arenas of all ranks suffice for the new shares. */
static int fits(xd_loop *l, xd_err *e)
{
    xd_comm  *c = l->j->ctx->topo.replica;
    xd_need   need = { 0 };
    xd_status s = xd_memory_count_loop(l->j, l->w, &need, e);
    if (s == XD_OK && need.dit_tmp > l->a.cap)
        s = xd_fail(e, XD_ENOMEM, "other shares of the tokens need more memory");
    return xd_world_agree_in(c, c->rank, s, e) == XD_OK;
}

int xd_adapt(xd_loop *l, int from, double seconds)
{
    xd_job     *j = l->j;
    xd_context *ctx = j->ctx;
    xd_pace    *p = &j->pace;
    int         changed = 0;
    char        when[48];
    xd_err      e = { .rank = -1 };
    if (!is_adaptive(j) || !is_due(&l->f, seconds))
        return 0;
    xd_status s = xd_balance_again(&ctx->balance, ctx->topo.replica, &ctx->plan, ctx->dev,
                                   ctx->type, &changed, &e);
    if (s != XD_OK)
        xd_exec_fail(&l->f.x, s, "%s", e.msg);
    if (changed && !fits(l, &e)) {
        xd_balance_undo(&ctx->balance);
        changed = 0;
        xd_log(XD_LOG_DEBUG, "the shares stay: %s", e.msg);
    }
    snprintf(when, sizeof when, "from step %d of %d on:", from + 1, j->samp.steps);
    if (changed && s == XD_OK)
        xd_balance_log(ctx->balance, ctx->world.used, when, j->tokens,
                       xd_dit_key_heads(&ctx->model.dit_info), 0);
    *p = (xd_pace){ .fastest = changed ? 0 : seconds,
                    .tested_s = xd_now_s(),
                    .wait_s = changed ? LEAST_S : fmin(fmax(2 * p->wait_s, LEAST_S), MOST_S) };
    return changed && xd_ok(&l->f.x);
}
