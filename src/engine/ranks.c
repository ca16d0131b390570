/* ranks.c - joining, agreeing, cutting blocks into stages */
#include "engine/ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cpus.h"
#include "base/log.h"
#include "base/pages.h"
#include "base/par.h"
#include "engine/balance.h"
#include "engine/choose.h"
#include "engine/place.h"
#include "engine/plan_table.h"
#include "exec/op.h"

/* ---- joining ------------------------------------------------------------------------------ */

/* The first words between ranks. Their size must not change from version to version: the ranks find
 * out by them that all else may mean something different there. */
typedef struct hello { char version[32], host[96]; } hello;

typedef struct card {           /* what else must be the same on all ranks                     */
    xd_plan  plan;
    int64_t  balanced;
    char     dtype[16], weights[2][16];         /* of the transformer, of text encoders           */
    uint64_t model, traced, options[XD_PLAN_ROWS];      /* of the plan, as given                 */
    char     cpus[128];         /* may differ; for the log                                       */
} card;

static xd_status wait_one(xd_comm *c, xd_req r, xd_err *e)
{
    if (c->ops->wait(c, &r, 1) == XD_OK)
        return XD_OK;
    xd_status s = xd_fail(e, XD_ECOMM, "a message between ranks failed%s%s",
                          c->err->msg[0] ? ": " : "", c->err->msg);
    if (e)                      /* who detects it says it: nobody can be told                  */
        e->rank = -1;
    return s;
}

/* `mine`, of `size` bytes, of every rank in rank order, malloc'ed. */
static xd_status collect(xd_comm *c, void *mine, size_t size, void **all, xd_err *e)
{
    int64_t *rows = calloc((size_t)c->size, sizeof *rows), width = (int64_t)size;
    *all = calloc((size_t)c->size, size);
    if (!*all || !rows) {
        free(rows);
        return xd_fail(e, XD_ENOMEM, "no memory to compare %d ranks", c->size);
    }
    for (int i = 0; i < c->size; i++)
        rows[i] = 1;
    xd_status s = wait_one(c, c->ops->gather(c, xd_view2(*all, XD_U8, c->size, width), rows,
                                             xd_view2(mine, XD_U8, 1, width)), e);
    free(rows);
    return s;
}

/* All ranks know of a difference: one of them says it. */
static xd_status known(xd_status s, xd_err *e)
{
    if (s == XD_EINVAL && e->rank < 0)
        e->rank = 0;
    return s;
}

static xd_status greet(xd_comm *c, hello **said, xd_err *e)
{
    hello mine = { .host = "" };
    void *all;
    snprintf(mine.version, sizeof mine.version, "%s", xd_version());
    gethostname(mine.host, sizeof mine.host - 1);
    xd_status s = collect(c, &mine, sizeof mine, &all, e);
    hello    *h = *said = all;
    for (int i = 0; s == XD_OK && i < c->size; i++)
        h[i].version[sizeof mine.version - 1] = h[i].host[sizeof mine.host - 1] = 0;
    for (int i = 1; s == XD_OK && i < c->size; i++)
        if (strcmp(h[i].version, h[0].version) != 0)
            s = xd_fail(e, XD_EINVAL, "rank %d on host %s runs xdit %s and rank 0 on host %s runs "
                        "%s: install the same version on all hosts", i, h[i].host, h[i].version,
                        h[0].host, h[0].version);
    return known(s, e);
}

static xd_status differ_in_weights(int i, const hello *h, const card *c, const card *first, xd_err *e)
{
    int text = strcmp(c->weights[0], first->weights[0]) == 0;
    return xd_fail(e, XD_EINVAL, "rank %d on host %s keeps weights in %s and rank 0 on host %s in %s: all ranks "
                   "need the same --%sweights_dtype", i, h[i].host, c->weights[text], h[0].host,
                   first->weights[text], text ? "text_" : "");
}

static void say_cpus(const xd_engine *g, const card *c)
{
    for (int i = 0; g->all->rank == 0 && i < g->all->size; i++)
        xd_log(XD_LOG_DEBUG, "rank %d on cpus %.*s", i, (int)sizeof c->cpus, c[i].cpus);
}

