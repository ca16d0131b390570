/* restart.c - chooses how lost ranks start again; see restart.h */
#include "cli/restart.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Maximum memory of a new plan, as a fraction of the memory of the plan that failed for lack of
 * memory. */
static const double LESS = 0.9;

typedef struct choice { /* a plan that needs less memory is tried */
    char   plan[64], text[128];
    int    ranks, streams; /* streams: 1 if the plan needs --offload stream */
    double peak, seconds;
} choice;

/* Replaces *c by the fastest plan on `ranks` ranks whose memory is at most `most` bytes, if it is
 * faster than *c, or *c is empty. */
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
    a.memory = INT64_MAX; /* no limit: another program may have used the memory */
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

/* Sets the arguments of the next start: the folder of the checkpoint, or all options if no
 * checkpoint exists yet, followed by `more`. Returns 0 if memory for the arguments is exhausted. */
static int set_arguments(xd_restart *r, xd_launch *l, char **more, int nmore)
{
    const xd_opt_texts *o = &r->options->options, *plan = &r->options->plan;
    int                 stored = xd_resume_time(r->dir) > 0, n = 0;
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

static void print_start(const xd_restart *r, int ranks, const char *how)
{
    fprintf(stderr, "xdit: starting %d rank%s again%s, restart %d of %d\n", ranks,
            ranks == 1 ? "" : "s", how, r->done, r->most);
}

static int restart_smaller(xd_restart *r, xd_launch *l)
{
    static char stream[] = "--offload=stream";
    char        how[256], *more[3] = { r->nproc };
    int         n = 1;
    choice      c = choose_smaller(r, l->ranks);
    xd_size     was = xd_size_text(r->peak), is = xd_size_text(c.peak);
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
    snprintf(r->nproc, sizeof r->nproc, "--nproc=%d", c.ranks);
    snprintf(r->plan, sizeof r->plan, "--plan=%s", c.plan);
    snprintf(how, sizeof how, " (%s%s), which needs %s in place of %s", c.text,
             c.streams ? " with --offload stream" : "", is.s, was.s);
    print_start(r, l->ranks, how);
    if (c.ranks > 1)
        more[n++] = r->plan;
    if (c.streams)
        more[n++] = stream;
    return set_arguments(r, l, more, n);
}

int xd_restart_next(xd_restart *r, xd_launch *l, xd_loss loss)
{
    char *more[1] = { r->nproc };
    if (!r->dir || loss == XD_LOSS_NONE || r->done >= r->most)
        return 0;
    if (loss == XD_LOSS_MEMORY)
        return restart_smaller(r, l);
    r->done++;
    l->ranks -= r->done > 1 && l->ranks > 1;
    snprintf(r->nproc, sizeof r->nproc, "--nproc=%d", l->ranks);
    print_start(r, l->ranks, "");
    return set_arguments(r, l, more, r->done > 1);
}

void xd_restart_free(xd_restart *r)
{
    free(r->argv);
    r->argv = NULL;
}
