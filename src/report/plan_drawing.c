/* plan_drawing.c - draws plans: each rank's activity over time in a step, and each rank's memory */
#include <stdlib.h>

#include "report/plans.h"
#include "report/timeline.h"

static void add_span(void *ctx, int rank, char what, double from, double to)
{
    xd_timeline_add(ctx, rank,
                    what == 'c'   ? XD_SPAN_COMPUTE
                    : what == 'w' ? XD_SPAN_WAIT
                                  : XD_SPAN_MESSAGE,
                    -1, from, to);
}

static xd_memory_bars memory_of(const xd_plan_rank *k)
{
    return (xd_memory_bars){ .weights = { (double)k->text, (double)k->transformer, (double)k->vae },
                             .work = { (double)k->text_tmp, (double)k->transformer_tmp,
                                       (double)k->vae_tmp },
                             .peak = (double)k->peak };
}

/* Predicts plan i again, and records the events of the plan's last step for the drawing. */
static xd_status draw_plan(const xd_plans *p, int i, xd_drawing *d, xd_err *e)
{
    const xd_candidate *c = &p->s.c[i];
    const xd_plan_info *t = &p->plan[i];
    xd_timeline         line = { .from = c->f.from_s, .to = c->f.to_s, .ranks = t->ranks };
    xd_prediction       f = { 0 };
    xd_memory_bars     *bars = calloc((size_t)t->ranks, sizeof *bars);
    char                title[512];
    xd_status           s = bars ? xd_timeline_open(&line, e)
                                 : xd_fail(e, XD_ENOMEM, "no memory to draw a plan");
    for (int r = 0; r < t->ranks && bars; r++)
        bars[r] = memory_of(&p->rank[i][r]);
    line.memory = bars;
    if (s == XD_OK)
        s = xd_predict_events(&f, &p->g->ctx, &p->r, &c->parallel, p->info.ranks, &p->m, add_span,
                              &line, e);
    snprintf(title, sizeof title, "%d. %s: %.4g s per step, %.4g s per request, %s sent%s", i + 1,
             t->name, t->step_s, t->request_s, xd_size_text(t->sent).s,
             t->same_image ? "" : "; close to the image of one rank, not equal");
    if (s == XD_OK)
        xd_drawing_add(d, &line, title);
    xd_prediction_free(&f);
    xd_timeline_close(&line);
    free(bars);
    return s;
}

xd_status xd_plans_draw(const xd_plans *p, const char *path, xd_err *e)
{
    int        first = p->a.explain ? p->a.explain - 1 : 0;
    int        end = p->a.explain ? p->a.explain : first + XD_DRAWN;
    xd_drawing d;
    char       title[512];
    snprintf(title, sizeof title, "%s on %d ranks of %s, %s: one step as predicted, and memory",
             p->info.model, p->info.ranks, p->info.cluster, p->info.dtype);
    xd_drawing_open(&d, title, 1);
    xd_status s = XD_OK;
    for (int i = first; i < end && i < p->info.possible && s == XD_OK; i++)
        s = draw_plan(p, i, &d, e);
    if (s == XD_OK)
        s = xd_drawing_write(&d, path, e);
    xd_drawing_close(&d);
    return s;
}
