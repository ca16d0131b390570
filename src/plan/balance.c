/* balance.c - measures the speed of every rank, and sizes the ranks' shards of tokens, heads,
 * stages and rows accordingly.
 *
 * Speeds are rounded to 1/32 of the fastest rank's speed, so that two runs on one machine have
 * equal shards. */
#include "plan/balance.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "plan/plan.h"
#include "ranks/world.h"

/* MOST_OF_FOUR: quarters of an even share that a rank may have at most after a change. */
enum { SIDE = 256, RUNS = 24, UNIT = 32, MOST_OF_FOUR = 6 };

#define LEAST_S 0.06            /* seconds per speed test; more than a scheduler's time slice */

struct xd_balance {
    int         nsp, U, P, bands;
    /* Prefix sums of speeds: `rows` has bands + 1 values, `heads` has U + 1, and `share` has nsp
     * + 1. */
    int64_t    *share, *heads, *rows;
    double     *stage;  /* [P]: speed relative to the fastest stage */
    int         staged; /* 1: stages have different speeds */
    float      *speed;  /* [nspeed]: speed relative to the fastest rank */
    int         nspeed;
    xd_balance *older; /* shares before the last change; NULL: none */
};

/* ---- measuring ---------------------------------------------------------------------------- */

typedef struct test { /* the speed test: a GEMM of square matrices on a device */
    xd_dev   *d;
    xd_weight w;
    void     *in, *out, *tmp;
    size_t    bytes, ntmp;
} test;

static void close_test(test *t)
{
    void  *p[] = { t->w.p, t->in, t->out, t->tmp };
    size_t n[] = { t->w.bytes, t->bytes, t->bytes, t->ntmp };
    for (int i = 0; i < 4; i++)
        if (p[i])
            t->d->mem->put(t->d, p[i], n[i]);
}

/* Runs the test GEMM several times. Returns the time of the fastest run in seconds, because this
 * run was least slowed down by other processes. */
static double fastest_run(test *t, xd_dtype type, xd_err *e)
{
    xd_dev *d = t->d;
    double  best = 0, end = xd_now_s() + LEAST_S;
    t->bytes = (size_t)SIDE * SIDE * 4;
    t->w = (xd_weight){ .type = type,
                        .out = SIDE,
                        .in = SIDE,
                        .kernel = { 1, 1, 1 },
                        .stride = { 1, 1, 1 },
                        .groups = 1 };
    t->w.bytes = d->ops->pack_size(d, &t->w);
    xd_gemm a = { .w = &t->w,
                  .in = xd_view2(t->in = d->mem->get(d, t->bytes), type, SIDE, SIDE),
                  .out = xd_view2(t->out = d->mem->get(d, t->bytes), XD_F32, SIDE, SIDE) };
    size_t  scratch = d->ops->scratch(d, XD_OP_GEMM, &a), pack = d->ops->pack_tmp(d, &t->w, XD_F32);
    t->ntmp = (scratch > pack ? scratch : pack) + 64;
    t->w.p = d->mem->get(d, t->w.bytes);
    t->tmp = d->mem->get(d, t->ntmp);
    if (!t->in || !t->out || !t->w.p || !t->tmp) {
        xd_fail(e, XD_ENOMEM, "no memory for a GEMM of %d x %d matrices", SIDE, SIDE);
        return 0;
    }
    d->mem->fill(d, NULL, t->in, 0, t->bytes);
    d->mem->fill(d, NULL, t->out, 0, t->bytes);
    /* The weights of the speed test are read from host memory and rearranged for the kernels, as a
     * model's weights are. */
    float    *zeros = calloc((size_t)SIDE * SIDE, sizeof *zeros);
    xd_status s = zeros ? d->ops->pack(d, &t->w, xd_view2(zeros, XD_F32, SIDE, SIDE), t->tmp)
                        : xd_fail(e, XD_ENOMEM, "no memory for a matrix of %d x %d", SIDE, SIDE);
    free(zeros);
    if (s != XD_OK)
        return 0;
    for (int i = 0; i < RUNS || xd_now_s() < end; i++) {
        double t0 = xd_now_s();
        if (d->ops->gemm(d, NULL, &a, t->tmp) != XD_OK)
            return 0;
        d->mem->sync(d, NULL);
        double took = xd_now_s() - t0;
        best = i == 0 || took < best ? took : best;
    }
    return best;
}

/* ---- shards ------------------------------------------------------------------------------- */

static int coordinate_of(const xd_degrees *d, int rank, xd_axis a)
{
    for (int i = 0; i < (int)a; i++)
        rank /= d->n[i];
    return rank % d->n[a];
}

