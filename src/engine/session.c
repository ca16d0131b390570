/* session.c - connects the ranks, compares their settings, and opens the groups of ranks that the
 * plan needs */
#include "engine/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpus.h"
#include "base/log.h"
#include "base/par.h"
#include "engine/engine.h"
#include "engine/memory_advice.h"
#include "engine/same_files.h"
#include "observe/trace.h"
#include "pipeline/dtypes.h"
#include "pipeline/memory_budget.h"
#include "plan/balance.h"
#include "plan/plan.h"
#include "plan/plan_table.h"
#include "predict/auto_plan.h"
#include "ranks/affinity.h"
#include "ranks/world.h"

/* ---- connecting the ranks and comparing their settings ------------------------------------ */

/* The first message that ranks send to each other. The size of this message must not change between
 * versions, because it lets ranks detect that they run different versions, whose other messages may
 * differ. */
typedef struct hello { char version[32], host[96]; } hello;

typedef struct card { /* settings that every rank sends to all ranks for comparison */
    xd_plan  plan;
    int64_t  balanced;
    /* types of the weights of the transformer and of the text encoders */
    char     dtype[16], weights[2][16];
    uint64_t model, traced, options[XD_PLAN_ROWS]; /* options: values of the plan's options */
    /* list of the rank's CPU cores, which is only logged: ranks may have different cores */
    char     cpus[128];
    char     device[32]; /* kind of device; different kinds cause only a warning */
} card;

/* On all ranks, gathers a record of `size` bytes from every rank. `mine` is this rank's record.
 * *all becomes a malloc'ed array of all records in rank order. */
static xd_status gather_records(xd_comm *c, void *mine, size_t size, void **all, xd_err *e)
{
    int64_t *rows = calloc((size_t)c->size, sizeof *rows), width = (int64_t)size;
    *all = calloc((size_t)c->size, size);
    if (!*all || !rows) {
        free(rows);
        return xd_fail(e, XD_ENOMEM, "no memory to compare %d ranks", c->size);
    }
    for (int i = 0; i < c->size; i++)
        rows[i] = 1;
    xd_status s = xd_world_wait(c,
                                c->ops->gather(c, xd_view2(*all, XD_U8, c->size, width), rows,
                                               xd_view2(mine, XD_U8, 1, width)),
                                e);
    free(rows);
    return s;
}

/* If the ranks' settings differ, every rank finds the same difference. Sets the rank of the error
 * to 0, so that only rank 0 reports the difference. */
static xd_status settle_difference(xd_status s, xd_err *e)
{
    if (s == XD_EINVAL && e->rank < 0)
        e->rank = 0;
    return s;
}

static xd_status exchange_records(xd_comm *c, hello **records, xd_err *e)
{
    hello mine = { .host = "" };
    void *all;
    snprintf(mine.version, sizeof mine.version, "%s", xd_version());
    gethostname(mine.host, sizeof mine.host - 1);
    xd_status s = gather_records(c, &mine, sizeof mine, &all, e);
    hello    *h = *records = all;
    for (int i = 0; s == XD_OK && i < c->size; i++)
        h[i].version[sizeof mine.version - 1] = h[i].host[sizeof mine.host - 1] = 0;
    for (int i = 1; s == XD_OK && i < c->size; i++)
        if (strcmp(h[i].version, h[0].version) != 0)
            s = xd_fail(e, XD_EINVAL,
                        "rank %d on host %s runs xdit %s and rank 0 on host %s runs "
                        "%s: install the same version on all hosts",
                        i, h[i].host, h[i].version, h[0].host, h[0].version);
    return settle_difference(s, e);
}

static xd_status differ_in_weights(int i, const hello *h, const card *c, const card *first,
                                   xd_err *e)
{
    int text = strcmp(c->weights[0], first->weights[0]) == 0;
    return xd_fail(e, XD_EINVAL,
                   "rank %d on host %s keeps weights in %s and rank 0 on host %s in %s: all ranks "
                   "need the same --%sweights_dtype",
                   i, h[i].host, c->weights[text], h[0].host, first->weights[text],
                   text ? "text_" : "");
}

