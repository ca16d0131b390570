/* job_boundary.c - chooses the transformer of each step in models with two transformers: the second
 * transformer computes the timesteps below a boundary.
 *
 * The rule is that of diffusers. A step whose timestep is at least boundary_ratio *
 * num_train_timesteps uses the first transformer and guidance_scale. Any other step uses the second
 * transformer and guidance_scale_2. */
#include "pipeline/job.h"
#include "families/help.h"
#include "families/recipe.h"
#include "model/model.h"

static int is_below(const xd_job *j, int step)
{
    return j->boundary >= 0 &&
           j->samp.time[step] < j->boundary * (double)j->samp.cfg.num_train_timesteps;
}

/* Refuses options for a second transformer if the model has only one transformer. */
static xd_status check_options(const xd_job *j, xd_err *e)
{
    const xd_recipe  *p = j->ctx->model.recipe;
    const xd_request *r = j->r;
    const char *what = r->guidance.guidance_scale_2 >= 0 ? "guidance_scale_2" : "boundary_ratio";
    if (r->guidance.guidance_scale_2 < 0 && r->guidance.boundary_ratio < 0)
        return XD_OK;
    if (!p->dit2)
        return xd_fail(e, XD_EINVAL, "%s is for models with two transformers (%s); %s has one",
                       what, xd_family_says(XD_WORD_TWO_DITS), p->name);
    if (j->boundary < 0)
        return xd_fail(e, XD_EINVAL,
                       "guidance_scale_2 is %g, but %s has no boundary_ratio below "
                       "which it applies",
                       r->guidance.guidance_scale_2, j->ctx->model.dir);
    return XD_OK;
}

xd_status xd_job_boundary(xd_job *j, xd_err *e)
{
    const xd_model *m = &j->ctx->model;
    j->boundary = j->r->guidance.boundary_ratio >= 0 ? j->r->guidance.boundary_ratio : m->boundary;
    j->guidance_2 = j->r->guidance.guidance_scale_2 >= 0 ? j->r->guidance.guidance_scale_2
                                                         : j->guidance;
    xd_status s = check_options(j, e);
    for (int i = 0; s == XD_OK && i < j->samp.steps && !j->ctx->bench; i++) {
        int low = is_below(j, i);
        if (low ? m->dit2.dit || m->only_low : !m->only_low)
            continue;
        s = xd_fail(e, XD_EINVAL,
                    "step %d of %d has the timestep %g, %s the boundary %g (boundary_ratio "
                    "%g), and %s has no %s for it",
                    i + 1, j->samp.steps, j->samp.time[i], low ? "below" : "above",
                    j->boundary * j->samp.cfg.num_train_timesteps, j->boundary, m->dir,
                    low ? m->recipe->dit2 : m->recipe->dit);
    }
    return s;
}

int xd_job_dit(const xd_job *j, int step)
{
    return j->ctx->model.dit2.dit && is_below(j, step);
}

int xd_job_dit_begin(const xd_job *j, int step)
{
    int i = step;
    while (i > 0 && xd_job_dit(j, i - 1) == xd_job_dit(j, step))
        i--;
    return i;
}

int xd_job_dit_end(const xd_job *j, int step)
{
    int i = step + 1;
    while (i < j->samp.steps && xd_job_dit(j, i) == xd_job_dit(j, step))
        i++;
    return i;
}

int xd_job_uses_dit(const xd_job *j, int i)
{
    for (int step = 0; step < j->samp.steps; step++)
        if (xd_job_dit(j, step) == i)
            return 1;
    return 0;
}

int xd_job_changes(const xd_job *j)
{
    int n = 0;
    for (int i = xd_job_dit_end(j, 0); i < j->samp.steps; i = xd_job_dit_end(j, i))
        n++;
    return n;
}

int xd_job_changes_again(const xd_job *j)
{
    int n = xd_job_changes(j);
    return n ? n + 1 : 0;
}

double xd_job_scale(const xd_job *j, int step)
{
    return is_below(j, step) ? j->guidance_2 : j->guidance;
}
