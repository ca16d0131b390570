/* engine.c - opens an engine, and accepts, runs and reports its requests */
#include "engine/engine.h"
#include "engine/borrow.h"
#include "engine/lora_sets.h"
#include "engine/memory_advice.h"
#include "engine/request_log.h"
#include "engine/session.h"
#include "model/lora.h"
#include "observe/slow_device.h"
#include "ranks/affinity.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/par.h"
#include "base/record.h"
#include "comm/staged.h"
#include "model/component.h"
#include "model/model.h"
#include "observe/trace.h"
#include "pipeline/context.h"
#include "pipeline/dtypes.h"
#include "pipeline/job.h"
#include "pipeline/job_compare.h"
#include "pipeline/loop.h"
#include "pipeline/memory_budget.h"
#include "pipeline/offload.h"
#include "pipeline/preview.h"
#include "pipeline/text_cache.h"
#include "pipeline/trace_json.h"
#include "pipeline/work.h"
#include "plan/plan.h"
#include "predict/auto_plan.h"
#include "ranks/world.h"

/* ---- opening ------------------------------------------------------------------------------ */

void xd_open_args_init_size(xd_open_args *a, size_t size)
{
    xd_record_init(a, size);
}

xd_status xd_open(xd_engine **out, const xd_open_args *a, xd_err *e)
{
    xd_open_args own;
    xd_request   plan_for;
    *out = NULL;
    xd_open_args_init(&own);
    xd_status s = xd_record_read(&own, sizeof own, a, "xd_open_args", e);
    if (s == XD_OK && own.plan_for) {
        s = xd_request_take(&plan_for, own.plan_for, e);
        own.plan_for = &plan_for;
    }
    return s == XD_OK ? xd_open_with(out, &own, XD_WITH_FILES, e) : s;
}

static int is_auto(const xd_open_args *a)
{
    return a->device && strcmp(a->device, "auto") == 0;
}

/* Opens one GPU per rank for the device "auto" if all ranks can get one, else no GPU. If there is
 * no GPU, logs the reason instead of failing. This function is collective. */
static void try_devices(xd_engine *g)
{
    int       rank = 0, ranks = 1;
    int32_t   works;
    xd_cpuset cpus;
    xd_err    why = { 0 };
    xd_comm  *all = g->ctx.world.all;
    if (all->size > 1)
        xd_comm_host(&rank, &ranks, &cpus);
    works = xd_dev_open_best(&g->ctx.dev, rank, ranks, &why) == XD_OK;
    if (all->size > 1) {
        xd_req r = all->ops->allreduce(all, xd_view(&works, XD_I32, 1, (int64_t[]){ 1 }), XD_MIN);
        all->ops->wait(all, &r, 1);
    }
    if (!works)
        xd_dev_close(&g->ctx.dev);
    if (why.code)
        xd_log(why.code == XD_EUNSUPPORTED ? XD_LOG_DEBUG : XD_LOG_INFO, "the CPU computes: %s",
               why.msg);
    else if (works && all->rank == 0)
        xd_log(XD_LOG_INFO, "device: %s (--device cpu: the CPU)", g->ctx.dev->name);
}

/* Opens the device that the options name, or this rank's own device of that kind. */
static xd_status open_device(xd_engine *g, const xd_open_args *a, int how, xd_err *e)
{
    int         rank = 0, ranks = 1;
    xd_cpuset   cpus;
    xd_dev_name name;
    if (g->ctx.dev)
        return XD_OK;
    if (is_auto(a))
        return xd_dev_open(&g->ctx.dev, NULL, e);
    if (how & XD_SIZES)
        return xd_dev_open_sizes(&g->ctx.dev, a->device, e);
    if (g->ctx.world.all->size > 1)
        xd_comm_host(&rank, &ranks, &cpus);
    xd_status s = xd_dev_of_rank(&name, a->device, rank, ranks, e);
    return s == XD_OK ? xd_dev_open(&g->ctx.dev, *name.s ? name.s : a->device, e) : s;
}

/* Allows blocks of the components to stay in files, if the device computes in host memory. */
static void stream_from_files(xd_context *ctx)
{
    int may = ctx->offload != XD_OFFLOAD_NONE && !xd_dev_identity(ctx->dev);
    for (int i = 0; i < xd_model_dits(&ctx->model); i++)
        xd_model_dit(&ctx->model, i)->w->streams = may;
    for (int k = 0; k < XD_MAXTEXT; k++)
        if (xd_model_text(&ctx->model, k))
            ctx->model.text[k].w->streams = may;
}