/* Options of a plan that its own description does not have. */
static xd_status differ_in_options(int i, const hello *h, const card *c, const card *first,
                                   xd_err *e)
{
    const xd_plan_table *t = xd_plan_table_now();
    int                  k = 0;
    while (k < t->n - 1 && c->options[k] == first->options[k])
        k++;
    return xd_fail(e, XD_EINVAL, "rank %d on host %s and rank 0 on host %s differ in --%s: all "
                   "ranks need the same flags", i, h[i].host, h[0].host, t->rows[k].option.name);
}

/* All cards must equal rank 0's; the sentence names the first rank that differs. */
static xd_status compare(const xd_engine *g, const xd_parallel *take, const hello *h, xd_err *e)
{
    card  mine = { .plan = g->plan, .balanced = g->balanced, .model = g->hash, .traced = g->trace != NULL };
    void *all;
    xd_plan_hashes(take, mine.options);
    snprintf(mine.dtype, sizeof mine.dtype, "%s", xd_dtype_name(g->type));
    snprintf(mine.weights[0], sizeof mine.weights[0], "%s", xd_types_name(&g->model.dit, g->type));
    for (int k = 0; k < g->model.recipe->ntext; k++)
        if (!mine.weights[1][0] || g->model.text[k].blocks)
            snprintf(mine.weights[1], sizeof mine.weights[1], "%s", xd_types_name(&g->model.text[k], g->type));
    xd_cpuset cpus;
    xd_cpuset_text(xd_cpuset_mine(&cpus) ? &cpus : &(xd_cpuset){ { 0 } }, mine.cpus, sizeof mine.cpus);
    xd_status   s = collect(g->all, &mine, sizeof mine, &all, e);
    const card *cards = all;
    if (s == XD_OK)
        say_cpus(g, cards);
    for (int i = 1; s == XD_OK && i < g->all->size; i++) {
        if (cards[i].model != cards[0].model)
            s = xd_fail(e, XD_EINVAL, "the model of rank %d on host %s (hash %016llx) is not the "
                        "model of rank 0 on host %s (%016llx): its configs, tokenizer, weight files, "
                        "LoRA files or their scales differ", i, h[i].host, (unsigned long long)cards[i].model,
                        h[0].host, (unsigned long long)cards[0].model);
        else if (strcmp(cards[i].plan.text, cards[0].plan.text) != 0)
            s = xd_fail(e, XD_EINVAL, "rank %d on host %s was started with the plan %s and rank 0 "
                        "with %s: all ranks need the same flags", i, h[i].host, cards[i].plan.text,
                        cards[0].plan.text);
        else if (memcmp(cards[i].options, cards[0].options, sizeof mine.options) != 0)
            s = differ_in_options(i, h, &cards[i], &cards[0], e);
        else if (memcmp(&cards[i].plan, &cards[0].plan, sizeof mine.plan) != 0)
            s = xd_fail(e, XD_EINVAL, "rank %d on host %s and rank 0 on host %s have made "
                        "different plans of %s", i, h[i].host, h[0].host, cards[0].plan.text);
        else if (strcmp(cards[i].dtype, cards[0].dtype) != 0)
            s = xd_fail(e, XD_EINVAL, "rank %d on host %s computes in %s and rank 0 on host %s in "
                        "%s: say which with --dtype", i, h[i].host, cards[i].dtype, h[0].host,
                        cards[0].dtype);
        else if (memcmp(cards[i].weights, cards[0].weights, sizeof mine.weights) != 0)
            s = differ_in_weights(i, h, &cards[i], &cards[0], e);
        else if (cards[i].traced != cards[0].traced || cards[i].balanced != cards[0].balanced)
            s = xd_fail(e, XD_EINVAL, "rank %d on host %s and rank 0 on host %s differ in --%s: all "
                        "ranks need the same flags", i, h[i].host, h[0].host,
                        cards[i].traced != cards[0].traced ? "trace" : "balance");
    }
    free(all);
    return known(s, e);
}