static void log_cpus(const xd_engine *g, const card *c)
{
    for (int i = 0; g->ctx.world.all->rank == 0 && i < g->ctx.world.all->size; i++)
        xd_log(XD_LOG_DEBUG, "rank %d on cpus %.*s", i, (int)sizeof c->cpus, c[i].cpus);
}

/* Reports the first option that differs between ranks and is not part of the plan's text. */
static xd_status differ_in_options(int i, const hello *h, const card *c, const card *first,
                                   xd_err *e)
{
    const xd_plan_table *t = xd_plan_table_now();
    int                  k = 0;
    while (k < t->n - 1 && c->options[k] == first->options[k])
        k++;
    return xd_fail(e, XD_EINVAL,
                   "rank %d on host %s and rank 0 on host %s differ in --%s: all "
                   "ranks need the same flags",
                   i, h[i].host, h[0].host, t->rows[k].option.name);
}

/* Warns if the ranks have different kernels, because different kernels round differently, and
 * results then depend on the plan. */
static void warn_of_devices(const hello *h, const card *c, int n)
{
    for (int i = 1; i < n; i++)
        if (strncmp(c[i].device, c[0].device, sizeof c->device) != 0) {
            xd_log(XD_LOG_WARN,
                   "rank %d on host %s uses the kernels %.31s and rank 0 on "
                   "host %s %.31s: results differ in rounding from those of equal ranks; "
                   "set XDIT_ISA=avx2 on all hosts to make them equal",
                   i, h[i].host, c[i].device, h[0].host, c[0].device);
            return;
        }
}

/* Fails if a weight file of any rank differs in any byte from that of rank 0. */
static xd_status compare_files(const xd_engine *g, const hello *h, xd_err *e)
{
    xd_comm        *c = g->ctx.world.all;
    xd_file_digest *mine = NULL;
    void           *all = NULL;
    int             n = 0;
    double          t0 = xd_now_s();
    xd_status       s = xd_file_digests(&g->ctx.model, &mine, &n, e);
    s = xd_world_agree_in(c, c->rank, s, e);
    if (s == XD_OK && n) /* n is equal on all ranks, because the hashes of their models are equal */
        s = gather_records(c, mine, (size_t)n * sizeof *mine, &all, e);
    const xd_file_digest *d = all;
    for (int i = n; d && s == XD_OK && i < n * c->size; i++)
        if (d[i].digest != d[i % n].digest)
            s = xd_fail(e, XD_EINVAL,
                        "%.111s of rank %d on host %s differs from the file of rank "
                        "0 on host %s (%.111s): copy it again",
                        d[i].name, i / n, h[i / n].host, h[0].host, d[i % n].name);
    free(all);
    free(mine);
    if (s == XD_OK && c->rank == 0)
        xd_log(XD_LOG_INFO, "the %d weight files of all ranks are equal (%.1f s)", n,
               xd_now_s() - t0);
    return settle_difference(s, e);
}

/* Fails if the settings of a rank differ from those of rank 0. The error names the first such
 * rank. */