/* Opens the upscaler of results on all ranks, and loads it on rank 0. */
static xd_status open_enlarger(xd_engine *g, const char *file, xd_err *e)
{
    xd_context *ctx = &g->ctx;
    ctx->enlarger = &g->enlarger;
    xd_status s = xd_enlarger_open(ctx->enlarger, file, e);
    ctx->enlarger->cancel = ctx->cancel;
    return s == XD_OK && ctx->world.all->rank == 0
               ? xd_enlarger_load(ctx->enlarger, ctx->dev, ctx->count, ctx->type, e)
               : s;
}

/* Opens the parts of an engine that need no communication. */
static xd_status open_parts(xd_engine *g, const xd_open_args *a, int how, xd_err *e)
{
    int             files = how & XD_WITH_FILES;
    xd_weight_files given = { a->files, a->nfiles, a->loras, (int)a->nloras };
    xd_status s = xd_model_open_with(&g->ctx.model, a->model, a->without, &given, a->layers, e);
    if (s == XD_OK)
        s = open_device(g, a, how, e);
    if (s == XD_OK && !a->offload && !xd_dev_identity(g->ctx.dev))
        g->ctx.offload = XD_OFFLOAD_NONE; /* the weights are in host memory anyway */
    if (s == XD_OK)
        s = xd_comm_stage(&g->ctx.world.all, g->ctx.dev, e);
    if (s == XD_OK)
        s = xd_trace_comm(g->ctx.trace, &g->ctx.world.all, e);
    if (s == XD_OK)
        s = xd_dev_open_count(&g->ctx.count, g->ctx.dev, e);
    if (s == XD_OK)
        s = xd_slow_device(&g->ctx.dev, g->ctx.world.all->rank, e);
    if (s == XD_OK)
        s = xd_types_compute(&g->ctx, a, e);
    if (s == XD_OK)
        s = xd_trace_device(g->ctx.trace, &g->ctx.dev, e);
    if (s == XD_OK && g->ctx.trace && g->ctx.world.all->rank == 0)
        s = xd_file_writable(a->trace, e);
    if (s == XD_OK && files)
        s = xd_model_files(&g->ctx.model, e);
    if (s == XD_OK)
        s = xd_types_weights(&g->ctx, a, e);
    if (s == XD_OK && files && a->preview_decoder)
        s = xd_model_preview(&g->ctx.model, a->preview_decoder, e);
    if (s == XD_OK && files && a->upscale)
        s = open_enlarger(g, a->upscale, e);
    if (s == XD_OK)
        stream_from_files(&g->ctx);
    g->ctx.model.lora_partial = a->lora_partial != 0;
    if (s == XD_OK && files)
        s = xd_loras_open(&g->ctx.model.loras, a->loras, a->nloras, &g->ctx.model, e);
    if (s == XD_OK && files)
        s = xd_loras_open_2(&g->ctx.model.loras_2, a->loras_2, (int)a->nloras_2, &g->ctx.model, e);
    if (s == XD_OK)
        s = xd_model_hash(&g->ctx.model, &g->ctx.hash, e);
    return s;
}