/* Returns the speed of the slowest rank that has shard i. The function `part` returns the shard of
 * a rank; several ranks may have the same shard. */
static double slowest_rank(const xd_plan *plan, const float *speed,
                           int (*part)(const xd_degrees *d, int rank), int i)
{
    double v = 1;
    for (int r = 0; r < xd_degrees_product(plan->deg); r++)
        if (part(&plan->deg, r) == i)
            v = fmin(v, (double)speed[r]);
    return v;
}

static int sp_of(const xd_degrees *d, int rank)
{
    return coordinate_of(d, rank, XD_ULYSSES) + coordinate_of(d, rank, XD_RING) * d->n[XD_ULYSSES];
}

static int ulysses_of(const xd_degrees *d, int rank)
{
    return coordinate_of(d, rank, XD_ULYSSES);
}

static int band_of(const xd_degrees *d, int rank)
{
    return rank % (xd_degrees_product(*d) / d->n[XD_DATA]);
}

/* Returns prefix sums: at[i + 1] - at[i] is the speed of the ranks with shard i. The unit is 1/32
 * of the fastest rank's speed. Returns NULL if all shards have equal speeds. */
static int64_t *prefix_sums(const xd_plan *plan, const float *speed, int n,
                            int (*part)(const xd_degrees *, int), int *bad)
{
    int64_t *at = calloc((size_t)n + 1, sizeof *at), least = UNIT;
    *bad |= !at;
    for (int i = 0; i < n && at; i++) {
        int64_t w = llrint(UNIT * slowest_rank(plan, speed, part, i));
        w = w < 1 ? 1 : w;
        at[i + 1] = at[i] + w;
        least = w < least ? w : least;
    }
    if (at && at[n] == least * n) {
        free(at);
        return NULL;
    }
    return at;
}

static double share_of(const xd_balance *b, int sp)
{
    return b->share ? (double)(b->share[sp + 1] - b->share[sp]) / (double)b->share[b->nsp]
                    : 1.0 / b->nsp;
}

/* Sets the speed of every pipeline stage. The time of a stage is the time of the rank that finishes
 * its tokens last, and the stage's speed is the inverse of this time. */
static void set_stages(xd_balance *b, const xd_plan *plan)
{
    const xd_degrees *d = &plan->deg;
    double            best = 0;
    for (int s = 0; s < b->P; s++) {
        double longest = 0;
        for (int r = 0; r < xd_degrees_product(*d); r++)
            if (coordinate_of(d, r, XD_PIPE) == s)
                longest = fmax(longest, share_of(b, sp_of(d, r)) / (double)b->speed[r]);
        b->stage[s] = 1 / longest;
        best = fmax(best, b->stage[s]);
    }
    for (int s = 0; s < b->P; s++) {
        b->stage[s] /= best;
        b->staged |= b->stage[s] < 0.99;
    }
}

/* Raises the lowest of n shares until no share is above MOST_OF_FOUR quarters of an even one. */
static void limit_shares(int64_t *at, int n)
{
    for (int64_t floor = 2; at && floor <= UNIT && 4 * UNIT * n > MOST_OF_FOUR * at[n]; floor++)
        for (int64_t i = 0, sum = 0, next = at[0]; i < n; i++) {
            int64_t w = at[i + 1] - next;
            next = at[i + 1];
            sum += w < floor ? floor : w;
            at[i + 1] = sum;
        }
}

/* Sets the shares of tokens and of heads. */
static void share_tokens(xd_balance *b, const xd_plan *plan, int *bad)
{
    b->share = prefix_sums(plan, b->speed, b->nsp, sp_of, bad);
    b->heads = prefix_sums(plan, b->speed, b->U, ulysses_of, bad);
}

static void set_sizes(xd_balance *b, const xd_degrees *d)
{
    b->U = d->n[XD_ULYSSES], b->nsp = b->U * d->n[XD_RING], b->P = d->n[XD_PIPE];
    b->bands = xd_degrees_product(*d) / d->n[XD_DATA];
}

static xd_status make_balance(const xd_plan *plan, xd_balance *b, xd_err *e)
{
    int bad = 0;
    set_sizes(b, &plan->deg);
    share_tokens(b, plan, &bad);
    b->rows = prefix_sums(plan, b->speed, b->bands, band_of, &bad);
    b->stage = calloc((size_t)b->P, sizeof *b->stage);
    if (bad || !b->stage)
        return xd_fail(e, XD_ENOMEM, "no memory for the shards of %d ranks",
                       xd_degrees_product(plan->deg));
    set_stages(b, plan);
    return XD_OK;
}

