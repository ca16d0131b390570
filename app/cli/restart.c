/* restart.c - chooses how lost ranks start again; see restart.h */
#include "cli/restart.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/ping.h"

/* Maximum memory of a new plan, as a fraction of the memory of the plan that failed for lack of
 * memory. */
static const double LESS = 0.9;

typedef struct choice { /* a plan with which the ranks may start again */
    char   plan[64], text[128];
    int    ranks, streams; /* streams: 1 if the plan needs --offload stream */
    double peak, seconds;
} choice;

/* Predicts plans on `ranks` ranks that need at most `most` bytes of memory. If *c is empty, or the
 * fastest of these plans is faster than *c, replaces *c by the fastest plan. */
static void try_ranks(const xd_restart *r, int ranks, int streams, double most, choice *c)
{
    xd_advise_args a = r->ask;
    xd_plans      *plans = NULL;
    a.ranks = ranks;
    a.exact = 1;
    a.parallel = (xd_parallel){ 0 };
    if (streams)
        a.offload = "stream";
    if (xd_plans_predict(&plans, &a, NULL) != XD_OK)
        return;
    for (int i = 0; i < xd_plans_about(plans)->possible; i++) {
        const xd_plan_info *p = xd_plans_get(plans, i);
        if (!p->predicted || p->ranks != ranks || p->peak > most ||
            (c->ranks && c->seconds <= p->request_s))
            continue;
        *c = (choice){
            .ranks = ranks, .streams = streams, .peak = p->peak, .seconds = p->request_s
        };
        snprintf(c->plan, sizeof c->plan, "%s", p->name);
        snprintf(c->text, sizeof c->text, "%s", p->text);
    }
    xd_plans_free(&plans);
}

/* Returns the predicted bytes of memory of the plan with which the command began; 0: unknown. */
static double first_peak(const xd_restart *r, int ranks)
{
    xd_advise_args a = r->ask;
    xd_plans      *plans = NULL;
    double         peak = 0;
    a.ranks = ranks;
    /* the prediction has no memory limit, because another program may have used the memory that
     * is missing now */
    a.memory = INT64_MAX;
    if (xd_plans_predict(&plans, &a, NULL) == XD_OK && xd_plans_about(plans)->possible)
        peak = xd_plans_get(plans, 0)->peak;
    xd_plans_free(&plans);
    return peak;
}

static choice choose_smaller(xd_restart *r, int ranks)
{
    choice c = { .ranks = 0 };
    if (r->peak <= 0)
        r->peak = first_peak(r, ranks);
    for (int streams = 0; streams < 2 && !c.ranks; streams++)
        for (int n = ranks; n > 0; n--)
            try_ranks(r, n, streams, LESS * r->peak, &c);
    return c;
}

/* Sets the arguments of the next start of ranks to --resume with the checkpoint folder, or to all
 * options if there is no checkpoint yet. Appends the present plan if it differs from the plan of
 * the command line. Returns 0 if there is no memory for the arguments. */
static int set_arguments(xd_restart *r, xd_launch *l)
{
    static char         stream[] = "--offload=stream";
    char               *more[3] = { r->nproc };
    int                 nmore = r->moved;
    const xd_opt_texts *o = &r->options->options, *plan = &r->options->plan;
    /* With --hosts, the checkpoint folder may exist only on the hosts of the ranks, which find the
     * checkpoint without further options. */
    int                 stored = !r->hosts->n && xd_resume_time(r->dir) > 0, n = 0;
    if (r->moved && r->plan[0])
        more[nmore++] = r->plan;
    if (r->moved && r->streams)
        more[nmore++] = stream;
    snprintf(r->nproc, sizeof r->nproc, "--nproc=%d", l->ranks);
    free(r->argv);
    r->argv = calloc((size_t)(o->n + plan->n + nmore) + 1, sizeof *r->argv);
    if (!r->argv)
        return 0;
    snprintf(r->resume, sizeof r->resume, "--resume=%s", r->dir);
    if (stored)
        r->argv[n++] = r->resume;
    for (int i = 0; i < o->n && !stored; i++)
        r->argv[n++] = (char *)(void *)o->v[i];
    for (int i = 0; i < plan->n && !stored && !nmore; i++)
        r->argv[n++] = (char *)(void *)plan->v[i];
    for (int i = 0; i < nmore; i++)
        r->argv[n++] = more[i];
    l->argc = n;
    l->argv = r->argv;
    return 1;
}