/* The first ranks share the text encoders, which are cut like the transformer's blocks. */
static xd_status open_text(xd_engine *g, xd_err *e)
{
    int       n = g->plan.text_tp, me = g->used->rank, in = me < n, size = in ? n : g->used->size - n;
    xd_status s = g->used->ops->split(g->used, !in, in ? me : me - n, size, &g->text, e);
    if (s == XD_OK)
        s = g->count_world->ops->split(g->count_world, !in, in ? me : me - n, size, &g->count_text, e);
    for (int i = 0; i < g->model.recipe->ntext && in; i++) {
        g->model.text[i].tp = n;
        g->model.text[i].tp_at = me;
    }
    return s;
}

static xd_status open_topologies(xd_engine *g, xd_err *e)
{
    int       n = xd_degrees_product(g->plan.deg), size = g->all->size;
    xd_degrees one = { { 1, 1, 1, 1, 1, 1 } };
    g->idle = g->all->rank >= n;
    xd_status s = g->all->ops->split(g->all, g->idle, g->all->rank, g->idle ? size - n : n, &g->used, e);
    if (s != XD_OK)
        return s;
    if (g->idle)                /* takes part in nothing but the start and the end             */
        return XD_OK;
    s = g->used->ops->split_host(g->used, &g->host, e);
    if (s == XD_OK)
        s = xd_topo_open(&g->topo, g->used, g->plan.deg, e);
    if (s == XD_OK)
        xd_trace_topo(g->trace, &g->topo);
    if (s == XD_OK)
        s = xd_alarm_open(&g->alarm, xd_trace_plain(g->used), e);
    if (s == XD_OK)
        s = xd_comm_count(&g->count_world, g->used->rank, n, e);
    if (s == XD_OK)
        s = xd_topo_open(&g->count_topo, g->count_world, n > 1 ? g->plan.deg : one, e);
    if (s == XD_OK && g->plan.text_tp > 1)
        s = open_text(g, e);
    return s;
}

xd_status xd_ranks_join(xd_engine *g, int threads, const char *bind, int alone, xd_err *e)
{
    int       ranks, cores;
    xd_status s = xd_comm_world(&g->all, xd_comm_launched() && !alone ? "mpi" : "self", e);
    if (s != XD_OK)
        return s;
    int share = xd_comm_share(&ranks, &cores), n = threads ? threads : share;
    if (!alone)
        xd_place(bind, n);
    n = xd_par_set(n);
    if (g->all->rank == 0 && !alone && ranks > 1 && (int64_t)ranks * n > cores)
        xd_log(XD_LOG_WARN, "%d ranks of %d thread%s share %d core%s: they take turns", ranks, n,
               n == 1 ? "" : "s", cores, cores == 1 ? "" : "s");
    return xd_trace_comm(g->trace, &g->all, e);
}

/* A failure of one rank becomes that of all; of several, the lowest rank's, but that of a rank which
 * was only told of another's comes last. */
xd_status xd_ranks_agree_in(xd_comm *c, int me, xd_status mine, xd_err *e)
{
    int     told = e->rank >= 0 && e->rank != me;
    int32_t who = mine == XD_OK ? INT32_MAX : c->rank + (told ? c->size : 0);
    int64_t one = 1, size = sizeof(xd_err);
    xd_err  said = *e, lost = { .rank = -1 };
    if (c->size == 1)
        return mine;
    if (wait_one(c, c->ops->allreduce(c, xd_view(&who, XD_I32, 1, &one), XD_MIN), &lost) != XD_OK)
        goto out_of_step;
    if (who == INT32_MAX)
        return XD_OK;
    said.code = mine;
    if (said.rank < 0)
        said.rank = me;
    if (wait_one(c, c->ops->bcast(c, xd_view(&said, XD_U8, 1, &size), who % c->size), &lost) != XD_OK)
        goto out_of_step;
    *e = said;
    return said.code;
out_of_step:                    /* an own failure came first                                   */
    if (mine == XD_OK)
        *e = lost;
    e->rank = -1;
    return XD_ECOMM;
}

xd_status xd_ranks_judge(const xd_engine *g, xd_status s, xd_err *e)
{
    int alone = g->all ? g->all->size == 1 : !xd_comm_launched();
    if (s == XD_OK || alone || e->rank >= 0)
        return s;
    return XD_ECOMM;
}

