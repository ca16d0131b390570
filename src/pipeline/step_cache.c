/* step_cache.c - implements step caches: decides in which steps transformer blocks are skipped, and
 * estimates what the skipped blocks would have contributed.
 *
 * A cache skips the middle range of blocks. The cached value of this range is its contribution to
 * the hidden states: the hidden states after the range minus the hidden states before the range,
 * for all rows of this rank and all token streams. The contribution is extrapolated by a Taylor
 * expansion, whose terms are differences of values and cycle through order + 1 buffers. The update
 * writes the new value of the range to the buffer of the highest difference, whose old content is
 * no longer needed. After the update, the buffers have changed roles: each difference has the
 * buffer that the next lower difference had before. */
#include "pipeline/step_cache.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "exec/op.h"
#include "exec/run.h"
#include "model/component.h"
#include "pipeline/denoise_inside.h"
#include "pipeline/job.h"

static const xd_cache_options *options_of(const xd_denoise *f)
{
    return &f->cache.spec->o;
}

static xd_cache_measure measure_of(const xd_denoise *f)
{
    return f->cache.spec->kind->measure;
}

int xd_cache_is_on(const xd_denoise *f)
{
    return f->cache.spec && f->cache.spec->kind;
}

/* Returns 1 if this pipeline stage decides whether blocks are skipped, because it has the first
 * block (after the model's leading blocks). Earlier stages compute all of their blocks. */
static int decides(const xd_denoise *f)
{
    return f->net->first <= f->cache.lead && f->cache.lead < f->net->last;
}

static int is_before(const xd_denoise *f)
{
    return f->net->last <= f->cache.lead;
}

static int slot_of(const xd_denoise *f, int unit)
{
    return unit == XD_ALL ? f->lay.npatch : unit;
}

static xd_cache_unit *unit_of(const xd_denoise *f)
{
    return &f->cache.pass[f->x.pass].unit[slot_of(f, f->x.patch)];
}

/* ---- allocating memory -------------------------------------------------------------------- */

/* Returns the number of hidden rows of a patch on this rank, in the pass with the longest text. */
static int64_t most_rows(const xd_denoise *f, int unit)
{
    xd_layout l = f->lay;
    l.txt_patch = unit != XD_ALL && f->plan->text_every ? unit : 0;
    return xd_own_rows(&l, unit, f->x.sp);
}

/* Returns the index of a patch's first row among all rows of this rank. */
static int64_t rows_before(const xd_denoise *f, int unit)
{
    int64_t n = 0;
    for (int p = 0; p < unit && unit != XD_ALL; p++)
        n += most_rows(f, p);
    return n;
}

static void set_range(xd_denoise *f)
{
    xd_step_cache *c = &f->cache;
    int            n = options_of(f)->first, end = f->net->nlayers - options_of(f)->last;
    c->lead = f->j->ctx->model.dit_info.lead;
    c->from = f->net->first;
    if (decides(f))
        c->from = c->lead + n < f->net->last ? c->lead + n : f->net->last;
    c->to = end < f->net->last ? end : f->net->last;
    c->to = c->to > c->from ? c->to : c->from;
    if (decides(f) && c->lead + n > c->from && !f->x.dev->counts)
        xd_log(XD_LOG_INFO, "cache %s: deciding after %d blocks, not %d, as the stage has no more",
               c->spec->kind->name, c->from - c->lead, n);
}

/* Allocates the copy of the measured tensor that is compared with the next step's tensor. It has
 * all image rows, or one row per patch if the measured tensor is equal for all rows. */
static xd_tensor new_before(xd_denoise *f)
{
    const xd_dit_info *d = &f->j->ctx->model.dit_info;
    int                here = decides(f);
    if (measure_of(f) == XD_CACHE_INPUT && d->probe_dim)
        return xd_new_f32(&f->x, here ? f->lay.npatch + 1 : 0, d->probe_dim);
    return xd_new_f32(&f->x, here ? xd_denoise_rows(f, XD_IMG, XD_ALL).n : 0, xd_dit_width(d));
}

