/* predict_savings.c - predicts how many steps a step cache skips, with an assumed hit rate, and
 * counts the steps that are computed without stale data */
#include "pipeline/job.h"
#include "plan/plan.h"
#include "predict/predict.h"

/* assumed fraction of skipped steps after warm-up (doc/lab/caches.md) */
static const double usual = 0.5;

/* Returns how many of the `steps` steps of one transformer the cache is predicted to skip. */
static double steps_left_out(const xd_cache_spec *c, int steps)
{
    const xd_cache_options *o = &c->o;
    int                     most = steps - o->warmup - c->kind->computes_last, n = 0;
    if (c->kind->measure == XD_CACHE_SCHEDULE) {
        for (int i = 0; i < steps; i++)
            n += xd_cache_skips(o, i);
        return n;
    }
    if (!(o->threshold > 0) || c->kind->reports_changes)
        return 0;
    double want = usual * (most > 0 ? most : 0);
    return o->max_cached >= 0 && o->max_cached < want ? o->max_cached : want;
}

void xd_predict_cache(xd_prediction *f, const xd_job *j)
{
    const xd_cache_spec *c = &j->cache;
    const xd_dit_info   *d = &j->ctx->model.dit_info;
    double               n = 0, blocks = d->nlayers, middle = 1;
    if (!c->kind || !f->steps)
        return;
    for (int at = 0; at < f->steps; at = xd_job_dit_end(j, at))
        n += steps_left_out(c, xd_job_dit_end(j, at) - at);
    if (c->kind->measure != XD_CACHE_SCHEDULE)
        middle = (blocks - d->lead - c->o.first - c->o.last) / blocks;
    f->left_out = n / f->steps;
    for (int i = 0; i < f->texts; i++)
        for (int p = 1; p <= XD_MAXPASS; p++) {
            f->text[i].of[p].step_s *= 1 - f->left_out * middle;
            f->text[i].of[p].exact_s *= 1 - f->left_out * middle;
        }
}

double xd_predict_steps(xd_prediction *f)
{
    double exact_s = 0, others_s = 0;
    for (int i = 0; i < f->texts; i++)
        for (int p = 1; p <= XD_MAXPASS; p++) {
            const xd_predicted_steps *of = &f->text[i].of[p];
            exact_s += f->text[i].rounds * of->exact * of->exact_s;
            others_s += f->text[i].rounds * of->others * of->step_s;
        }
    f->exact_s = exact_s / f->exact / f->rounds;
    f->step_s = f->exact < f->steps ? others_s / (f->steps - f->exact) / f->rounds : f->exact_s;
    return exact_s + others_s;
}

int xd_predict_exact(xd_prediction *f, xd_job *j, xd_request *played)
{
    const int64_t interval = xd_job_reference_interval(j);
    f->keeps_refs = xd_job_keeps_references(j);
    f->fast_attn = xd_fast_attn_is_on(j);
    int warm = f->stale ? xd_plan_exact(&f->plan) : f->keeps_refs || f->fast_attn ? 1 : f->steps;
    for (int i = 0; i < f->steps; i++) {
        int n = i - xd_job_dit_begin(j, i), passes = xd_job_passes(j, i);
        int exact = n < warm || (f->keeps_refs && interval && n % interval == 0);
        f->exact += exact;
        for (int k = 0; k < f->texts; k++) {
            f->text[k].of[passes].exact += exact;
            f->text[k].of[passes].others += !exact;
        }
    }
    if (f->keeps_refs && interval) {
        *played = *j->r;
        played->savings.reference_interval = 0;
        j->r = played;
    }
    return warm;
}
