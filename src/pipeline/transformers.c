/* transformers.c - loads and drops the transformers of a model that has two.
 *
 * If memory cannot hold both transformers, the weights of the loaded transformer are freed before
 * the weights of the next transformer are read. */
#include "pipeline/transformers.h"
#include "model/model.h"
#include "pipeline/weight_groups.h"
#include "ranks/world.h"

xd_component *xd_transformer_of(const xd_job *j, int step)
{
    return xd_model_dit(&j->ctx->model, xd_job_dit(j, step));
}

void xd_transformer_alone(const xd_job *j, int step)
{
    xd_component *other = xd_model_dit(&j->ctx->model, !xd_job_dit(j, step));
    /* The share group of a transformer that is not loaded stays open for loading it. */
    if (!j->both && !j->ctx->borrowed && other->w && other->w->store)
        xd_component_drop(other);
}

xd_status xd_transformer_change(xd_job *j, int vae, int step, xd_status s, xd_err *e)
{
    xd_context   *ctx = j->ctx;
    xd_component *p = xd_transformer_of(j, step);
    int           again = j->loads[xd_job_dit(j, step)]++;
    if ((s = xd_world_agree(&ctx->world, s, e)) != XD_OK || p->w->store)
        return s;
    xd_transformer_alone(j, step);
    if (again) /* freeing the weights closed the group of ranks that shared them */
        s = xd_weight_groups_find(ctx, vae, e);
    if (s == XD_OK)
        s = xd_world_agree(&ctx->world, xd_component_load(p, ctx->dev, ctx->type, 0, e), e);
    if (s == XD_OK)
        xd_weight_groups_nonfinite(ctx, p);
    return s;
}
