/* job_sampler.c - the sampler of a request: which one, and its config with what the request asks
 * for in place of the file's values */
#include "pipeline/job.h"
#include "model/model.h"
#include "families/recipe.h"

/* Refuses a scheduler for the other kind of noise, which generates garbage. */
static xd_status check_noise(const xd_job *j, const xd_sched_cfg *c, xd_err *e)
{
    const xd_recipe *p = j->ctx->model.recipe;
    if (p->max_shift > 0 && !j->sampler->flow && !c->use_flow_sigmas)
        return xd_fail(e, XD_EINVAL,
                       "%s is a model of rectified flow, which the scheduler %s does not follow: "
                       "take flow-euler, or dpm++ or unipc with use_flow_sigmas in "
                       "scheduler_config.json",
                       p->name, j->sampler->name);
    if (p->max_shift == 0 && j->sampler->flow)
        return xd_fail(e, XD_EINVAL,
                       "the scheduler %s is for models of rectified flow, which %s is not",
                       j->sampler->name, p->name);
    return XD_OK;
}

/* Puts the shift of the request in place of the config's: flow_shift of the solvers, shift of
 * rectified flow's own schedulers. */
static xd_status set_shift(const xd_job *j, xd_sched_cfg *c, xd_err *e)
{
    double v = j->r->flow_shift;
    if (!(v > 0))
        return XD_OK;
    if (!j->sampler->flow && !c->use_flow_sigmas)
        return xd_fail(e, XD_EINVAL, "flow_shift is %g, and the scheduler %s has no levels of "
                       "rectified flow that it could shift", v, j->sampler->name);
    if (c->use_dynamic_shifting && j->ctx->model.recipe->max_shift > 0)
        return xd_fail(e, XD_EINVAL, "flow_shift is %g, and the scheduler of %s shifts by the size "
                       "of the image (use_dynamic_shifting)", v, j->ctx->model.recipe->name);
    c->shift = c->flow_shift = v;
    return XD_OK;
}

xd_status xd_job_sampler(xd_job *j, xd_sched_cfg *cfg, xd_err *e)
{
    const xd_model *m = &j->ctx->model;
    const char     *file = xd_json_text(xd_json_get(m->sched, "_class_name"));
    const char     *name = j->r->scheduler ? j->r->scheduler : file;
    if (!name)
        return xd_model_named_sched(m, e);
    if (!(j->sampler = xd_sampler_find(name))) {
        xd_text_buf known = { 0 };
        xd_sampler_names(&known);
        xd_fail(e, j->r->scheduler ? XD_EINVAL : XD_EUNSUPPORTED,
                "the scheduler %s is not known; this version has %s", name, known.p ? known.p : "");
        xd_buf_free(&known);
        return j->r->scheduler ? XD_EINVAL : XD_EUNSUPPORTED;
    }
    xd_status s = xd_model_sched(m, j->sampler, cfg, e);
    if (s == XD_OK)
        s = check_noise(j, cfg, e);
    return s == XD_OK ? set_shift(j, cfg, e) : s;
}
