/* memory_budget.c - limits the memory of all engines of a program together */
#include "pipeline/memory_budget.h"

#include <stdio.h>

static atomic_llong all_held; /* bytes of weights in all engines of this process */

xd_status xd_budget_check(int64_t bytes, xd_err *e)
{
    return bytes >= 0 ? XD_OK
                      : xd_fail(e, XD_EINVAL,
                                "memory is %lld; it must be a number of "
                                "bytes, or 0 for all free memory",
                                (long long)bytes);
}

double xd_budget_least(const xd_context *ctx, double have)
{
    return ctx->budget > 0 && ctx->budget < have ? ctx->budget : have;
}

double xd_budget_left(const xd_context *ctx, double have, double held)
{
    double left = ctx->budget > held ? ctx->budget - held : 0;
    return ctx->budget > 0 && left < have ? left : have;
}

void xd_budget_text(const xd_context *ctx, int tight, const char *who, double have, char *out,
                    size_t size)
{
    if (tight)
        snprintf(out, size, "a budget of %s (--memory)%s%s", xd_size_text(ctx->budget).s,
                 have < ctx->budget ? ", of which other engines leave " : "",
                 have < ctx->budget ? xd_size_text(have).s : "");
    else
        snprintf(out, size, "%s and %s are available", who, xd_size_text(have).s);
}

void xd_budget_hold(xd_context *ctx, double bytes)
{
    if (ctx->borrowed) /* the engine that loaded the borrowed weights counts their bytes */
        return;
    atomic_fetch_add(&all_held, (long long)bytes - ctx->holds);
    ctx->holds = (long long)bytes;
}

double xd_budget_elsewhere(const xd_context *ctx)
{
    long long all = atomic_load(&all_held);
    return ctx->borrowed || all < ctx->holds ? 0 : (double)(all - ctx->holds);
}