static void open_pass(xd_denoise *f, int pass)
{
    xd_cache_pass *p = &f->cache.pass[pass];
    int64_t        all = most_rows(f, XD_ALL), apart = rows_before(f, f->lay.npatch);
    xd_tensor      like = f->pred[pass];
    if (!(p->unit = calloc((size_t)f->lay.npatch + 1, sizeof *p->unit)))
        xd_exec_fail(&f->x, XD_ENOMEM, "no memory for the bookkeeping of a cache");
    for (int i = 0; i <= options_of(f)->order; i++)
        p->value[i] = measure_of(f) == XD_CACHE_SCHEDULE
                          ? xd_new_f32(&f->x, like.d[0], like.d[1])
                          : xd_new_f32(&f->x, all > apart ? all : apart, f->h[0].d[1]);
    if (measure_of(f) != XD_CACHE_SCHEDULE)
        p->before = new_before(f);
}

void xd_cache_open(xd_denoise *f)
{
    f->cache.spec = &f->j->cache;
    if (!xd_cache_is_on(f))
        return;
    set_range(f);
    f->j->nchanges = f->begin ? f->j->nchanges : 0;
    for (int p = 0; p < f->j->npass; p++)
        if (xd_denoise_is_mine(f, p))
            open_pass(f, p);
}

void xd_cache_close(xd_denoise *f)
{
    for (int p = 0; p < XD_MAXPASS; p++) {
        free(f->cache.pass[p].unit);
        f->cache.pass[p] = (xd_cache_pass){ .unit = NULL };
    }
}

/* ---- values of the expansion -------------------------------------------------------------- */

/* Returns a view of the i-th term of the expansion for a patch or for all tokens. */
static xd_tensor value_at(const xd_denoise *f, int pass, const xd_cache_unit *u, int i, xd_span at)
{
    int n = options_of(f)->order + 1;
    return xd_rows(f->cache.pass[pass].value[(i + u->turn) % n], at.start, at.n);
}

/* Updates the differences of the expansion with a new value, which the caller has written to the
 * buffer of the highest difference. */
static void renew(xd_denoise *f, int pass, xd_cache_unit *u, int step, xd_span at)
{
    int       n = options_of(f)->order + 1;
    float     by = 1 / (float)(step - u->step);
    xd_tensor now = value_at(f, pass, u, n - 1, at);
    for (int i = 0; i < n - 1 && i < u->known; i++) {
        xd_tensor was = value_at(f, pass, u, i, at);
        xd_axpby(&f->x, was, by, now, -by);
        now = was;
    }
    u->turn = (u->turn + n - 1) % n;
    u->known = u->known < n ? u->known + 1 : n;
    u->step = step;
}

/* Computes to = by * to + p, where p is the value of the middle range that the Taylor expansion
 * predicts for `step`. */
static void expand(xd_denoise *f, int pass, const xd_cache_unit *u, int step, xd_span at,
                   xd_tensor to, float by)
{
    double share = 1;
    for (int i = 0; i < u->known; i++) {
        xd_axpby(&f->x, to, (float)share, value_at(f, pass, u, i, at), i ? 1 : by);
        share *= (double)(step - u->step) / (i + 1);
    }
}

static void count_reused(xd_denoise *f, xd_cache_unit *u, int reused)
{
    u->reused += reused;
    u->run = reused ? u->run + 1 : 0;
    f->cache.count[0] += reused;
    f->cache.count[1]++;
}

/* ---- measuring the relative change --------------------------------------------------------- */

/* Sums each row of t [n,C] and writes the sums to `to` [n,1] F32. The sums are computed in f64. */
static void sum_rows(xd_exec *x, xd_tensor to, xd_tensor t)
{
    size_t    mark = xd_arena_mark(x->tmp);
    int64_t   n = t.d[0];
    xd_tensor both = xd_new_as(x, XD_F64, 3, (int64_t[]){ n, 1, 2 }), sums = to;
    xd_run(x, XD_OP_MOMENTS, "sums of rows",
           &(xd_moments){ both, xd_reshape(t, 3, (int64_t[]){ n, 1, t.d[1] }), 1 });
    sums.type = XD_F64;
    sums.p = both.p, sums.s[0] = 2;
    xd_copy_to(x, to, sums);
    xd_arena_rewind(x->tmp, mark);
}