/* Sets the parallel plan of the next start of ranks. If `plan` is empty, xdit chooses a plan. */
static void set_plan(xd_restart *r, const char *plan)
{
    r->moved = 1;
    r->plan[0] = 0;
    if (*plan)
        snprintf(r->plan, sizeof r->plan, "--plan=%s", plan);
}

static void print_start(const xd_restart *r, int ranks, const char *how)
{
    fprintf(stderr, "xdit: starting %d rank%s again%s, restart %d of %d\n", ranks,
            ranks == 1 ? "" : "s", how, r->done, r->most);
}

/* Sets the hosts of the next start of ranks. Returns 0 if memory is exhausted. */
static int set_hosts(xd_restart *r, xd_launch *l)
{
    if (!r->hosts->n)
        return 1;
    free(r->on);
    r->on = xd_hosts_text(r->hosts, l->ranks);
    l->hosts = r->on;
    return r->on != NULL;
}

static int restart_smaller(xd_restart *r, xd_launch *l)
{
    char    how[256];
    choice  c = choose_smaller(r, l->ranks);
    xd_size was = xd_size_text(r->peak), is = xd_size_text(c.peak);
    if (!c.ranks) {
        fprintf(stderr,
                "xdit: no plan of at most %d rank%s needs less memory than %s: use "
                "--weights_dtype or a smaller image\n",
                l->ranks, l->ranks == 1 ? "" : "s", was.s);
        return 0;
    }
    r->done++;
    r->peak = c.peak;
    l->ranks = c.ranks;
    r->streams = c.streams;
    set_plan(r, c.ranks > 1 ? c.plan : "");
    snprintf(how, sizeof how, " (%s%s), which needs %s in place of %s", c.text,
             c.streams ? " with --offload stream" : "", is.s, was.s);
    print_start(r, l->ranks, how);
    return set_hosts(r, l) && set_arguments(r, l);
}

/* Sets *c to the fastest predicted plan on as many ranks as possible, but at most `ranks`. */
static void choose_left(const xd_restart *r, int ranks, choice *c)
{
    *c = (choice){ .ranks = 0 };
    for (int n = ranks; n > 0 && !c->ranks; n--)
        try_ranks(r, n, 0, INFINITY, c);
}

/* Starts the ranks again on the hosts that are not lost. */
static int restart_elsewhere(xd_restart *r, xd_launch *l)
{
    char   how[512], gone[256] = "";
    choice c = { .ranks = 0 };
    int    was = l->ranks, known = xd_hosts_lose(r->hosts, l->lost);
    if (!known && !xd_ping_hosts(r->hosts))
        return 0;
    int left = xd_hosts_slots(r->hosts);
    if (!left) {
        fprintf(stderr, "xdit: no host of --hosts is left: --resume %s continues on others\n",
                r->dir);
        return 0;
    }
    for (int i = 0; i < r->hosts->n; i++)
        if (r->hosts->v[i].lost) {
            size_t n = strlen(gone);
            snprintf(gone + n, sizeof gone - n, "%s%s", n ? ", " : "", r->hosts->v[i].name);
        }
    if (left < was) {
        choose_left(r, left, &c);
        l->ranks = c.ranks ? c.ranks : left;
        set_plan(r, l->ranks > 1 ? c.plan : "");
    }
    if (!set_hosts(r, l))
        return 0;
    r->done++;
    snprintf(how, sizeof how, " on %s without %s%s%s%s", r->on, gone,
             l->ranks == was ? ", with the same plan" : "", c.ranks ? ", with the plan " : "",
             c.ranks ? c.text : "");
    print_start(r, l->ranks, how);
    return set_arguments(r, l);
}

int xd_restart_next(xd_restart *r, xd_launch *l, xd_loss loss)
{
    if (!r->dir || loss == XD_LOSS_NONE || r->done >= r->most)
        return 0;
    if (loss == XD_LOSS_MEMORY)
        return restart_smaller(r, l);
    if (loss == XD_LOSS_HOST)
        return r->hosts->n ? restart_elsewhere(r, l) : 0;
    r->done++;
    if (r->done > 1 + r->spare && l->ranks > 1) {
        l->ranks--;
        set_plan(r, "");
    }
    print_start(r, l->ranks, "");
    return set_hosts(r, l) && set_arguments(r, l);
}

void xd_restart_free(xd_restart *r)
{
    free(r->argv);
    free(r->on);
    r->argv = NULL;
    r->on = NULL;
}
