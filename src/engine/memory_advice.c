/* memory_advice.c - if a request does not fit into memory, adds to every rank's error message the
 * options with which the request would fit */
#include "engine/memory_advice.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "model/component.h"
#include "pipeline/dtypes.h"
#include "predict/fit.h"
#include "predict/machine.h"

/* Converts the parallel degrees of a plan to the options of xd_parallel. */
static xd_parallel degrees_of(const xd_plan *p)
{
    return (xd_parallel){ .tensor_parallel_degree = p->deg.n[XD_TENSOR],
                          .ulysses_degree = p->deg.n[XD_ULYSSES],
                          .ring_degree = p->deg.n[XD_RING],
                          .pipefusion_parallel_degree = p->deg.n[XD_PIPE],
                          .use_cfg_parallel = p->deg.n[XD_CFG] > 1,
                          .data_parallel_degree = p->deg.n[XD_DATA],
                          .num_pipeline_patch = p->npatch,
                          .warmup_steps = p->warmup,
                          .use_displaced_patches = p->displaced,
                          .use_parallel_vae = p->vae_rows,
                          .pipefusion_text = p->text_every ? "every" : "first",
                          .comms = p->codes == XD_I8       ? "int8"
                                   : p->codes == XD_F8E4M3 ? "fp8"
                                                           : NULL,
                          .text_tensor_parallel_degree = p->text_tp };
}

/* Computes the minimum free memory over all ranks, and the number of ranks per host. */
static void smallest_limits(const xd_context *ctx, double limits[3])
{
    int64_t  n = 3;
    xd_comm *c = ctx->world.used;
    if (c->size == 1)
        return;
    xd_req r = c->ops->allreduce(c, xd_view(limits, XD_F64, 1, &n), XD_MIN);
    c->ops->wait(c, &r, 1);
}

/* On rank 0, sets the request, the machine and the plan from which a search for options that need
 * less memory starts. Returns 0 if memory cannot be counted for this request. */
static int find_case(const xd_job *j, const xd_memory_limits *limit, xd_machine *m, xd_parallel *p,
                     xd_fit *t)
{
    xd_context *ctx = j->ctx;
    double      limits[3] = { limit->machine, limit->space, limit->device };
    *p = degrees_of(&ctx->plan);
    smallest_limits(ctx, limits);
    if (ctx->world.used->rank != 0 || !xd_machine_known(m, "8xH100"))
        return 0;
    m->ranks = ctx->world.host->size;
    m->hosts = (ctx->world.used->size + m->ranks - 1) / m->ranks;
    int apart = limit->device > 0;
    m->memory = limits[2 * apart] > 1 ? limits[2 * apart] : 1;
    m->shares = !apart;
    *t = (xd_fit){ .ctx = ctx,
                   .r = j->r,
                   .m = m,
                   .fixed = p,
                   .ranks = ctx->world.used->size,
                   .stale = 1,
                   .space = apart           ? 0
                            : limits[1] > 1 ? limits[1]
                                            : 1,
                   .held = limit->held,
                   .huge = limit->huge };
    return 1;
}

/* Rank 0 searches for options with which the request would fit, by counting their memory need.
 * Every rank appends these options to its error message. The speeds of the machine do not affect
 * the count, so the speeds of a preset are used. */
static void add_advice(const xd_job *j, const xd_memory_limits *limit, xd_err *e)
{
    xd_context *ctx = j->ctx;
    xd_machine  m;
    xd_parallel p;
    xd_fit      t;
    char        near[1024] = "";
    if (find_case(j, limit, &m, &p, &t))
        xd_fit_advice(&t, &p, 1, near, sizeof near);
    if (xd_world_broadcast(&ctx->world, near, sizeof near, e) == XD_OK)
        snprintf(e->msg + strlen(e->msg), sizeof e->msg - strlen(e->msg), "%s", near);
}

/* ---- applying advice ------------------------------------------------------------------------ */

xd_status xd_memory_fit_read(const xd_open_args *a, int *fit, xd_err *e)
{
    *fit = 0;
    if (!a->fit || strcmp(a->fit, "none") == 0)
        return XD_OK;
    if (strcmp(a->fit, "auto") != 0)
        return xd_fail(e, XD_EINVAL, "fit is \"%s\"; it can be one of: auto none", a->fit);
    *fit = (a->offload ? 0 : XD_FIT_OFFLOAD) | (a->weights_dtype ? 0 : XD_FIT_DIT) |
           (a->text_weights_dtype ? 0 : XD_FIT_TEXT);
    return XD_OK;
}

/* Frees the weights of a component, so that its memory need is counted again. `type` is the new
 * type of the component's matrices, or 0 to keep the type. */
static void change_component(xd_component *p, int32_t type, int streams)
{
    xd_component_drop(p);
    xd_net_close(&p->count->shadow);
    p->w->streams = streams;
    if (type) {
        p->w->blocks = (xd_dtype)type;
        p->w->stays = type == XD_I8 ? XD_STAYS_INTEGERS : XD_STAYS_NONE;
    }
}

static void take_choice(xd_context *ctx, xd_fit_choice c)
{
    ctx->offload = c.offload ? XD_OFFLOAD_AUTO : ctx->offload;
    int streams = ctx->offload != XD_OFFLOAD_NONE && !xd_dev_identity(ctx->dev);
    for (int i = 0; i < xd_model_dits(&ctx->model); i++)
        change_component(xd_model_dit(&ctx->model, i), c.dit, streams);
    for (int k = 0; k < XD_MAXTEXT; k++) {
        xd_component *p = xd_model_text(&ctx->model, k);
        if (p)
            change_component(p, xd_types_quantizes(p) ? c.text : 0, streams);
    }
}

xd_status xd_memory_fit(xd_job *j, const xd_prompts *w, xd_need *need, xd_memory_limits *limit,
                        xd_err *e)
{
    xd_context *ctx = j->ctx;
    struct {
        xd_fit_choice c;
        char          told[256];
    } take = { .c = { 0 } };
    xd_machine  m;
    xd_parallel p;
    xd_fit      t;
    xd_err      lost = { .rank = -1 };
    /* The engine must not change weights that other engines use, and cannot change the weights of
     * inactive LoRA sets. */
    int may = ctx->fit && !limit->huge && !ctx->borrowed && !ctx->neighbours && !ctx->switched;
    if (may && find_case(j, limit, &m, &p, &t)) {
        t.only = ctx->fit;
        take.c = xd_fit_choose(&t, &p, take.told, sizeof take.told);
    }
    if (may && xd_world_broadcast(&ctx->world, &take, sizeof take, &lost) != XD_OK)
        return xd_fail(e, lost.code, "%s", lost.msg);
    if (!take.c.offload && !take.c.dit && !take.c.text) {
        add_advice(j, limit, e);
        return XD_ENOMEM;
    }
    if (ctx->world.all->rank == 0)
        xd_log(XD_LOG_WARN, "the request does not fit into memory as given; using %s (--fit auto)",
               take.told);
    take_choice(ctx, take.c);
    *e = (xd_err){ .rank = -1 };
    xd_status s = xd_memory_plan(j, w, need, limit, e);
    if (s == XD_ENOMEM && limit->machine > 0)
        add_advice(j, limit, e);
    return s;
}
