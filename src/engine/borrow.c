/* borrow.c - lets an engine compute with the weights of another engine (xd_open_beside).
 *
 * An engine that borrows weights has its own groups of ranks, memory counts and requests. Each
 * component of the borrowing engine has a pointer to the weights of the same component in the
 * engine that owns the weights. */
#include "engine/borrow.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/par.h"
#include "base/rng.h"
#include "engine/session.h"
#include "model/component.h"
#include "pipeline/memory_budget.h"
#include "pipeline/memory_plan.h"
#include "pipeline/text_cache.h"
#include "pipeline/weight_groups.h"
#include "ranks/world.h"

enum { PARTS = XD_MODEL_PARTS };

/* ---- the begin of a request ----------------------------------------------------------------- */

/* Makes a borrowing engine use the current weights and LoRA files of the owning engine. */
static void follow(xd_engine *g)
{
    xd_context *to = &g->ctx, *from = &g->of->ctx;
    for (int i = 0; i < PARTS; i++)
        if (xd_model_part(&to->model, i))
            xd_component_follow(xd_model_part(&to->model, i), xd_model_part(&from->model, i));
    to->model.warned_chat |= from->model.warned_chat;
    to->model.loras = from->model.loras;
    to->hash = from->hash;
}

xd_status xd_borrow_begin(xd_engine *g, xd_err *e)
{
    if (!g->of)
        return XD_OK;
    follow(g);
    for (int i = 0; g->alone && i < PARTS; i++) {
        const xd_component *p = xd_model_part(&g->ctx.model, i);
        if (p && !p->w->store)
            return xd_fail(e, XD_EINVAL,
                           "the weights of %s are not loaded on this rank: "
                           "call xd_load_everywhere before a request of one rank",
                           p->name);
    }
    return XD_OK;
}

/* ---- opening an engine beside another one --------------------------------------------------- */

static xd_status open_ranks(xd_engine *g, int alone, xd_err *e)
{
    xd_comm    *all = g->of->ctx.world.all;
    xd_status   s = alone ? xd_comm_world(&g->ctx.world.all, "self", e)
                          : all->ops->split(all, 0, all->rank, all->size, &g->ctx.world.all, e);
    xd_parallel one = { .tensor_parallel_degree = 0 };
    if (s == XD_OK && alone)
        s = xd_plan_make(&g->ctx.plan, &one, 1, &g->ctx.model.dit_info, e);
    return s == XD_OK ? xd_session_groups(g, e) : s;
}

/* Copies the context of the engine that owns the weights, except the groups of ranks and the state
 * of requests. */
static xd_status copy_context(xd_engine *g, xd_err *e)
{
    xd_context *c = &g->ctx;
    xd_status   s = XD_OK;
    *c = g->of->ctx;
    c->world = (xd_world){ 0 };
    c->window = NULL;
    memset(&c->topo, 0, sizeof c->topo);
    memset(&c->count_topo, 0, sizeof c->count_topo);
    c->count = NULL;
    c->count_world = c->text = c->count_text = NULL;
    c->trace = NULL;
    c->cancel = &g->cancel;
    c->borrowed = 1;
    memset(c->cold, 0, sizeof c->cold);
    for (int i = 0; i < PARTS; i++) {
        xd_component *p = xd_model_part(&c->model, i);
        xd_status     one = p ? xd_component_share(p, e) : XD_OK;
        s = s == XD_OK ? one : s;
    }
    return s;
}

xd_status xd_open_beside(xd_engine **out, xd_engine *of, int alone, xd_err *e)
{
    xd_err     mine = { .rank = -1 };
    xd_engine *g = *out = NULL;
    xd_status  s = XD_OK;
    if (of->of)
        s = xd_fail(&mine, XD_EINVAL, "xd_open_beside needs an engine that owns its weights");
    else if (!(g = calloc(1, sizeof *g)))
        s = xd_fail(&mine, XD_ENOMEM, "no memory for an engine");
    const xd_logger *before = xd_log_enter(&of->log);
    if (s == XD_OK)
        s = xd_model_tokenizers(&of->ctx.model, &mine);
    if (!alone)
        s = xd_world_agree_in(of->ctx.world.all, of->ctx.world.all->rank, s, &mine);
    if (s == XD_OK) {
        g->of = of;
        g->alone = alone;
        g->log = of->log;
        s = copy_context(g, &mine);
        if (alone) {
            g->ctx.balance = NULL;
            g->ctx.neighbours = of->ctx.world.host ? of->ctx.world.host->size : 1;
        }
    }
    if (s == XD_OK)
        s = xd_dev_open_count(&g->ctx.count, g->ctx.dev, &mine);
    if (s == XD_OK)
        s = open_ranks(g, alone, &mine);
    xd_log_enter(before);
    if (s == XD_OK) {
        *out = g;
        return s;
    }
    xd_fail(e, s, "%s", mine.msg);
    if (g && g->of && s != XD_ECOMM)
        xd_close(&g);
    else if (g && !g->of)
        free(g);
    return s;
}

void xd_borrow_close(xd_engine *g)
{
    for (int i = 0; i < PARTS; i++)
        if (xd_model_part(&g->ctx.model, i))
            xd_component_unshare(xd_model_part(&g->ctx.model, i));
    g->ctx.balance = NULL; /* the engine that owns the weights frees `balance` */
    xd_session_close(g);
    xd_dev_close(&g->ctx.count);
}

/* ---- loading all weights on all ranks ------------------------------------------------------- */