static xd_status compare_ranks(const xd_engine *g, const xd_parallel *take, const hello *h,
                               xd_err *e)
{
    card  mine = { .plan = g->ctx.plan,
                   .balanced = g->balanced,
                   .model = g->ctx.hash,
                   .traced = g->ctx.trace != NULL };
    void *all;
    xd_plan_hashes(take, mine.options);
    snprintf(mine.dtype, sizeof mine.dtype, "%s", xd_dtype_name(g->ctx.type));
    snprintf(mine.weights[0], sizeof mine.weights[0], "%s",
             xd_types_name(&g->ctx.model.dit, g->ctx.type));
    for (int k = 0; k < g->ctx.model.recipe->ntext; k++)
        if (g->ctx.model.has_text[k] && (!mine.weights[1][0] || g->ctx.model.text[k].w->blocks))
            snprintf(mine.weights[1], sizeof mine.weights[1], "%s",
                     xd_types_name(&g->ctx.model.text[k], g->ctx.type));
    xd_cpuset cpus;
    xd_cpuset_text(xd_cpuset_mine(&cpus) ? &cpus : &(xd_cpuset){ { 0 } }, mine.cpus,
                   sizeof mine.cpus);
    snprintf(mine.device, sizeof mine.device, "%.*s", (int)strcspn(g->ctx.dev->name, ":"),
             g->ctx.dev->name); /* the device's name without the GPU's number */
    xd_status   s = gather_records(g->ctx.world.all, &mine, sizeof mine, &all, e);
    const card *cards = all;
    if (s == XD_OK)
        log_cpus(g, cards);
    for (int i = 1; s == XD_OK && i < g->ctx.world.all->size; i++) {
        if (cards[i].model != cards[0].model)
            s = xd_fail(e, XD_EINVAL,
                        "the model of rank %d on host %s (hash %016llx) is not the "
                        "model of rank 0 on host %s (%016llx): its configs, tokenizer, weight "
                        "files, LoRA files or their scales differ",
                        i, h[i].host, (unsigned long long)cards[i].model, h[0].host,
                        (unsigned long long)cards[0].model);
        else if (strcmp(cards[i].plan.text, cards[0].plan.text) != 0)
            s = xd_fail(e, XD_EINVAL,
                        "rank %d on host %s was started with the plan %s and rank 0 "
                        "with %s: all ranks need the same flags",
                        i, h[i].host, cards[i].plan.text, cards[0].plan.text);
        else if (memcmp(cards[i].options, cards[0].options, sizeof mine.options) != 0)
            s = differ_in_options(i, h, &cards[i], &cards[0], e);
        else if (memcmp(&cards[i].plan, &cards[0].plan, sizeof mine.plan) != 0)
            s = xd_fail(e, XD_EINVAL,
                        "rank %d on host %s and rank 0 on host %s have made "
                        "different plans of %s",
                        i, h[i].host, h[0].host, cards[0].plan.text);
        else if (strcmp(cards[i].dtype, cards[0].dtype) != 0)
            s = xd_fail(e, XD_EINVAL,
                        "rank %d on host %s computes in %s and rank 0 on host %s in "
                        "%s: choose one with --dtype",
                        i, h[i].host, cards[i].dtype, h[0].host, cards[0].dtype);
        else if (memcmp(cards[i].weights, cards[0].weights, sizeof mine.weights) != 0)
            s = differ_in_weights(i, h, &cards[i], &cards[0], e);
        else if (cards[i].traced != cards[0].traced || cards[i].balanced != cards[0].balanced)
            s = xd_fail(e, XD_EINVAL,
                        "rank %d on host %s and rank 0 on host %s differ in --%s: all "
                        "ranks need the same flags",
                        i, h[i].host, h[0].host,
                        cards[i].traced != cards[0].traced ? "trace" : "balance");
    }
    if (s == XD_OK && g->ctx.world.all->rank == 0)
        warn_of_devices(h, cards, g->ctx.world.all->size);
    free(all);
    return settle_difference(s, e);
}

/* Opens the group of the ranks that split the text encoders by tensor parallelism; these are the
 * first ranks. */
static xd_status open_text(xd_engine *g, xd_err *e)
{
    int       n = g->ctx.plan.text_tp, me = g->ctx.world.used->rank, in = me < n,
              size = in ? n : g->ctx.world.used->size - n;
    xd_status s = g->ctx.world.used->ops->split(g->ctx.world.used, !in, in ? me : me - n, size,
                                                &g->ctx.text, e);
    if (s == XD_OK)
        s = g->ctx.count_world->ops->split(g->ctx.count_world, !in, in ? me : me - n, size,
                                           &g->ctx.count_text, e);
    for (int i = 0; i < XD_MAXTEXT && in; i++) {
        xd_component *p = xd_model_text(&g->ctx.model, i);
        if (p)
            p->w->tp = n, p->w->tp_at = me;
    }
    return s;
}

