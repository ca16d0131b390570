/* bench_compare.c - runs rounds of a plan and of a single rank alternately, and reports the
 * comparison */
#include "report/bench_compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "ranks/world.h"
#include "report/quiet.h"

static xd_comm *used_ranks(const xd_bench_pair *d)
{
    return d->all.g->ctx.world.used;
}

/* ---- waiting and agreeing ----------------------------------------------------------------- */

/* Returns the maximum, or the sum, of a value over all ranks. */
static double of_all(const xd_bench_pair *d, double v, xd_red op)
{
    xd_comm *c = used_ranks(d);
    int64_t  one = 1;
    xd_req   r = c->ops->allreduce(c, xd_view(&v, XD_F64, 1, &one), op);
    c->ops->wait(c, &r, 1);
    return v;
}

/* ---- a round ------------------------------------------------------------------------------ */

/* Runs the plan's timed steps, and returns the mean seconds of a step on the slowest rank. */
static double run_on_plan(xd_bench_pair *d, int counts)
{
    const xd_traffic *sent = used_ranks(d)->traffic;
    for (int i = 0; i < d->lead; i++)
        d->work(d, &d->all);
    int64_t before = sent->bytes;
    double  t0 = xd_now_s();
    for (int i = 0; i < d->span; i++) {
        d->work(d, &d->all);
        if (i == 0 && !d->sent[0])
            d->sent[0] = sent->bytes - before;
    }
    double t = xd_now_s() - t0;
    if (counts)
        d->sent[1] += sent->bytes - before;
    else
        d->sent[0] = 0;
    return of_all(d, t / d->span, XD_MAX);
}

static double run_alone(xd_bench_pair *d)
{
    double t0 = xd_now_s();
    d->work(d, &d->one);
    return xd_now_s() - t0;
}

/* Runs round i of the comparison; a round with a negative index is not reported. */
static void run_round(xd_bench_pair *d, int i)
{
    xd_comm *c = used_ranks(d);
    double   t[XD_NRUNS] = { 0 };
    if (c->rank == 0)
        t[XD_RUN_ALONE] = run_alone(d);
    xd_quiet(c);
    c->ops->barrier(c);
    t[XD_RUN_PLAN] = run_on_plan(d, i >= 0);
    c->ops->barrier(c);
    t[XD_RUN_BUSY] = of_all(d, run_alone(d), XD_SUM) / c->size;
    for (int k = 0; k < XD_NRUNS && i >= 0; k++)
        d->t[k][i] = t[k];
}

xd_status xd_bench_pair_run(xd_bench_pair *d, xd_err *e)
{
    xd_status s = XD_OK;
    d->sent[0] = d->sent[1] = 0;
    for (int i = 0; i < d->exact; i++)
        d->work(d, &d->all);
    for (int i = -d->warm; s == XD_OK && i < d->rounds; i++) {
        run_round(d, i);
        if (!d->all.going || !d->one.going)
            s = xd_fail(e, XD_ECOMM, "a step of another rank failed");
        s = xd_world_agree(&d->all.g->ctx.world, s, e);
    }
    return s;
}

/* ---- reporting ---------------------------------------------------------------------------- */

typedef struct ratio { double low, mid, high; } ratio;

/* Computes the ratio `times` * a / b for each round. Returns the median and the range of the
 * ratios. */
static ratio compare_rounds(const xd_bench_pair *d, const double *a, const double *b, double times)
{
    double v[XD_MAXROUNDS];
    for (int i = 0; i < d->rounds; i++)
        v[i] = b ? times * a[i] / b[i] : times * a[i];
    double mid = xd_bench_median(v, d->rounds);
    return (ratio){ v[0], mid, v[d->rounds - 1] };
}

typedef struct verdict {
    /* t: seconds of each kind of run. gain and busy: parallel efficiency of the plan. `gain` is
     * relative to one rank that computes alone, and `busy` to one rank that computes while all
     * other ranks do the same work. */
    ratio    t[XD_NRUNS], gain, busy;
    /* [ranks][4]: bytes that each rank sends. Element 0 is measured in the first timed step,
     * element 1 in all timed steps; elements 2 and 3 are the same two values, as counted before the
     * measurement. */
    int64_t *bytes;
    int64_t  sum[2]; /* bytes that all ranks send in a step: [0] measured, [1] counted */
    int      same;
} verdict;

/* Computes the results of all rounds. This function is collective: every rank gets the values of
 * all ranks. */
static xd_status judge_rounds(const xd_bench_pair *d, verdict *v, xd_err *e)
{
    xd_comm *c = used_ranks(d);
    int64_t  mine[4] = { d->sent[0], d->sent[1], d->count[0], d->count[1] };
    int64_t *rows = calloc((size_t)c->size, sizeof *rows);
    double   share = (double)d->all.g->ctx.plan.deg.n[XD_DATA] / c->size;
    *v = (verdict){ .bytes = calloc((size_t)c->size, sizeof mine), .same = 1 };
    if (!rows || !v->bytes)
        c->ops->abort(c, 1);
    for (int i = 0; i < c->size; i++)
        rows[i] = 1;
    xd_req r = c->ops->gather(c, xd_view2(v->bytes, XD_I64, c->size, 4), rows,
                              xd_view2(mine, XD_I64, 1, 4));
    free(rows);
    if (c->ops->wait(c, &r, 1) != XD_OK)
        return xd_fail(e, XD_ECOMM, "exchanging the ranks' results failed");
    for (int i = 0; i < c->size; i++) {
        const int64_t *b = v->bytes + 4 * i;
        v->sum[0] += b[0];
        v->sum[1] += b[2];
        v->same &= b[0] == b[2] && b[1] == b[3];
    }
    for (int k = 0; k < XD_NRUNS; k++)
        v->t[k] = compare_rounds(d, d->t[k], NULL, 1);
    v->gain = compare_rounds(d, d->t[XD_RUN_ALONE], d->t[XD_RUN_PLAN], share);
    v->busy = compare_rounds(d, d->t[XD_RUN_BUSY], d->t[XD_RUN_PLAN], share);
    return XD_OK;
}