static int hosts_of(const hello *h, int n)
{
    int hosts = 0;
    for (int i = 0, seen; i < n; i++, hosts += !seen) {
        seen = 0;
        for (int k = 0; k < i && !seen; k++)
            seen = strcmp(h[k].host, h[i].host) == 0;
    }
    return hosts;
}

/* What is given and makes no difference to a plan. */
static void say_unused(const xd_engine *g, const xd_open_args *a, const xd_parallel *take)
{
    int ranks = xd_degrees_product(g->plan.deg);
    xd_plan_say_unused(&a->parallel, take, &g->model.dit_info);
    if (g->balanced && ranks == 1)
        xd_log(XD_LOG_WARN, "balance makes no difference where one rank works");
    if (a->cluster && xd_parallel_ranks(&a->parallel) == ranks)
        xd_log(XD_LOG_WARN, "cluster makes no difference where there is no plan to choose: %s",
               ranks == 1 ? "one rank works" : "the degrees that are given need all ranks");
}

xd_status xd_ranks_open(xd_engine *g, const xd_open_args *a, xd_status s, xd_err *e)
{
    const xd_dit_info *d = &g->model.dit_info;
    hello             *hosts = NULL;
    xd_err             first = { .rank = -1 };
    xd_parallel        take;
    xd_status          same = g->all->size > 1 ? greet(g->all, &hosts, &first) : XD_OK;
    if (same != XD_OK) {        /* even a rank that has a failure of its own cannot tell it      */
        free(hosts);
        *e = first;
        return same;
    }
    s = xd_choose(g, a, hosts ? hosts_of(hosts, g->all->size) : 1, s, &take, e);
    if (s == XD_OK)
        s = xd_plan_make(&g->plan, &take, g->all->size, d, e);
    s = xd_ranks_agree_in(g->all, g->all->rank, s, e);
    if (s == XD_OK && g->all->size > 1)
        s = compare(g, &take, hosts, e);
    free(hosts);
    if (s == XD_OK)
        s = open_topologies(g, e);
    if (s != XD_OK)
        return s;
    int n = xd_degrees_product(g->plan.deg), T = g->plan.deg.n[XD_TENSOR], U = g->plan.deg.n[XD_ULYSSES];
    if (g->all->rank == 0 && n < g->all->size)
        xd_log(XD_LOG_WARN, "%d of %d ranks stay idle: the plan %s uses %d", g->all->size - n,
               g->all->size, g->plan.text, n);
    if (g->all->rank == 0 && T * U > d->heads)
        xd_log(XD_LOG_WARN, "some ranks have no head: tensor %d x ulysses %d over %d heads", T, U,
               d->heads);
    if (g->all->rank == 0 && g->plan.deg.n[XD_PIPE] > d->nlayers)
        xd_log(XD_LOG_WARN, "some stages have no block: pipefusion %d over %d blocks",
               g->plan.deg.n[XD_PIPE], d->nlayers);
    if (g->all->rank == 0)
        say_unused(g, a, &take);
    g->model.dit.tp = T;
    g->model.dit.tp_at = g->idle ? 0 : g->topo.at[XD_TENSOR];
    if (!g->balanced || n == 1)
        return XD_OK;
    return xd_ranks_agree_in(g->all, g->all->rank, g->idle ? XD_OK : xd_balance_open(g, e), e);
}

void xd_ranks_close(xd_engine *g)
{
    xd_alarm_close(&g->alarm);
    xd_balance_close(&g->balance);
    xd_comm_close(&g->text);
    xd_comm_close(&g->count_text);
    xd_topo_close(&g->topo);
    xd_topo_close(&g->count_topo);
    xd_comm_close(&g->count_world);
    xd_comm_close(&g->host);
    xd_comm_close(&g->used);
    xd_comm_close(&g->all);
}

/* ---- agreeing ----------------------------------------------------------------------------- */

xd_status xd_ranks_agree(const xd_engine *g, xd_status mine, xd_err *e)
{
    if (mine != XD_OK)
        xd_alarm_ring(g->alarm, e);
    xd_status s = xd_ranks_agree_in(g->used, g->used->rank, mine, e);
    if (s != XD_OK && s != XD_ECOMM && xd_alarm_reset(g->alarm, e) != XD_OK) {
        e->rank = -1;
        return XD_ECOMM;
    }
    return s;
}

