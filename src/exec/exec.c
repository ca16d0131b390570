/* exec.c - implements the execution context of a pass: records the first error, and computes to
 * which tokens the rows of a tensor belong */
#include "exec/exec.h"

#include <stdio.h>
#include <string.h>

xd_status xd_exec_status(const xd_exec *x, xd_err *e)
{
    if (x->err.code == XD_OK)
        return XD_OK;
    xd_fail(e, x->err.code, "%s", x->err.msg);
    if (e)
        e->rank = x->err.rank;
    return x->err.code;
}

void xd_exec_init(xd_exec *x, xd_dev *dev, xd_arena *tmp, xd_dtype act)
{
    memset(x, 0, sizeof *x);
    x->dev = dev;
    x->tmp = tmp;
    x->hooks = &xd_hooks_local;
    x->act = act;
    x->B = 1;
    x->patch = XD_ALL;
    x->exact = 1;
    x->layer = -1;
    x->err.rank = -1;
}

int xd_ok(const xd_exec *x)
{
    return x->err.code == XD_OK;
}

void xd_pause(xd_exec *x)
{
    if (x->pause)
        x->pause(x->pauser, x);
}

int xd_counting(const xd_exec *x)
{
    return x->dev->counts;
}

static void record_failure(xd_exec *x, xd_status code, const char *fmt, va_list ap)
{
    if (!xd_ok(x))
        return;
    xd_vfail(&x->err, code, fmt, ap);
    size_t at = strlen(x->err.msg);
    if (x->layer >= 0)
        snprintf(x->err.msg + at, sizeof x->err.msg - at, " (step %d, block %d)", x->step + 1,
                 x->layer);
}

void xd_exec_fail(xd_exec *x, xd_status code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    record_failure(x, code, fmt, ap);
    va_end(ap);
}

int xd_check(xd_exec *x, int cond, const char *fmt, ...)
{
    if (cond)
        return 1;
    va_list ap;
    va_start(ap, fmt);
    record_failure(x, XD_EINVAL, fmt, ap);
    va_end(ap);
    return 0;
}

int64_t xd_n(const xd_exec *x, xd_stream_id s)
{
    int64_t n = 0;
    for (int p = 0; p < x->lay->npatch; p++)
        if (x->patch == XD_ALL || x->patch == p)
            n += xd_own(x->lay, s, p, x->sp).n;
    return n;
}

int64_t xd_where(const xd_exec *x, xd_stream_id s, int64_t row)
{
    return xd_token(x->lay, s, x->patch, x->sp, row);
}

int64_t xd_where_run(const xd_exec *x, xd_stream_id s, int64_t row)
{
    return xd_token_run(x->lay, s, x->patch, x->sp, row);
}