/* Returns the sum of |v| over the elements v of a contiguous tensor t [n,C]. |v| is computed as 2
 * max(v, 0) - v. The sum of a row does not depend on the rank that has this row. */
static double sum_magnitudes(xd_denoise *f, xd_tensor t)
{
    xd_exec  *x = &f->x;
    size_t    mark = xd_arena_mark(x->tmp);
    int64_t   n = t.d[0];
    double    sum = 0;
    xd_tensor sums = xd_new_f32(x, 2 * n, 1), above = xd_new_f32(x, n, t.d[1]);
    float    *host = n ? xd_denoise_buffer(f, 2 * n, "the sums of a cache") : NULL;
    if (n) {
        sum_rows(x, xd_rows(sums, 0, n), t);
        xd_copy_to(x, above, t);
        xd_activate(x, above, XD_RELU);
        sum_rows(x, xd_rows(sums, n, n), above);
    }
    if (host) {
        memset(host, 0, (size_t)(2 * n) * sizeof *host);
        xd_get(x, host, sums);
    }
    for (int64_t i = 0; host && i < n; i++)
        sum += 2 * (double)host[n + i] - (double)host[i];
    free(host);
    xd_arena_rewind(x->tmp, mark);
    return sum;
}

/* Returns the relative change of a tensor from `was` to `now`: mean |now - was| / mean |was|. The
 * means are over the rows of all ranks that split the tokens. */
static double change_of(xd_denoise *f, xd_tensor now, xd_tensor was)
{
    xd_exec  *x = &f->x;
    xd_comm  *c = f->topo->tokens;
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor gap = xd_new_f32(x, now.d[0], now.d[1]);
    xd_copy_to(x, gap, now);
    xd_axpby(x, gap, -1, was, 1);
    double sum[2] = { sum_magnitudes(f, gap), sum_magnitudes(f, was) };
    xd_arena_rewind(x->tmp, mark);
    if (c->size > 1) {
        xd_req r = c->ops->allreduce(c, xd_view(sum, XD_F64, 1, (int64_t[]){ 2 }), XD_SUM);
        xd_denoise_wait(f, c, &r);
    }
    return sum[0] / sum[1];
}

/* ---- deciding whether blocks are skipped -------------------------------------------------- */

static xd_tensor one_int(int32_t *v)
{
    return xd_view(v, XD_I32, 1, (int64_t[]){ 1 });
}

/* Returns 1 if the cache's options permit that blocks are skipped in this step. The result is equal
 * on all ranks of the pipeline stage. */
static int may_reuse(const xd_denoise *f, const xd_cache_unit *u)
{
    const xd_cache_options *o = options_of(f);
    int                     at = f->x.step - f->begin;
    return u->known && u->measured && at >= o->warmup &&
           !(o->max_cached >= 0 && u->reused >= o->max_cached) &&
           !(o->max_continuous >= 0 && u->run >= o->max_continuous) &&
           !(o->until >= 0 && at >= o->until) &&
           !(f->cache.spec->kind->computes_last && f->x.step == f->end - 1);
}

/* Broadcasts the decision of the first rank to the ranks that split the tokens or the features of
 * this pass, and returns this decision. */
static int agree(xd_denoise *f, int mine)
{
    xd_comm *group[2] = { f->topo->tokens, f->topo->group[XD_TENSOR] };
    int32_t  v = mine;
    for (int i = 0; i < 2; i++)
        if (group[i]->size > 1) {
            xd_req r = group[i]->ops->bcast(group[i], one_int(&v), 0);
            xd_denoise_wait(f, group[i], &r);
        }
    return v;
}

/* Decides whether the middle range is skipped. While memory is counted, the comparison runs only to
 * count its memory, and the result is ignored. */