xd_status xd_session_groups(xd_engine *g, xd_err *e)
{
    int        n = xd_degrees_product(g->ctx.plan.deg), size = g->ctx.world.all->size;
    xd_degrees one = { { 1, 1, 1, 1, 1, 1 } };
    g->ctx.world.idle = g->ctx.world.all->rank >= n;
    xd_status s =
        g->ctx.world.all->ops->split(g->ctx.world.all, g->ctx.world.idle, g->ctx.world.all->rank,
                                     g->ctx.world.idle ? size - n : n, &g->ctx.world.used, e);
    if (s != XD_OK)
        return s;
    if (g->ctx.world.idle) /* an idle rank takes part only in opening and closing the engine */
        return XD_OK;
    s = g->ctx.world.used->ops->split_host(g->ctx.world.used, &g->ctx.world.host, e);
    if (s == XD_OK)
        s = xd_topo_open(&g->ctx.topo, g->ctx.world.used, g->ctx.plan.deg, e);
    if (s == XD_OK && g->ctx.plan.codes != XD_F32)
        s = xd_topo_find_hosts(&g->ctx.topo, g->ctx.plan.codes, e);
    if (s == XD_OK)
        xd_trace_topo(g->ctx.trace, &g->ctx.topo);
    if (s == XD_OK)
        s = xd_abort_notice_open(&g->ctx.world.abort_notice, xd_trace_plain(g->ctx.world.used), e);
    if (s == XD_OK)
        s = xd_comm_count(&g->ctx.count_world, g->ctx.world.used->rank, n, e);
    if (s == XD_OK)
        g->ctx.count_world->traffic->way = g->ctx.world.all->traffic->way;
    if (s == XD_OK)
        s = xd_topo_open(&g->ctx.count_topo, g->ctx.count_world, n > 1 ? g->ctx.plan.deg : one, e);
    g->ctx.count_topo.codes = g->ctx.topo.codes;
    memcpy(g->ctx.count_topo.between, g->ctx.topo.between, sizeof g->ctx.topo.between);
    if (s == XD_OK && g->ctx.plan.text_tp > 1)
        s = open_text(g, e);
    return s;
}