static void write_seconds(const xd_bench_pair *d, const char *what, ratio r)
{
    xd_bench_print(d->a, "    %-34s %10.3f ms  (%.3f to %.3f)", what, r.mid * 1e3, r.low * 1e3,
                   r.high * 1e3);
}

static void write_text(const xd_bench_pair *d, const char *name, const char *what, const verdict *v)
{
    int  n = used_ranks(d)->size;
    char plan[64];
    xd_bench_print(d->a, "%-4s %s; %.2f GFLOP on one rank; median (range) of %d rounds", name, what,
                   d->flops / 1e9, d->rounds);
    snprintf(plan, sizeof plan, "the plan on %d rank%s, %s", n, n == 1 ? "" : "s", d->unit);
    write_seconds(d, "one rank, other ranks asleep", v->t[XD_RUN_ALONE]);
    write_seconds(d, plan, v->t[XD_RUN_PLAN]);
    write_seconds(d, "one rank, other ranks busy", v->t[XD_RUN_BUSY]);
    xd_bench_print(d->a,
                   "    speed-up %.3f, efficiency %.3f (%.3f to %.3f); against busy ranks "
                   "%.3f (%.3f to %.3f)",
                   v->gain.mid * n, v->gain.mid, v->gain.low, v->gain.high, v->busy.mid,
                   v->busy.low, v->busy.high);
    for (int i = 0; i < n; i++)
        xd_bench_print(d->a, "    rank %-3d sent %14lld bytes, predicted %14lld", i,
                       (long long)v->bytes[4 * i], (long long)v->bytes[4 * i + 2]);
    xd_bench_print(d->a, "    total    sent %14lld bytes, predicted %14lld: %s",
                   (long long)v->sum[0], (long long)v->sum[1],
                   v->same ? "as predicted, in every round" : "NOT as predicted");
}

static void add_list(xd_text_buf *t, const char *name, const double *v, int n)
{
    xd_buf_add(t, "\"%s\": [", name);
    for (int i = 0; i < n; i++)
        xd_buf_add(t, "%s%.6g", i ? ", " : "", v[i]);
    xd_buf_add(t, "], ");
}

static void add_bytes(xd_text_buf *t, const char *name, const verdict *v, int n, int at)
{
    xd_buf_add(t, "\"%s\": [", name);
    for (int i = 0; i < n; i++)
        xd_buf_add(t, "%s%lld", i ? ", " : "", (long long)v->bytes[4 * i + at]);
    xd_buf_add(t, "], ");
}

static void write_json(xd_bench_pair *d, const char *name, const char *what, const verdict *v)
{
    xd_text_buf t = { 0 };
    int         n = used_ranks(d)->size;
    xd_buf_add(&t,
               "%s{\"part\": \"%s\", \"what\": \"%s\", \"gflop\": %.6g, \"rounds\": %d, "
               "\"alone_s\": %.6g, \"plan_s\": %.6g, \"busy_s\": %.6g, ",
               d->parts++ ? ", " : "", name, what, d->flops / 1e9, d->rounds,
               v->t[XD_RUN_ALONE].mid, v->t[XD_RUN_PLAN].mid, v->t[XD_RUN_BUSY].mid);
    xd_buf_add(&t,
               "\"speedup\": %.6g, \"efficiency\": %.6g, \"efficiency_range\": [%.6g, %.6g], "
               "\"efficiency_busy\": %.6g, \"efficiency_busy_range\": [%.6g, %.6g], ",
               v->gain.mid * n, v->gain.mid, v->gain.low, v->gain.high, v->busy.mid, v->busy.low,
               v->busy.high);
    add_list(&t, "alone", d->t[XD_RUN_ALONE], d->rounds);
    add_list(&t, "plan", d->t[XD_RUN_PLAN], d->rounds);
    add_list(&t, "busy", d->t[XD_RUN_BUSY], d->rounds);
    add_bytes(&t, "sent", v, n, 0);
    add_bytes(&t, "predicted", v, n, 2);
    xd_buf_add(&t, "\"sent_all\": %lld, \"predicted_all\": %lld, \"as_predicted\": %s}",
               (long long)v->sum[0], (long long)v->sum[1], v->same ? "true" : "false");
    if (d->a->line && !t.failed)
        d->a->line(d->a->cookie, t.p);
    xd_buf_free(&t);
}

xd_status xd_bench_pair_report(xd_bench_pair *d, const char *name, const char *what, xd_err *e)
{
    verdict   v;
    xd_status s = judge_rounds(d, &v, e);
    if (s == XD_OK && used_ranks(d)->rank == 0) {
        if (d->a->json)
            write_json(d, name, what, &v);
        else
            write_text(d, name, what, &v);
    }
    free(v.bytes);
    return s;
}