static int decide(xd_denoise *f, xd_cache_unit *u, xd_tensor now, xd_tensor was)
{
    const xd_cache_kind *k = f->cache.spec->kind;
    if (!may_reuse(f, u) && !xd_counting(&f->x)) {
        u->sum = 0;
        return 0;
    }
    double change = change_of(f, now, was);
    int    reuse = agree(f, k->is_small(options_of(f), u, change) && !xd_counting(&f->x));
    if (!xd_counting(&f->x) && f->topo->tokens->rank == 0 && f->topo->at[XD_TENSOR] == 0)
        xd_log(XD_LOG_DEBUG, "cache: step %d pass %d patch %d: change %.5f, blocks %d to %d are %s",
               f->x.step, f->x.pass, f->x.patch, change, f->cache.from, f->cache.to - 1,
               reuse ? "skipped" : "computed");
    return reuse;
}

static xd_tensor image_rows(const xd_denoise *f, xd_tensor h)
{
    int64_t n = xd_n(&f->x, XD_IMG);
    return xd_rows(h, h.d[0] - n, n);
}

/* Returns the tensor that the cache of the first block's input compares between steps: the model's
 * own choice (xd_dit.probe), or else the hidden states of the image tokens. */
static xd_tensor probe(xd_denoise *f, xd_state *s)
{
    const xd_dit *dit = f->j->ctx->model.dit.dit;
    return dit->probe ? dit->probe(&f->x, f->net, s) : image_rows(f, s->h);
}

/* Returns a view of the last measured tensor of the current patch, or of all tokens. */
static xd_tensor measured_before(const xd_denoise *f)
{
    xd_tensor t = f->cache.pass[f->x.pass].before;
    xd_span   at = xd_denoise_rows(f, XD_IMG, f->x.patch);
    if (measure_of(f) == XD_CACHE_INPUT && f->j->ctx->model.dit_info.probe_dim)
        at = (xd_span){ slot_of(f, f->x.patch), 1 };
    return xd_rows(t, at.start, at.n);
}

/* Runs the blocks before the middle range, and returns 1 if the middle range is skipped. */
static int begin_blocks(xd_denoise *f, xd_state *s, xd_cache_unit *u)
{
    xd_exec       *x = &f->x;
    xd_step_cache *c = &f->cache;
    xd_tensor      img = image_rows(f, s->h), now, was = measured_before(f);
    int            input = measure_of(f) == XD_CACHE_INPUT;
    xd_denoise_blocks(f, f->net->first, c->lead, s);
    size_t mark = xd_arena_mark(x->tmp);
    if (input) {
        now = probe(f, s);
        xd_denoise_blocks(f, c->lead, c->from, s);
    } else {
        now = xd_new_f32(x, img.d[0], img.d[1]);
        xd_copy_to(x, now, img);
        xd_denoise_blocks(f, c->lead, c->from, s);
        xd_axpby(x, now, 1, img, -1);
    }
    int reuse = decide(f, u, now, was);
    if (input || !reuse) {
        xd_copy_to(x, was, now);
        u->measured = 1;
    }
    xd_arena_rewind(x->tmp, mark);
    return reuse;
}

/* Invalidates cached values whose memory the current pass overwrites. The values for single patches
 * and the values for all tokens use the same memory. A pass over all tokens therefore invalidates
 * the values for patches, and a pass over a patch invalidates the values for all tokens. */
static void forget_others(xd_denoise *f)
{
    xd_cache_unit *u = f->cache.pass[f->x.pass].unit;
    int            n = f->lay.npatch, all = f->x.patch == XD_ALL;
    for (int i = all ? 0 : n; i < (all ? n : n + 1); i++)
        u[i] = (xd_cache_unit){ .known = 0 };
}

/* Adds one pair of relative changes, of the first block's input and of the last block's output, to
 * the metadata of the image. */