void xd_ranks_settle(const xd_engine *g, xd_comm *c, xd_exec *x)
{
    xd_err    e = x->err;
    xd_status s = xd_ranks_agree_in(c, g->used->rank, e.code, &e);
    if (s == XD_OK)
        return;
    x->err = e;
    x->err.code = s;
}

static void watch(void *watcher, xd_exec *x)
{
    xd_alarm_watch(watcher, x);
}

void xd_ranks_watch(const xd_engine *g, xd_exec *x)
{
    x->watch = g->alarm ? watch : NULL;
    x->watcher = g->alarm;
}

int64_t xd_ranks_sent(const xd_engine *g, int64_t since)
{
    xd_comm *c = g->used;
    int64_t  one = 1, bytes = c->traffic->bytes - since;
    xd_err   e = { 0 };
    if (c->size > 1 &&
        wait_one(c, c->ops->allreduce(c, xd_view(&bytes, XD_I64, 1, &one), XD_SUM), &e) != XD_OK)
        return -1;
    return bytes;
}

xd_status xd_ranks_share(const xd_engine *g, void *p, int64_t bytes, xd_err *e)
{
    xd_comm *c = g->used;
    if (c->size == 1)
        return XD_OK;
    return wait_one(c, c->ops->bcast(c, xd_view(p, XD_U8, 1, &bytes), 0), e);
}

/* ---- stages ------------------------------------------------------------------------------- */

/* Counted cost of every block, and of what the first and last stage do besides. It is that of whole
 * blocks, so that all tensor ranks of a stage, whose shares differ, cut alike. */
static xd_status costs(xd_job *j, double *cost, double *head, double *tail, xd_err *e)
{
    xd_engine   *g = j->g;
    xd_part     *p = &g->model.dit;
    const xd_dit *dit = p->dit;
    xd_exec      x;
    xd_arena     a;
    xd_counts    c;
    void        *local = calloc(1, g->model.dit_info.local_size + g->model.dit_info.kept_size + 1);
    void        *kept = (char *)local + g->model.dit_info.local_size;
    int          tp = p->tp, tp_at = p->tp_at;
    p->tp = 1, p->tp_at = 0;
    xd_status    s = xd_part_count(p, g->count, g->type, e);
    p->tp = tp, p->tp_at = tp_at;
    if (s == XD_OK)
        s = xd_room_open(&a, g->count, 0, e);
    if (s != XD_OK || !local) {
        free(local);
        return s != XD_OK ? s : xd_fail(e, XD_ENOMEM, "no memory to count blocks");
    }
    xd_exec_init(&x, g->count, &a, g->type);
    const xd_dit_info *d = &g->model.dit_info;
    int64_t   rows = xd_words_most(j);
    xd_layout lay = j->lay;
    lay.len[XD_TXT] = d->txt_flows ? rows : 0;
    x.lay = &lay;
    xd_cond  text = { .tok = xd_view2(a.base, XD_F32, rows, d->text_dim),
                      .pooled = xd_view2(a.base, XD_F32, 1, d->pooled_dim) };
    xd_words_real(j, text.real);
    xd_input in = { .lat = xd_new_f32(&x, j->tokens, j->features), .cond = &text, .guidance = 1,
                    .txt = d->txt_flows ? text.tok : (xd_tensor){ 0 } };
    if (d->extra_ch)
        in.extra = in.lat;
    xd_state st = { .h = xd_new_f32(&x, j->tokens + lay.len[XD_TXT], d->dim), .local = local, .kept = kept };
    int most = xd_dit_most_skips(dit, &p->shadow);
    if (most)
        st.skips = xd_new(&x, most * st.h.d[0], d->dim);
    if (dit->keep) {
        dit->keep(&x, &p->shadow, &text, kept);
        dit->read(&x, &p->shadow, &in, kept);
    }
    dit->cond(&x, &p->shadow, &in, &st);
    xd_dev_counts(g->count, &c, 1);
    dit->embed(&x, &p->shadow, &in, &st);
    xd_dev_counts(g->count, &c, 1);
    *head = c.flops;
    for (int i = 0; i < p->shadow.nlayers; i++) {
        size_t mark = xd_arena_mark(&a);
        xd_dit_block(&x, dit, &p->shadow, i, &st);
        xd_dev_counts(g->count, &c, 1);
        cost[i] = c.flops;
        xd_arena_rewind(&a, mark);
    }
    dit->head(&x, &p->shadow, &st);
    xd_dev_counts(g->count, &c, 1);
    *tail = c.flops;
    free(local);
    xd_room_close(&a, g->count);
    return x.err.code ? xd_fail(e, x.err.code, "%s", x.err.msg) : XD_OK;
}