xd_status xd_session_join(xd_engine *g, const xd_open_args *a, int alone, xd_err *e)
{
    int       ranks, cores, lent = a->mpi_comm && !alone;
    xd_status s =
        lent ? xd_comm_from_mpi(&g->ctx.world.all, a->mpi_comm, e)
             : xd_comm_world(&g->ctx.world.all, xd_comm_launched() && !alone ? "mpi" : "self", e);
    if (s != XD_OK) /* the communicator has failed on all ranks */
        return settle_difference(s, e);
    int share = xd_comm_share(&ranks, &cores), n = a->threads ? a->threads : share;
    if (!alone)
        xd_affinity_bind(a->bind, n);
    n = xd_par_set(n);
    if (g->ctx.world.all->rank == 0 && !alone && ranks > 1 && (int64_t)ranks * n > cores)
        xd_log(XD_LOG_WARN, "%d ranks of %d thread%s share %d core%s: they take turns", ranks, n,
               n == 1 ? "" : "s", cores, cores == 1 ? "" : "s");
    return XD_OK;
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

/* Warns about options of xd_open_args that are set but have no effect with the chosen plan. */
static void log_unused(const xd_engine *g, const xd_open_args *a, const xd_parallel *take)
{
    int ranks = xd_degrees_product(g->ctx.plan.deg);
    xd_plan_log_unused(&a->parallel, take, &g->ctx.model.dit_info);
    if (g->balanced && ranks == 1)
        xd_log(XD_LOG_WARN, "balance makes no difference with one rank");
    else if (g->ctx.adaptive && g->ctx.plan.deg.n[XD_ULYSSES] * g->ctx.plan.deg.n[XD_RING] == 1)
        xd_log(XD_LOG_WARN, "adaptive shares need Ulysses or a ring, which divide the tokens: the "
                            "shares stay as measured");
    if (a->cluster && xd_parallel_ranks(&a->parallel) == ranks)
        xd_log(XD_LOG_WARN, "cluster makes no difference, since there is no plan to choose: %s",
               ranks == 1 ? "there is one rank" : "the given degrees use all ranks");
}

xd_status xd_session_open(xd_engine *g, const xd_open_args *a, xd_status s, xd_err *e)
{
    const xd_dit_info *d = &g->ctx.model.dit_info;
    hello             *hosts = NULL;
    xd_err             first = { .rank = -1 };
    xd_parallel        take;
    xd_status same = g->ctx.world.all->size > 1 ? exchange_records(g->ctx.world.all, &hosts, &first)
                                                : XD_OK;
    /* if the exchange failed or versions differ, this rank cannot send its own error `s` to other
     * ranks */
    if (same != XD_OK) {
        free(hosts);
        *e = first;
        return same;
    }
    if (s == XD_OK)
        s = xd_memory_fit_read(a, &g->ctx.fit, e);
    s = xd_auto_plan(&g->ctx, a, hosts ? hosts_of(hosts, g->ctx.world.all->size) : 1, s, &take,
                     &g->predicted, e);
    if (s == XD_OK)
        s = xd_plan_make(&g->ctx.plan, &take, g->ctx.world.all->size, d, e);
    s = xd_world_agree_in(g->ctx.world.all, g->ctx.world.all->rank, s, e);
    if (s == XD_OK && g->ctx.world.all->size > 1)
        s = compare_ranks(g, &take, hosts, e);
    if (s == XD_OK && a->verify_weights && g->ctx.world.all->size > 1)
        s = compare_files(g, hosts, e);
    free(hosts);
    if (s == XD_OK)
        s = xd_session_groups(g, e);
    if (s != XD_OK)
        return s;
    int n = xd_degrees_product(g->ctx.plan.deg), T = g->ctx.plan.deg.n[XD_TENSOR],
        U = g->ctx.plan.deg.n[XD_ULYSSES];
    if (g->ctx.world.all->rank == 0 && n < g->ctx.world.all->size)
        xd_log(XD_LOG_WARN, "%d of %d ranks are idle: the plan %s uses %d",
               g->ctx.world.all->size - n, g->ctx.world.all->size, g->ctx.plan.text, n);
    if (g->ctx.world.all->rank == 0 && T * U > xd_dit_key_heads(d))
        xd_log(XD_LOG_WARN, "some ranks have no heads: tensor %d x ulysses %d over %d heads", T, U,
               xd_dit_key_heads(d));
    if (g->ctx.world.all->rank == 0 && g->ctx.plan.deg.n[XD_PIPE] > d->nlayers)
        xd_log(XD_LOG_WARN, "some pipeline stages have no block: pipefusion %d over %d blocks",
               g->ctx.plan.deg.n[XD_PIPE], d->nlayers);
    if (g->ctx.world.all->rank == 0)
        log_unused(g, a, &take);
    for (int i = 0; i < xd_model_dits(&g->ctx.model); i++) {
        xd_model_dit(&g->ctx.model, i)->w->tp = T;
        xd_model_dit(&g->ctx.model, i)->w->tp_at = g->ctx.world.idle ? 0
                                                                     : g->ctx.topo.at[XD_TENSOR];
    }
    if (!g->balanced || n == 1)
        return XD_OK;
    return xd_world_agree_in(g->ctx.world.all, g->ctx.world.all->rank,
                             g->ctx.world.idle
                                 ? XD_OK
                                 : xd_balance_open(&g->ctx.balance, &g->ctx.world, &g->ctx.plan,
                                                   g->ctx.dev, g->ctx.type, e),
                             e);
}

void xd_session_close(xd_engine *g)
{
    xd_budget_hold(&g->ctx, 0);
    xd_abort_notice_close(&g->ctx.world.abort_notice);
    xd_balance_close(&g->ctx.balance);
    xd_comm_close(&g->ctx.text);
    xd_comm_close(&g->ctx.count_text);
    xd_topo_close(&g->ctx.topo);
    xd_topo_close(&g->ctx.count_topo);
    xd_comm_close(&g->ctx.count_world);
    xd_comm_close(&g->ctx.world.host);
    xd_comm_close(&g->ctx.world.used);
    xd_comm_close(&g->ctx.world.all);
}