/* Replaces the values in v, which are the test times of all ranks in seconds, by speeds relative to
 * the fastest rank, rounded to 1/32. Returns the lowest speed of all ranks. */
static double to_speeds(float *v, int n)
{
    float best = v[0], least = 1;
    for (int i = 1; i < n; i++)
        best = v[i] < best ? v[i] : best;
    for (int i = 0; i < n; i++) {
        v[i] = fmaxf(rintf(UNIT * best / v[i]), 1) / UNIT;
        least = fminf(least, v[i]);
    }
    return (double)least;
}

static xd_status gather_speeds(xd_comm *c, float mine, float *all, xd_err *e)
{
    int64_t *one = calloc((size_t)c->size, sizeof *one);
    if (!one)
        return xd_fail(e, XD_ENOMEM, "no memory to compare %d ranks", c->size);
    for (int i = 0; i < c->size; i++)
        one[i] = 1;
    xd_req q =
        c->ops->gather(c, xd_view2(all, XD_F32, c->size, 1), one, xd_view2(&mine, XD_F32, 1, 1));
    xd_status s = c->ops->wait(c, &q, 1);
    free(one);
    return s == XD_OK ? XD_OK : xd_fail(e, XD_ECOMM, "the ranks' speeds could not be exchanged");
}

/* Measures the speeds of the ranks of a group, and sets *out to an object without shares. The call
 * is collective over the group. */
static xd_status measure(xd_balance **out, xd_comm *c, xd_dev *dev, xd_dtype type, xd_err *e)
{
    test        t = { .d = dev };
    xd_balance *b = *out = calloc(1, sizeof *b);
    xd_status   s = b && (b->speed = calloc((size_t)c->size, sizeof *b->speed))
                        ? XD_OK
                        : xd_fail(e, XD_ENOMEM, "no memory for the shards of %d ranks", c->size);
    double      took = s == XD_OK ? fastest_run(&t, type, e) : 0;
    close_test(&t);
    if (s == XD_OK && took <= 0)
        s = e->code ? e->code : xd_fail(e, XD_EDEVICE, "the speed of this rank cannot be measured");
    s = xd_world_agree_in(c, c->rank, s, e);
    if (b)
        b->nspeed = c->size;
    return s == XD_OK ? gather_speeds(c, (float)took, b->speed, e) : s;
}

xd_status xd_balance_open(xd_balance **out, const xd_world *w, const xd_plan *plan, xd_dev *dev,
                          xd_dtype type, xd_err *e)
{
    int         n = w->used->size;
    xd_balance *b;
    xd_status   s = measure(&b, w->used, dev, type, e);
    int         even = s != XD_OK || to_speeds(b->speed, n) > 0.9;
    if (!even)
        s = make_balance(plan, b, e);
    if (s != XD_ECOMM)
        s = xd_world_agree(w, s, e);
    if (s != XD_OK || even)
        xd_balance_close(&b);
    if (s == XD_OK && even && w->used->rank == 0)
        xd_log(XD_LOG_INFO, "balance: all ranks are equally fast within a tenth");
    *out = b;
    return s;
}

void xd_balance_close(xd_balance **b)
{
    while (*b)
        xd_balance_undo(b);
}

/* ---- changes during a request ---------------------------------------------------------------- */

static int64_t *copy_of(const int64_t *at, int n, int *bad)
{
    size_t   bytes = ((size_t)n + 1) * sizeof *at;
    int64_t *copy = at ? malloc(bytes) : NULL;
    *bad |= at && !copy;
    if (copy)
        memcpy(copy, at, bytes);
    return copy;
}

/* Takes the shares of stages and rows from `old`, which may be NULL. */
static void keep_stages(xd_balance *b, const xd_balance *old, int *bad)
{
    b->rows = copy_of(old ? old->rows : NULL, b->bands, bad);
    b->staged = old && old->staged;
    if (!b->staged)
        return;
    b->stage = malloc((size_t)b->P * sizeof *b->stage);
    *bad |= !b->stage;
    if (b->stage)
        memcpy(b->stage, old->stage, (size_t)b->P * sizeof *b->stage);
}

/* Returns the time of a step with the shares of `b` on ranks of these speeds, in units of that of
 * one rank of speed 1. */
static double step_time(const xd_balance *b, const xd_plan *replica, const float *speed)
{
    double longest = 0;
    for (int i = 0; i < b->nsp; i++)
        longest = fmax(longest, share_of(b, i) / slowest_rank(replica, speed, sp_of, i));
    return longest;
}

