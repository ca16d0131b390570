/* memory_advice.c - options that fit if a request does not, reported on all ranks */
#include "engine/memory_advice.h"

#include <stdio.h>
#include <string.h>

#include "predict/fit.h"
#include "predict/machine.h"

/* The degrees of a plan. */
static xd_parallel degrees_of(const xd_plan *p)
{
    return (xd_parallel){ .tensor_parallel_degree = p->deg.n[XD_TENSOR],
                          .ulysses_degree = p->deg.n[XD_ULYSSES],
                          .ring_degree = p->deg.n[XD_RING],
                          .pipefusion_parallel_degree = p->deg.n[XD_PIPE],
                          .use_cfg_parallel = p->deg.n[XD_CFG] > 1,
                          .data_parallel_degree = p->deg.n[XD_DATA],
                          .num_pipeline_patch = p->npatch, .warmup_steps = p->warmup,
                          .use_displaced_patches = p->displaced, .use_parallel_vae = p->vae_rows,
                          .pipefusion_text = p->text_every ? "every" : "first",
                          .text_tensor_parallel_degree = p->text_tp };
}

/* The least free memory of all ranks, and the number of ranks per host. */
static void smallest_limits(const xd_context *ctx, double limits[3])
{
    int64_t  n = 3;
    xd_comm *c = ctx->world.used;
    if (c->size == 1)
        return;
    xd_req r = c->ops->allreduce(c, xd_view(limits, XD_F64, 1, &n), XD_MIN);
    c->ops->wait(c, &r, 1);
}

/* After a refusal, on all ranks: rank 0 counts what would fit, and every rank appends this to its
 * message. Only the memory of the machine matters, so its rates are those of a preset. */
void xd_memory_advice(const xd_job *j, const xd_memory_limits *limit, xd_err *e)
{
    xd_context  *ctx = j->ctx;
    xd_machine  m;
    xd_parallel p = degrees_of(&ctx->plan);
    char        near[1024] = "";
    double      limits[3] = { limit->machine, limit->space, limit->device };
    smallest_limits(ctx, limits);
    if (ctx->world.used->rank == 0 && xd_machine_known(&m, "8xH100")) {
        m.ranks = ctx->world.host->size;
        m.hosts = (ctx->world.used->size + m.ranks - 1) / m.ranks;
        int apart = limit->device > 0;
        m.memory = limits[2 * apart] > 1 ? limits[2 * apart] : 1;
        m.shares = !apart;
        xd_fit t = { .ctx = ctx,
                     .r = j->r,
                     .m = &m,
                     .fixed = &p,
                     .ranks = ctx->world.used->size,
                     .stale = 1,
                     .space = apart ? 0 : limits[1] > 1 ? limits[1] : 1,
                     .held = limit->held,
                     .huge = limit->huge };
        xd_fit_advice(&t, &p, 1, near, sizeof near);
    }
    if (xd_world_broadcast(&ctx->world, near, sizeof near, e) == XD_OK)
        snprintf(e->msg + strlen(e->msg), sizeof e->msg - strlen(e->msg), "%s", near);
}