static void add_pair(xd_denoise *f, double in, double out)
{
    xd_job *j = f->j;
    if (j->nchanges == j->max_changes) {
        int            most = 2 * j->max_changes + 64;
        xd_cache_pair *v = realloc(j->changes, (size_t)most * sizeof *v);
        if (!v) {
            xd_exec_fail(&f->x, XD_ENOMEM, "no memory for the changes of a cache");
            return;
        }
        j->changes = v;
        j->max_changes = most;
    }
    j->changes[j->nchanges++] = (xd_cache_pair){ in, out };
}

/* Runs all blocks, and measures the relative changes of the first block's input and of the last
 * block's output. */
static void run_measured(xd_denoise *f, xd_state *s)
{
    xd_exec       *x = &f->x;
    xd_cache_unit *u = unit_of(f);
    xd_tensor      img = image_rows(f, s->h), was = measured_before(f);
    xd_tensor last = xd_rows(f->cache.pass[x->pass].value[0], rows_before(f, x->patch), img.d[0]);
    double    change[2] = { 0, 0 };
    int       known = u->measured;
    forget_others(f);
    xd_denoise_blocks(f, f->net->first, f->cache.lead, s);
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor now = probe(f, s);
    if (known || xd_counting(x))
        change[0] = change_of(f, now, was);
    xd_copy_to(x, was, now);
    xd_arena_rewind(x->tmp, mark);
    xd_denoise_blocks(f, f->cache.lead, f->net->last, s);
    if (known || xd_counting(x))
        change[1] = change_of(f, img, last);
    xd_copy_to(x, last, img);
    u->measured = 1;
    count_reused(f, u, 0);
    if (known && !xd_counting(x))
        add_pair(f, change[0], change[1]);
}

/* Runs the blocks of this pipeline stage; if the cache decides so, the blocks of the middle range
 * are skipped. */
static void run_ranges(xd_denoise *f, xd_state *s)
{
    xd_exec       *x = &f->x;
    xd_step_cache *c = &f->cache;
    int            i = (int)(f->piece_index % XD_NHID), n = options_of(f)->order;
    xd_span        at = { rows_before(f, x->patch), s->h.d[0] };
    if (!c->pass[x->pass].unit) /* there was no memory for the state */
        return;
    xd_cache_unit *u = unit_of(f);
    forget_others(f);
    int reuse = decides(f) ? begin_blocks(f, s, u) : c->received[i];
    c->sent[i] = reuse;
    if (reuse) {
        expand(f, x->pass, u, x->step, at, s->h, 1);
    } else {
        xd_tensor value = value_at(f, x->pass, u, n, at);
        xd_copy_to(x, value, s->h);
        xd_denoise_blocks(f, c->from, c->to, s);
        xd_axpby(x, value, 1, s->h, -1);
        renew(f, x->pass, u, x->step, at);
    }
    count_reused(f, u, reuse);
    xd_denoise_blocks(f, c->to, f->net->last, s);
}

void xd_cache_run(xd_denoise *f, xd_state *s)
{
    if (xd_cache_is_on(f) && f->cache.spec->kind->reports_changes)
        run_measured(f, s);
    else if (xd_cache_is_on(f) && measure_of(f) != XD_CACHE_SCHEDULE && !is_before(f))
        run_ranges(f, s);
    else
        xd_denoise_blocks(f, f->net->first, f->net->last, s);
}

/* ---- predictions extrapolated without running blocks ------------------------------- */

int xd_cache_skips(const xd_cache_options *o, int at)
{
    return at >= o->warmup && (at - o->warmup + o->interval - 1) % o->interval != 0 &&
           !(o->until >= 0 && at >= o->until);
}

/* Returns 1 if the cache's schedule replaces the computation of a step by an extrapolated
 * prediction. The count device, which only counts memory, runs every step. */
int xd_cache_predicts(const xd_denoise *f, int step)
{
    return xd_cache_is_on(f) && measure_of(f) == XD_CACHE_SCHEDULE && !xd_counting(&f->x) &&
           xd_cache_skips(options_of(f), step - f->begin);
}