xd_status xd_ranks_cut(xd_job *j, int cut[XD_MAXSTAGE + 1], xd_err *e)
{
    xd_engine *g = j->g;
    xd_part   *p = &g->model.dit;
    int        P = g->plan.deg.n[XD_PIPE], n = p->net.nlayers;
    double    *cost, head = 0, tail = 0;
    cut[0] = 0, cut[1] = n;
    if (P == 1)
        return XD_OK;
    if (g->plan.nlist) {
        for (int i = 0; i < P; i++)
            cut[i + 1] = cut[i] + g->plan.list[i];
        return XD_OK;
    }
    if (!(cost = calloc((size_t)n + 1, sizeof *cost)))
        return xd_fail(e, XD_ENOMEM, "no memory to count %d blocks", n);
    xd_part_stage(p, 0, n);
    xd_status s = costs(j, cost, &head, &tail, e);
    if (s == XD_OK)
        xd_plan_balance(cost, n, P, head, tail, xd_balance_stages(g->balance), cut);
    free(cost);
    return s;
}

xd_status xd_ranks_stages(xd_job *j, xd_err *e)
{
    xd_engine *g = j->g;
    int        cut[XD_MAXSTAGE + 1], me = g->topo.at[XD_PIPE];
    if (g->plan.deg.n[XD_PIPE] == 1 || g->model.dit.store)
        return XD_OK;
    xd_status s = xd_ranks_cut(j, cut, e);
    if (s != XD_OK)
        return s;
    xd_part_stage(&g->model.dit, cut[me], cut[me + 1]);
    xd_log(XD_LOG_DEBUG, "stage %d runs blocks %d to %d of %d", me, cut[me], cut[me + 1] - 1,
           g->model.dit.net.nlayers);
    return XD_OK;
}

/* ---- memory of a request ------------------------------------------------------------------ */

/* All ranks of a host see what they lend: that takes the address space of all. */
static size_t lent_bytes(const xd_engine *g, size_t bytes)
{
    const size_t spare = (size_t)16 << 20;      /* of address space, for messages              */
    size_t       machine, process;
    xd_cpu_room(&machine, &process);
    return process > spare && bytes < (process - spare) / (size_t)g->host->size ? bytes : 0;
}

xd_status xd_ranks_room_open(xd_engine *g, xd_arena *a, size_t bytes, xd_status s, xd_err *e)
{
    const int *n = g->plan.deg.n, trades = n[XD_ULYSSES] * n[XD_RING] * n[XD_TENSOR] > 1 && g->host && g->host->size > 1;
    g->lent = trades && s != XD_ECOMM ? g->host->ops->lend(g->host, s == XD_OK ? lent_bytes(g, bytes) : 0) : NULL;
    if (trades && g->host->rank == 0)
        xd_log(XD_LOG_DEBUG, g->lent ? "ranks of this host read each other's memory"
                                     : "ranks of this host send each other messages");
    if (g->lent)
        xd_arena_init(a, g->lent, xd_pages_whole(bytes));
    return s == XD_OK && !g->lent ? xd_room_open(a, g->dev, bytes, e) : s;
}

void xd_ranks_room_close(xd_engine *g, xd_arena *a)
{
    if (!g->lent) {
        xd_room_close(a, g->dev);
        return;
    }
    g->host->ops->unlend(g->host, g->lent);
    g->lent = NULL;
    *a = (xd_arena){ 0 };
}