static xd_status check_plan(const xd_engine *g, xd_err *e)
{
    const xd_plan *p = &g->ctx.plan;
    if (g->of)
        return xd_fail(e, XD_EINVAL, "xd_load_everywhere needs an engine that owns its weights");
    if (!g->ctx.keep)
        return xd_fail(e, XD_EINVAL,
                       "xd_load_everywhere needs an engine that keeps its text "
                       "encoders (xd_open_args.keep)");
    if (p->deg.n[XD_TENSOR] > 1 || p->deg.n[XD_PIPE] > 1 || p->text_tp > 1)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "the plan %s splits the weights over its ranks, so that "
                       "no rank can work alone",
                       p->text);
    if (p->changes)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "the plan %s computes another image than one rank does, "
                       "so that its ranks cannot work alone",
                       p->text);
    if (xd_model_dits(&g->ctx.model) > 1)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "a model with two transformers may free one of them "
                       "between two steps, so that its ranks cannot work alone");
    if (g->ctx.world.used->size != g->ctx.world.all->size)
        return xd_fail(e, XD_EUNSUPPORTED, "%d ranks are idle",
                       g->ctx.world.all->size - g->ctx.world.used->size);
    return XD_OK;
}

/* Returns 1 if v is nonzero on all ranks. */
static int all_true(xd_comm *c, int32_t v)
{
    int64_t one = 1;
    if (c->size == 1)
        return v;
    xd_req r = c->ops->allreduce(c, xd_view(&v, XD_I32, 1, &one), XD_MIN);
    return c->ops->wait(c, &r, 1) == XD_OK && v;
}

/* Returns 1 if all ranks have the same kernels and thread count, and so store loaded weights in the
 * same layout. */
static int packs_alike(const xd_context *ctx)
{
    int64_t n = 2;
    double  v[2] = { (double)(xd_hash_text(ctx->dev->name) >> 12) + xd_par_threads(), 0 };
    v[1] = -v[0];
    if (ctx->world.used->size == 1)
        return 1;
    xd_req r = ctx->world.used->ops->allreduce(ctx->world.used, xd_view(v, XD_F64, 1, &n), XD_MAX);
    return ctx->world.used->ops->wait(ctx->world.used, &r, 1) == XD_OK && v[0] == -v[1];
}

/* Opens a group of the ranks of this host, which then load a text encoder together. */
static xd_status group_text(xd_context *ctx, xd_component *p, int alike, xd_err *e)
{
    xd_comm *h = ctx->world.host, *k = NULL;
    if (!alike || !ctx->dev->host_memory || h->size == 1)
        return XD_OK;
    xd_status s = h->ops->split(h, 0, h->rank, h->size, &k, e);
    p->w->group = (xd_weight_group){ .c = k, .me = ctx->world.used->rank };
    return s;
}

/* Fails if the weights that are still to be loaded exceed the free memory of this host. Weights
 * that ranks share count once. */
static xd_status check_memory(xd_context *ctx, const int want[PARTS], int alike, xd_err *e)
{
    size_t machine, space;
    double bytes = 0, copies = alike && ctx->dev->host_memory ? 1 : ctx->world.host->size;
    for (int i = 0; i < PARTS; i++)
        if (want[i])
            bytes += (double)xd_model_part(&ctx->model, i)->count->packed;
    xd_host_memory(&machine, &space);
    xd_memory_hold(ctx);
    double held = (double)ctx->holds * ctx->world.host->size + xd_budget_elsewhere(ctx),
           left = xd_budget_left(ctx, (double)machine, held);
    if (!xd_dev_identity(ctx->dev) && bytes * copies > left)
        return xd_fail(e, XD_ENOMEM,
                       "loading all weights on all ranks needs %s more memory, and "
                       "%s is free",
                       xd_size_text(bytes * copies).s, xd_size_text(left).s);
    return XD_OK;
}

static xd_status load_parts(xd_context *ctx, const int want[PARTS], int alike, xd_err *e)
{
    xd_status s = xd_weight_groups_find(ctx, 1, e);
    for (int i = 0; i < PARTS && s == XD_OK; i++) {
        xd_component *p = xd_model_part(&ctx->model, i);
        if (!want[i])
            continue;
        if (p->kind == XD_KIND_TEXT)
            s = group_text(ctx, p, alike, e);
        s = xd_world_agree(&ctx->world, s, e);
        if (s == XD_OK)
            s = xd_world_agree(&ctx->world, xd_component_load(p, ctx->dev, ctx->type, 0, e), e);
    }
    return s;
}

static xd_status load_everywhere(xd_engine *g, xd_err *e)
{
    xd_context *ctx = &g->ctx;
    int         want[PARTS] = { 0 }, alike = packs_alike(ctx);
    xd_status   s = XD_OK;
    for (int i = 0; i < PARTS; i++) {
        xd_component *p = xd_model_part(&ctx->model, i);
        want[i] = p && !all_true(ctx->world.used, p->w->store != NULL);
        if (want[i])
            xd_component_drop(p);
        if (want[i] && s == XD_OK)
            s = xd_component_count(p, ctx->count, ctx->type, e);
    }
    if (s == XD_OK)
        s = check_memory(ctx, want, alike, e);
    s = xd_world_agree(&ctx->world, s, e);
    return s == XD_OK ? load_parts(ctx, want, alike, e) : s;
}

xd_status xd_load_everywhere(xd_engine *g, xd_err *e)
{
    xd_err           mine = { .rank = -1 };
    const xd_logger *before = xd_log_enter(&g->log);
    xd_status        s = check_plan(g, &mine);
    if (s == XD_OK)
        s = load_everywhere(g, &mine);
    else
        mine.rank = 0; /* check_plan fails on all ranks alike; rank 0 reports it */
    s = xd_world_judge(&g->ctx.world, s, &mine);
    xd_log_enter(before);
    return s == XD_OK ? s : xd_fail(e, s, "%s", mine.msg);
}