/* Returns the xd_shares of a name, -1 if it is unknown. */
static int shares_named(const char *name)
{
    static const char *const names[] = { "even", "measured", "adaptive" };
    for (int i = 0; i < 3; i++)
        if (!name || strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

xd_status xd_open_with(xd_engine **out, const xd_open_args *a, int how, xd_err *e)
{
    *out = NULL;
    if (a->threads < 0 || a->threads > 4096)
        return xd_fail(e, XD_EINVAL, "threads is %d; it must be from 1 to 4096", a->threads);
    int shares = shares_named(a->balance);
    if (shares < 0)
        return xd_fail(e, XD_EINVAL, "balance is \"%s\"; it can be one of: even measured adaptive",
                       a->balance);
    xd_offload offload;
    if (xd_affinity_check(a->bind, e) != XD_OK || xd_budget_check(a->memory, e) != XD_OK ||
        xd_offload_read(a->offload, &offload, e) != XD_OK)
        return XD_EINVAL;
    xd_engine *g = calloc(1, sizeof *g);
    if (!g)
        return xd_fail(e, XD_ENOMEM, "no memory for an engine");
    xd_dev_early();
    g->log = (xd_logger){ a->log, a->cookie, a->log_level };
    const xd_logger *before = xd_log_enter(&g->log);
    g->ctx.work = &xd_work_computes;
    g->ctx.cancel = &g->cancel;
    g->ctx.caches = &g->caches;
    g->ctx.keep = a->keep;
    g->ctx.once = a->once;
    g->ctx.offload = offload;
    g->ctx.budget = (double)a->memory;
    g->ctx.bench = (how & XD_FOR_BENCH) != 0;
    g->balanced = shares;
    g->ctx.adaptive = shares == XD_SHARES_ADAPTIVE;
    xd_err    mine = { .rank = -1 };
    xd_status s = a->trace ? xd_trace_open(&g->ctx.trace, a->trace, &mine) : XD_OK;
    if (s == XD_OK)
        s = xd_session_join(g, a, how & XD_ALONE, &mine);
    if (s == XD_OK && is_auto(a))
        try_devices(g);
    if (s == XD_OK)
        s = xd_session_open(g, a, open_parts(g, a, how, &mine), &mine);
    s = xd_world_judge(&g->ctx.world, s, &mine);
    xd_log_enter(before);
    if (s != XD_OK) {
        xd_fail(e, s, "%s", mine.msg);
        if (e)
            e->rank = mine.rank;
        if (s != XD_ECOMM) /* xd_close would wait for ranks that do not answer */
            xd_close(&g);
        return s;
    }
    xd_trace_phase(g->ctx.trace, NULL);
    *out = g;
    return XD_OK;
}

int xd_device_refused(const xd_engine *g)
{
    return g->refused;
}

int xd_rank(const xd_engine *g)
{
    return g->ctx.world.all->rank;
}

int xd_ranks(const xd_engine *g)
{
    return xd_degrees_product(g->ctx.plan.deg);
}

int xd_makes_videos(const xd_engine *g)
{
    return g->ctx.model.recipe->fps > 0;
}

int xd_makes_sound(const xd_engine *g)
{
    return g->ctx.model.audio[0].audio != NULL;
}

double xd_predicted(const xd_engine *g, const char *part)
{
    const xd_predicted_times *f = &g->predicted;
    return strcmp(part, "text") == 0      ? f->text_s
           : strcmp(part, "denoise") == 0 ? f->denoise_s
           : strcmp(part, "decode") == 0  ? f->decode_s
           : strcmp(part, "total") == 0   ? f->total_s
           : strcmp(part, "load") == 0    ? f->load_s
           : strcmp(part, "reading") == 0 ? f->read_s
                                          : -1;
}

double xd_cold_bytes(const xd_engine *g, const char *part)
{
    static const char *const parts[XD_KINDS] = { "text", "load", "decode" };
    const xd_plan           *p = &g->ctx.plan;
    int                      early = p->vae_rows || p->deg.n[XD_DATA] > 1;
    double                   bytes = 0;
    for (int k = 0; k < XD_KINDS; k++) {
        const char *of = parts[k == XD_KIND_VAE && early ? XD_KIND_DIT : k];
        if (strcmp(part, of) == 0 || strcmp(part, "total") == 0)
            bytes += g->ctx.cold[k];
    }
    return bytes;
}

void xd_close(xd_engine **g)
{
    if (!g || !*g)
        return;
    const xd_logger *before = xd_log_enter(&(*g)->log);
    if ((*g)->of) {
        xd_borrow_close(*g);
        xd_log_enter(before);
        free(*g);
        *g = NULL;
        return;
    }
    xd_lora_sets_close(*g);
    xd_text_cache_close(&(*g)->caches.embeddings);
    xd_colours_close(&(*g)->caches.colours);
    if ((*g)->ctx.enlarger)
        xd_enlarger_close(&(*g)->enlarger);
    xd_model_close(&(*g)->ctx.model);
    xd_session_close(*g);
    xd_dev_close(&(*g)->ctx.count);
    xd_dev_close(&(*g)->ctx.dev);
    xd_trace_close(&(*g)->ctx.trace);
    xd_log_enter(before);
    free(*g);
    *g = NULL;
}

void xd_cancel(xd_engine *g)
{
    if (g)
        xd_cancel_set(&g->cancel, NULL);
}

void xd_cancel_because(xd_engine *g, const char *reason)
{
    if (g)
        xd_cancel_set(&g->cancel, reason);
}

/* ---- requests ----------------------------------------------------------------------------- */

/* Accepts or refuses a request. If the request does not fit into memory, changes settings so that
 * it fits, if they may be changed. */
static xd_status accept_request(xd_loop *l, xd_memory_limits *room, int *refused, xd_status s,
                                xd_err *e)
{
    const xd_world *world = &l->j->ctx->world;
    s = xd_loop_accept(l, room, s, e);
    if (s == XD_ENOMEM && room->machine > 0) /* xd_memory_plan refused the request */
        s = xd_memory_fit(l->j, l->w, &l->need, room, e);
    *refused = s == XD_ENOMEM && room->device > 0 &&
               world->used->size == world->all->size; /* no rank is idle */
    return s;
}

/* Logs what an accepted request begins with. */
static void log_begin(xd_loop *l)
{
    xd_job     *j = l->j;
    xd_context *ctx = j->ctx;
    if (ctx->world.all->rank == 0 && j->r->random_seed)
        xd_log(XD_LOG_INFO, "seed %llu, chosen at random (--seed %llu repeats it)",
               (unsigned long long)j->r->seed, (unsigned long long)j->r->seed);
    xd_job_warn_unused(j);
    xd_result_count_tokens(l->r, j, l->w);
    if (ctx->world.all->rank == 0) {
        xd_model_warn_chat(&ctx->model);
        xd_prompts_warn_cut(l->w, j);
    }
}

static xd_status run_images(xd_loop *l, xd_err *e)
{
    const xd_context *ctx = l->j->ctx;
    if (!l->j->ntodo)
        return XD_OK;
    log_begin(l);
    xd_status s = xd_loop_images(l, e);
    if (l->need.messages)
        xd_log(XD_LOG_DEBUG, "messages have used %lld bytes of memory of %s; %zu were predicted",
               (long long)ctx->world.all->traffic->device_bytes, ctx->dev->name, l->need.messages);
    return s;
}

static xd_status run_request(xd_engine *g, const xd_request *r, xd_result **out, xd_err *e)
{
    xd_err           mine = { .rank = -1 };
    xd_job           j = { 0 };
    xd_prompts       w = { 0 };
    xd_memory_limits room = { 0 };
    xd_job_agreed    told;
    xd_request       own = *r; /* a copy of the request, with rank 0's seed and the image's size */
    xd_loop          l = { .j = &j, .w = &w };
    double           t0 = xd_now_s();
    xd_status        same = xd_job_compare(&g->ctx, r, &told, &mine);
    int64_t          sent = g->ctx.world.used->traffic->bytes;
    *out = NULL;
    xd_trace_again(g->ctx.trace);
    xd_cancel_reset(&g->cancel);
    own.seed = told.seed;
    own.height = told.size[0], own.width = told.size[1];
    memcpy(g->ctx.image_frames, told.frames, sizeof told.frames);
    xd_status s = xd_job_open(&j, &g->ctx, &own, &mine);
    j.picks = told.picks;
    j.rank0_images = told.images;
    if (s == XD_OK)
        s = same;
    if (s == XD_OK)
        s = xd_result_open(&l.r, &j, &mine);
    if (s == XD_OK && g->ctx.world.idle) {
        xd_job_close(&j);
        *out = l.r;
        return XD_OK;
    }
    g->refused = 0;
    if (!g->ctx.world.idle && s != XD_ECOMM)
        s = accept_request(&l, &room, &g->refused, s, &mine);
    int started = s == XD_OK;     /* 1: the request was not refused */
    if (++g->requests && started) /* times were predicted only for the first request */
        xd_warn_far_larger(&j, g->requests == 1 ? g->predicted.total_s : -1);
    if (started && j.ntodo)
        xd_log_request(&j, &room, g->requests == 1 ? &g->predicted : NULL);
    if (s == XD_OK)
        s = run_images(&l, &mine);
    if (s == XD_OK) {
        xd_result_time(l.r, "total", xd_now_s() - t0 - j.away_s);
        xd_trace_phase(g->ctx.trace, "finish");
        xd_result_traffic(l.r, sent = xd_world_sent(&g->ctx.world, sent));
    }
    if (started)
        s = xd_trace_write(&j, s == XD_OK ? sent : -1, s, &mine);
    xd_component_prefetch_end(&g->ctx.model.dit);
    xd_component_prefetch_end(&g->ctx.model.dit2);
    xd_component_prefetch_end(&g->ctx.model.vae);
    xd_prompts_close(&w, &g->ctx);
    xd_memory_hold(&g->ctx);
    xd_job_close(&j);
    s = xd_world_judge(&g->ctx.world, s, &mine);
    if (s != XD_OK) {
        xd_result_free(&l.r);
        xd_fail(e, s, "%s", mine.msg);
        if (e)
            e->rank = mine.rank;
        return s;
    }
    *out = l.r;
    return XD_OK;
}

xd_status xd_generate(xd_engine *g, const xd_request *r, xd_result **out, xd_err *e)
{
    xd_request own;
    *out = NULL;
    xd_status s = xd_request_take(&own, r, e);
    if (s != XD_OK)
        return s;
    const xd_logger *before = xd_log_enter(&g->log);
    s = xd_borrow_begin(g, e);
    if (s == XD_OK)
        s = run_request(g, &own, out, e);
    xd_log_enter(before);
    return s;
}