xd_status xd_balance_again(xd_balance **b, xd_comm *c, const xd_plan *plan, xd_dev *dev,
                           xd_dtype type, int *changed, xd_err *e)
{
    const double GAIN = 1.08;
    xd_plan      replica = *plan;
    xd_balance  *next, even = { .nsp = 1 }, *old = *b ? *b : &even;
    int          bad = 0;
    *changed = 0;
    xd_status s = measure(&next, c, dev, type, e);
    if (s == XD_OK) {
        replica.deg.n[XD_DATA] = 1;
        set_sizes(next, &replica.deg);
        even.nsp = next->nsp;
        to_speeds(next->speed, c->size);
        share_tokens(next, &replica, &bad);
        limit_shares(next->share, next->nsp);
        limit_shares(next->heads, next->U);
        keep_stages(next, *b, &bad);
        *changed = !bad && step_time(old, &replica, next->speed) >
                               GAIN * step_time(next, &replica, next->speed);
        s = bad ? xd_fail(e, XD_ENOMEM, "no memory for the shards of %d ranks", c->size) : XD_OK;
    }
    if (s != XD_ECOMM)
        s = xd_world_agree_in(c, c->rank, s, e);
    if (s == XD_OK && *changed) {
        next->older = *b;
        *b = next;
    } else {
        xd_balance_close(&next);
    }
    return s;
}

void xd_balance_undo(xd_balance **b)
{
    xd_balance *top = *b;
    *b = top->older;
    free(top->share), free(top->heads), free(top->rows), free(top->stage), free(top->speed);
    free(top);
}

/* Returns prefix sums of n shares of which share `mine` is MOST_OF_FOUR quarters of an even one. */
static int64_t *largest_share(int n, int mine, int *bad)
{
    int64_t *at = n > 1 ? calloc((size_t)n + 1, sizeof *at) : NULL;
    *bad |= n > 1 && !at;
    for (int i = 0; i < n && at; i++)
        at[i + 1] = at[i] + (i == mine ? MOST_OF_FOUR * (n - 1) : 4 * n - MOST_OF_FOUR);
    return at;
}

xd_status xd_balance_largest(xd_balance **out, const xd_plan *plan, int at, xd_err *e)
{
    xd_balance *b = *out = calloc(1, sizeof *b);
    int         bad = !b;
    if (b) {
        set_sizes(b, &plan->deg);
        b->share = largest_share(b->nsp, sp_of(&plan->deg, at), &bad);
        b->heads = largest_share(b->U, ulysses_of(&plan->deg, at), &bad);
    }
    if (bad)
        xd_balance_close(out);
    return bad ? xd_fail(e, XD_ENOMEM, "no memory for the shards of ranks") : XD_OK;
}

int xd_balance_uneven(const xd_balance *b)
{
    return b && b->share;
}

/* ---- applying the shards --------------------------------------------------------------------- */

void xd_balance_tokens(const xd_balance *b, xd_layout *l)
{
    if (b && l->nsp == b->nsp) {
        l->share = b->share;
        l->heads = b->heads;
    }
}

void xd_balance_rows(const xd_balance *b, xd_layout *l)
{
    if (b && l->nsp == b->bands && l->nsp > 1)
        l->share = b->rows;
}

const double *xd_balance_stages(const xd_balance *b)
{
    return b && b->staged ? b->stage : NULL;
}

static void list_shares(char *out, size_t size, const char *what, int64_t whole, int n,
                        const int64_t *at)
{
    size_t k = strlen(out);
    for (int i = 0; i < n && n > 1 && k < size; i++) {
        int64_t v = xd_cut_at((xd_span){ 0, whole }, i, n, at).n;
        int     m =
            snprintf(out + k, size - k, "%s%s%lld", i ? " + " : what, i ? "" : " ", (long long)v);
        k += m > 0 ? (size_t)m : 0;
    }
}

void xd_balance_log(const xd_balance *b, const xd_comm *used, const char *when, int64_t tokens,
                    int heads, int64_t rows)
{
    char   text[512] = "";
    size_t k = 0;
    if (!b || used->rank)
        return;
    for (int r = 0; r < b->nspeed && k < sizeof text; r++) {
        int m = snprintf(text + k, sizeof text - k, " %.2f", (double)b->speed[r]);
        k += m > 0 ? (size_t)m : 0;
    }
    list_shares(text, sizeof text, "; tokens", tokens, b->nsp, b->share);
    list_shares(text, sizeof text, "; heads", heads, b->U, b->heads);
    if (rows)
        list_shares(text, sizeof text, "; rows", rows, b->bands, b->rows);
    xd_log(XD_LOG_INFO, "balance:%s%s speeds%s", *when ? " " : "", when, text);
}