/* Calls `work` for each patch that belongs to `unit` (a patch, or XD_ALL for all of them). */
static void each_patch(xd_denoise *f, int step, int unit, int pass,
                       void (*work)(xd_denoise *f, int step, int pass, xd_cache_unit *u,
                                    xd_span at))
{
    xd_cache_unit *u = f->cache.pass[pass].unit;
    for (int p = 0; p < f->lay.npatch && u; p++)
        if (unit == XD_ALL || p == unit)
            work(f, step, pass, &u[p], xd_denoise_rows(f, XD_IMG, p));
}

static void predict_patch(xd_denoise *f, int step, int pass, xd_cache_unit *u, xd_span at)
{
    expand(f, pass, u, step, at, xd_rows(f->pred[pass], at.start, at.n), 0);
}

static void keep_patch(xd_denoise *f, int step, int pass, xd_cache_unit *u, xd_span at)
{
    xd_copy_to(&f->x, value_at(f, pass, u, options_of(f)->order, at),
               xd_rows(f->pred[pass], at.start, at.n));
    renew(f, pass, u, step, at);
}

void xd_cache_predict(xd_denoise *f, int step, int unit, int pass)
{
    if (xd_denoise_is_last(f))
        each_patch(f, step, unit, pass, predict_patch);
    f->cache.count[0]++;
    f->cache.count[1]++;
}

void xd_cache_keep(xd_denoise *f, int step, int unit, int pass)
{
    if (!xd_cache_is_on(f) || measure_of(f) != XD_CACHE_SCHEDULE)
        return;
    if (xd_denoise_is_last(f))
        each_patch(f, step, unit, pass, keep_patch);
    f->cache.count[1]++;
}

/* ---- sending decisions between pipeline stages ----------------------------------------------- */

static int travels(const xd_denoise *f)
{
    return xd_cache_is_on(f) && measure_of(f) != XD_CACHE_SCHEDULE && !is_before(f);
}

static xd_comm *stages(const xd_denoise *f)
{
    return f->topo->group[XD_PIPE];
}

void xd_cache_post(xd_denoise *f, int i)
{
    if (travels(f) && !decides(f))
        f->cache.in[i] = stages(f)->ops->recv(stages(f), one_int(&f->cache.received[i]),
                                              f->topo->at[XD_PIPE] - 1);
}

void xd_cache_arrived(xd_denoise *f, int i)
{
    xd_denoise_wait(f, stages(f), &f->cache.in[i]);
}

void xd_cache_send(xd_denoise *f, int i)
{
    if (travels(f))
        f->cache.out[i] =
            stages(f)->ops->send(stages(f), one_int(&f->cache.sent[i]), f->topo->at[XD_PIPE] + 1);
}

void xd_cache_sent(xd_denoise *f, int i)
{
    xd_denoise_wait(f, stages(f), &f->cache.out[i]);
}

void xd_cache_drop(xd_denoise *f)
{
    stages(f)->ops->drop(stages(f), f->cache.in, XD_NHID);
}

void xd_cache_count(xd_denoise *f)
{
    xd_job  *j = f->j;
    int64_t *n = f->cache.count;
    if (!xd_cache_is_on(f))
        return;
    for (int i = 0; i < 2; i++) { /* only the deciding stage has counted */
        xd_comm *c = f->topo->group[i ? XD_CFG : XD_PIPE];
        if (c->size > 1) {
            xd_req r =
                c->ops->allreduce(c, xd_view(n, XD_I64, 1, (int64_t[]){ 2 }), i ? XD_SUM : XD_MAX);
            xd_denoise_wait(f, c, &r);
        }
    }
    for (int i = 0; i < 2; i++) {
        j->cached[i] = n[i] + (f->begin ? j->cached[i] : 0);
        n[i] = 0;
    }
    if (f->end == j->samp.steps && !f->topo->replica->rank && xd_ok(&f->x))
        xd_log(XD_LOG_INFO, "cache %s: reused %lld of %lld block ranges", j->r->savings.cache,
               (long long)j->cached[0], (long long)j->cached[1]);
}
