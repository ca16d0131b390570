/* engine.c - opens an engine, and runs the stages of a request in order */
#include "engine/engine.h"
#include "engine/borrow.h"
#include "engine/lora_sets.h"
#include "engine/memory_advice.h"
#include "engine/request_log.h"
#include "engine/session.h"
#include "model/lora.h"
#include "observe/slow_device.h"
#include "pipeline/weight_groups.h"
#include "plan/balance.h"
#include "ranks/affinity.h"

#include <math.h>
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
#include "pipeline/arenas.h"
#include "pipeline/callbacks.h"
#include "pipeline/context.h"
#include "pipeline/denoise.h"
#include "pipeline/dtypes.h"
#include "pipeline/given_noise.h"
#include "pipeline/image_roles.h"
#include "pipeline/job.h"
#include "pipeline/job_compare.h"
#include "pipeline/memory_budget.h"
#include "pipeline/memory_plan.h"
#include "pipeline/offload.h"
#include "pipeline/preview.h"
#include "pipeline/preview_decoder.h"
#include "pipeline/result.h"
#include "pipeline/stages.h"
#include "pipeline/text_cache.h"
#include "pipeline/trace_json.h"
#include "pipeline/transformers.h"
#include "pipeline/yield.h"
#include "pipeline/vae_codec.h"
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
        xd_log(why.code == XD_EUNSUPPORTED ? XD_LOG_DEBUG : XD_LOG_INFO,
               "the CPU computes: %s", why.msg);
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

/* Opens the parts of an engine that need no communication. */
static xd_status open_parts(xd_engine *g, const xd_open_args *a, int how, xd_err *e)
{
    int             files = how & XD_WITH_FILES;
    xd_weight_files given = { a->files, a->nfiles };
    xd_status s = xd_model_open_with(&g->ctx.model, a->model, a->without, &given, a->layers, e);
    if (s == XD_OK)
        s = open_device(g, a, how, e);
    if (s == XD_OK && !a->offload && !xd_dev_identity(g->ctx.dev))
        g->ctx.offload = XD_OFFLOAD_NONE;       /* the weights are in host memory anyway       */
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

xd_status xd_open_with(xd_engine **out, const xd_open_args *a, int how, xd_err *e)
{
    *out = NULL;
    if (a->threads < 0 || a->threads > 4096)
        return xd_fail(e, XD_EINVAL, "threads is %d; it must be from 1 to 4096", a->threads);
    if (a->balance && strcmp(a->balance, "even") != 0 && strcmp(a->balance, "measured") != 0)
        return xd_fail(e, XD_EINVAL, "balance is \"%s\"; it can be one of: even measured",
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
    g->ctx.cancel = &g->cancel;
    g->ctx.caches = &g->caches;
    g->ctx.keep = a->keep;
    g->ctx.once = a->once;
    g->ctx.offload = offload;
    g->ctx.budget = (double)a->memory;
    g->ctx.bench = (how & XD_FOR_BENCH) != 0;
    g->balanced = a->balance && strcmp(a->balance, "measured") == 0;
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
        if (s != XD_ECOMM)      /* xd_close would wait for ranks that do not answer            */
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

double xd_predicted(const xd_engine *g, const char *part)
{
    const xd_predicted_times *f = &g->predicted;
    return strcmp(part, "text") == 0 ? f->text_s : strcmp(part, "denoise") == 0 ? f->denoise_s :
           strcmp(part, "decode") == 0 ? f->decode_s : strcmp(part, "total") == 0 ? f->total_s :
           strcmp(part, "load") == 0 ? f->load_s : strcmp(part, "reading") == 0 ? f->read_s : -1;
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

/* ---- the loop over images ----------------------------------------------------------------- */

typedef struct loop {
    xd_job   *j;
    xd_arena  a;
    xd_result *r;
    double    first_s;          /* time at which the request's first step began                */
    const xd_need *need;
    int       apart;            /* 1: transformer and VAE are not loaded at the same time      */
    int       fresh;            /* 1: some rank must load the transformer for this request      */
} loop;

static int all_finite(const float *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(v[i]))
            return 0;
    return 1;
}

/* Returns the progress of an image; `nth` is the index of the image among the request's images. */
static xd_progress progress_of(const xd_job *j, int nth, int step, double t0)
{
    return (xd_progress){ step + 1, j->samp.steps, nth + 1, j->ntodo, xd_now_s() - t0,
                          xd_now_s() - j->start_s, j->samp.time[step] };
}

static void report_step(const xd_job *j, const xd_progress *p, const float *clean)
{
    if (j->r->callbacks.on_step)
        j->r->callbacks.on_step(j->r->callbacks.cookie, p);
    if (clean && j->r->callbacks.on_preview && j->ctx->topo.replica->rank == 0)
        xd_preview_report(j, clean, p);
}

/* Returns 1 if the transformer that computes `step` may differ from the transformer that is loaded.
 * For the first step of a replica's first image, the right transformer is already loaded. */
static int may_change(const loop *l, int nth, int step)
{
    return xd_job_changes(l->j) && (step > 0 || nth >= l->j->ctx->plan.deg.n[XD_DATA]);
}

/* Called on a replica that has no image to generate. Takes part in the collective calls with which
 * the other replicas load transformers. */
static xd_status change_for_others(loop *l, int nth, xd_err *e)
{
    xd_status s = XD_OK;
    for (int step = 0; s == XD_OK && step < l->j->samp.steps; step = xd_job_dit_end(l->j, step))
        if (may_change(l, nth, step))
            s = xd_transformer_change(l->j, l->need->vae > 0, step, s, e);
    return s;
}

/* Runs the steps of one transformer, from `step` on. `lat` is memory for the latents. */
static xd_status run_steps(loop *l, xd_denoise *f, int nth, int step, float *lat, xd_err *e)
{
    xd_job     *j = l->j;
    xd_context *ctx = j->ctx;
    int         decodes = !j->r->output.latents_only && xd_vae_on_this_rank(j);
    int         ready = xd_denoise_ready(f), going = ready, end = xd_job_dit_end(j, step);
    for (; step < end && going; step++) {
        double t0 = xd_now_s();
        if (l->first_s == 0)
            xd_result_time(l->r, "first_step", (l->first_s = t0) - j->start_s);
        if (step == j->samp.steps - 1 && decodes)
            xd_prefetch_component(ctx, &ctx->model.vae);
        else if (step == end - 1 && end < j->samp.steps)
            xd_prefetch_component(ctx, xd_transformer_of(j, end));
        int64_t begin = xd_trace_now(ctx->trace);
        going = xd_denoise_step(f, step);
        xd_trace_collect(ctx->trace);
        xd_trace_add(ctx->trace, XD_EV_STEP, begin, step, 0, 0);
        xd_progress p = progress_of(j, nth, step, t0);
        if (going)
            xd_denoise_report(f, step, &p, lat);
        int previews = going && xd_preview_due(j, step);
        if (previews)
            xd_denoise_clean(f, lat);
        if (xd_ok(&f->x) && going)
            report_step(j, &p, previews ? lat : NULL);
        if (going && step + 1 < j->samp.steps)
            xd_yield_in_step(j, &f->x);
    }
    if (ready)
        xd_denoise_finish(f);
    return xd_exec_status(&f->x, e);
}

/* Denoises one image. Returns the image's latents [t,C,h,w], malloc'ed, on every rank of the
 * replica. */
static float *denoise_image(loop *l, int nth, const xd_prompts *w, xd_err *e)
{
    xd_job    *j = l->j;
    xd_context *ctx = j->ctx;
    int        image = xd_job_image(j, nth);
    float     *lat = malloc((size_t)j->numbers * sizeof *lat + 1);
    int        prompt = image / j->r->num_images_per_prompt;
    xd_cond    cond[XD_MAXPASS] = { w->text[prompt].cond,
                                    w->text[xd_prompts_negative(w, prompt)].cond };
    xd_denoise    f;
    xd_status     s = XD_OK;
    xd_arena_rewind(&l->a, 0);
    if (may_change(l, nth, 0) && xd_transformer_change(j, l->need->vae > 0, 0, s, e) != XD_OK) {
        free(lat);
        return NULL;
    }
    xd_denoise_open(&f, j, ctx->dev, &ctx->topo, &l->a, &xd_transformer_of(j, 0)->w->net, cond);
    if (!lat)
        xd_exec_fail(&f.x, XD_ENOMEM, "no memory for latents");
    xd_denoise_noise(&f, (int64_t)((uint64_t)j->r->seed + (uint64_t)image), image);
    for (int step = 0; step < j->samp.steps; step = f.end) {
        if (step > 0 &&
            (s = xd_transformer_change(j, l->need->vae > 0, step, s, e)) != XD_OK)
            break;
        if (step > 0)
            xd_denoise_change(&f, &xd_transformer_of(j, step)->w->net, step);
        s = run_steps(l, &f, nth, step, lat, e);
    }
    if (s == XD_OK)
        xd_denoise_latents(&f, lat);
    if (s == XD_OK && (s = xd_exec_status(&f.x, e)) == XD_OK && !all_finite(lat, j->numbers))
        s = xd_result_fail_odd(j, image, 0, e);
    if (s != XD_OK) {
        free(lat);
        lat = NULL;
    }
    xd_denoise_close(&f);
    return lat;
}

/* Loads the VAE after denoising, so that the first step need not wait for the VAE. If transformer
 * and VAE do not fit together, first frees the transformer and the memory of the denoising
 * steps. */
static xd_status change_over(loop *l, xd_err *e)
{
    xd_context *ctx = l->j->ctx;
    if (l->apart) {
        xd_device_arena_close(&l->a, ctx->dev);
        xd_component_drop(&ctx->model.dit);
        xd_component_drop(&ctx->model.dit2);
    }
    xd_status s = xd_component_load(&ctx->model.vae, ctx->dev, ctx->type, 0, e);
    return s == XD_OK && l->apart ? xd_device_arena_open(&l->a, ctx->dev, l->need->vae_tmp, e) : s;
}

static xd_status decode_latents(loop *l, const float *lat, float **rgb, xd_err *e)
{
    xd_status s = change_over(l, e);
    return s == XD_OK ? xd_vae_decode_image(l->j, &l->a, lat, rgb, e) : s;
}

/* Adds seconds since t0 to the times of an image and of the request. */
static void add_seconds(loop *l, int nth, const char *part, double t0)
{
    double s = xd_now_s() - t0 - xd_yield_seconds(l->j);
    xd_result_time(l->r, part, s);
    xd_result_image_time(l->r, xd_job_image(l->j, nth), part, s);
}

/* Generates the latents of one image on all ranks of this replica, and allocates pixels on the
 * ranks that receive pixels. */
static xd_status one_latent(loop *l, int nth, const xd_prompts *w, float **lat, float **rgb,
                            xd_err *e)
{
    xd_job *j = l->j;
    double  t0 = xd_now_s();
    size_t  bytes = (size_t)(j->frames * j->size[0] * j->size[1]) * 3 * sizeof(float) + 1;
    xd_callback_stage(j, "denoise");
    if (!(*lat = denoise_image(l, nth, w, e)))
        return e->code;
    if (!j->r->output.latents_only && j->ctx->topo.replica->rank == 0 && !(*rgb = malloc(bytes)))
        return xd_fail(e, XD_ENOMEM, "no memory for an image");
    add_seconds(l, nth, "denoise", t0);
    return XD_OK;
}

/* Decodes this replica's image on the first rank of the replica, or on all ranks of the replica. */
static xd_status one_image(loop *l, int nth, const float *lat, float **rgb, xd_err *e)
{
    double t0 = xd_now_s();
    int    mine = xd_vae_on_this_rank(l->j);
    xd_callback_stage(l->j, "decode");
    if (mine)
        xd_yield_begin(l->j);
    xd_status s = mine ? decode_latents(l, lat, rgb, e) : xd_yield_follow(l->j, e);
    xd_yield_end(l->j);
    add_seconds(l, nth, "decode", t0);
    return s;
}

/* Computes the number of floats of an image's latents (n[0]) and pixels (n[1]). */
static void sizes_of(const xd_job *j, int64_t n[2])
{
    n[0] = j->numbers;
    n[1] = j->r->output.latents_only ? 0 : xd_job_pixels(j);
}

static xd_status allocate_image(const xd_job *j, float *v[2], xd_err *e)
{
    int64_t n[2];
    sizes_of(j, n);
    for (int i = 0; i < 2 && j->ctx->world.used->rank == 0; i++)
        if (n[i] && !(v[i] = malloc((size_t)n[i] * sizeof(float))))
            return xd_fail(e, XD_ENOMEM, "no memory for an image of another rank");
    return XD_OK;
}

/* Sends latents, pixels, and step-cache counters from rank 0 of replica `from` to rank 0. */
static xd_status hand_over(xd_job *j, int from, float *v[2], xd_err *e)
{
    xd_comm *c = j->ctx->topo.group[XD_DATA];
    int64_t  n[3] = { 0, 0, 2 };
    sizes_of(j, n);
    for (int i = 0; i < (j->cache.kind ? 3 : 2); i++) {
        xd_tensor t = xd_view(i < 2 ? (void *)v[i] : j->cached, i < 2 ? XD_F32 : XD_I64, 1, &n[i]);
        xd_req    r = c->rank == 0 ? c->ops->recv(c, t, from) : c->ops->send(c, t, 0);
        if (c->ops->wait(c, &r, 1) != XD_OK)
            return xd_fail(e, XD_ECOMM, "an image of replica %d was lost", from);
    }
    return XD_OK;
}

/* On rank 0: adds an image to the result and reports the image to the program. The result takes
 * ownership of the latents v[0] and the pixels v[1]. */
static xd_status deliver_image(loop *l, int image, float *v[2], xd_err *e)
{
    const xd_request *r = l->j->r;
    xd_status         s = xd_result_add(l->r, l->j, image, v[0], v[1], e);
    v[0] = v[1] = NULL;
    if (s == XD_OK && r->callbacks.on_image)
        s = r->callbacks.on_image(r->callbacks.cookie, l->r, image, e);
    return s;
}

/* After callbacks, shares the status of all ranks, because the next operation may be collective. A
 * callback may have cancelled the request on one rank only. */
static xd_status agree_behind_calls(const xd_context *ctx, xd_status s, xd_err *e)
{
    if (s == XD_OK)
        s = xd_cancel_check(ctx->cancel, e);
    return xd_world_agree(&ctx->world, s, e);
}

/* Adds the images first .. first + replicas - 1 to the result on rank 0, in order. `mine` has the
 * latents and pixels of this replica's image. The result takes ownership of the buffers of each
 * added image. The ranks share their status before anything is sent, and at the end. */
static xd_status collect_images(loop *l, int first, float *mine[2], xd_err *e)
{
    xd_job           *j = l->j;
    const xd_context *ctx = j->ctx;
    int       D = ctx->plan.deg.n[XD_DATA], at = ctx->topo.at[XD_DATA];
    int       root = ctx->topo.replica->rank == 0;
    xd_status s = XD_OK;
    for (int d = 0; d < D && first + d < j->ntodo; d++) {
        float *other[2] = { NULL, NULL }, **v = at == d ? mine : other;
        if (d > 0) {
            s = xd_world_agree(&ctx->world, s == XD_OK ? allocate_image(j, v, e) : s, e);
            if (s == XD_OK && root && (at == 0 || at == d))
                s = hand_over(j, d, v, e);
            else if (s != XD_OK)
                d = D;          /* all ranks have decided to stop, so no more images follow    */
        }
        if (s == XD_OK && ctx->world.used->rank == 0)
            s = deliver_image(l, xd_job_image(j, first + d), v, e);
        free(other[0]);
        free(other[1]);
        if (d == D)
            return s;
    }
    return agree_behind_calls(ctx, s, e);
}

/* Generates all images, assigned to the replicas round robin. */
static xd_status generate_all(loop *l, const xd_prompts *w, xd_err *e)
{
    xd_job   *j = l->j;
    int       D = j->ctx->plan.deg.n[XD_DATA], at = j->ctx->topo.at[XD_DATA];
    xd_status s = XD_OK;
    for (int i = 0; s == XD_OK && i < j->ntodo; i += D) {
        float *v[2] = { NULL, NULL };
        int    busy = i + at < j->ntodo;
        if (i && (s = xd_yield_now(j, e)) != XD_OK)
            break;
        s = busy ? one_latent(l, i + at, w, &v[0], &v[1], e) : change_for_others(l, i + at, e);
        s = agree_behind_calls(j->ctx, s, e);
        if (s == XD_OK && !j->r->output.latents_only)
            s = xd_yield_now(j, e);
        if (s == XD_OK && !j->r->output.latents_only) {
            s = busy ? one_image(l, i + at, v[0], &v[1], e) : XD_OK;
            s = agree_behind_calls(j->ctx, s, e);
        }
        xd_trace_phase(j->ctx->trace, "collect");
        if (s == XD_OK)
            s = collect_images(l, i, v, e);
        free(v[0]);
        free(v[1]);
    }
    return s;
}

/* Called if a request has failed with status s. Frees the weights of the transformers and the VAE,
 * so that no rank has these weights when the next request begins. */
static void unload_after_failure(xd_context *ctx, xd_status s)
{
    if (s == XD_ECOMM || ctx->borrowed)
        return;
    xd_component_drop(&ctx->model.dit);
    xd_component_drop(&ctx->model.dit2);
    xd_component_drop(&ctx->model.vae);
}

/* Loads the transformer on all ranks. Also loads the VAE if several ranks load it together, or if
 * the request has an image to encode. After a component is loaded, the ranks share their status. */
static xd_status load_together(const loop *l, const xd_need *need, xd_err *e)
{
    xd_job    *j = l->j;
    xd_context *ctx = j->ctx;
    int        early = ctx->plan.vae_rows || ctx->plan.deg.n[XD_DATA] > 1 || xd_job_has_image(j->r);
    xd_component *p = xd_transformer_of(j, 0);
    xd_transformer_alone(j, 0);
    j->loads[xd_job_dit(j, 0)]++;
    xd_status  s = xd_component_load(p, ctx->dev, ctx->type, 0, e);
    if (s == XD_OK)
        s = xd_preview_load(j, e);
    s = xd_world_agree(&ctx->world, s, e);
    if (s == XD_OK && l->fresh)
        xd_weight_groups_nonfinite(ctx, p);
    if (s == XD_OK && early && need->vae) {
        xd_prefetch_component(ctx, &ctx->model.vae);
        s = xd_component_load(&ctx->model.vae, ctx->dev, ctx->type, 0, e);
    }
    if (early)
        s = xd_world_agree(&ctx->world, s, e);
    if (s != XD_OK)
        unload_after_failure(ctx, s);
    return s;
}

static xd_status generate_images(loop *l, const xd_need *need, const xd_prompts *w, xd_err *e)
{
    xd_job    *j = l->j;
    xd_context *ctx = j->ctx;
    double     t0 = xd_now_s();
    xd_callback_stage(j, "load");
    l->need = need;
    xd_status s = load_together(l, need, e);
    l->apart = xd_need_apart(j, ctx->world.used->size);
    int longer = need->vae_tmp > need->dit_tmp && !l->apart;
    s = xd_request_arena_open(ctx, &l->a, longer ? need->vae_tmp : need->dit_tmp, s, e);
    xd_result_time(l->r, "load", xd_now_s() - t0);
    s = xd_world_agree(&ctx->world, s, e);
    if (s == XD_OK && j->role->encode)
        s = j->role->encode(j, &l->a, e);
    if (s == XD_OK)
        s = xd_given_noise_share(j, e);
    if (s == XD_OK)
        s = generate_all(l, w, e);
    xd_request_arena_close(ctx, &l->a);
    return s;
}

/* Makes all checks that can refuse a request: options, prompts, memory. */
static xd_status prepare_request(xd_job *j, xd_prompts *w, xd_need *need, xd_memory_limits *room,
                                 int *refused, xd_status s, xd_err *e)
{
    s = xd_role_references_share(j, s, e);
    if (s == XD_OK)
        s = xd_prompts_tokenize(w, j, e);
    if (s == XD_OK)
        s = xd_stages_open(j, e);
    if (s == XD_OK)
        xd_balance_log(j->ctx->balance, j->ctx->world.used, j->tokens, j->ctx->model.dit_info.heads,
                       j->ctx->plan.vae_rows ? j->cells[1] : 0);
    s = xd_world_agree(&j->ctx->world, s, e);
    if (s == XD_OK)
        s = xd_job_pick(j, e);
    if (s == XD_OK && j->ntodo)
        s = xd_memory_plan(j, w, need, room, e);
    if (s == XD_ENOMEM && room->machine > 0)   /* xd_memory_plan refused the request           */
        s = xd_memory_fit(j, w, need, room, e);
    *refused = s == XD_ENOMEM && room->device > 0 &&
               j->ctx->world.used->size == j->ctx->world.all->size;   /* no rank is idle       */
    return s;
}

/* Runs an accepted request: encodes the text, then generates the images. */
static xd_status run_images(loop *l, xd_prompts *w, const xd_need *need, xd_err *e)
{
    xd_job    *j = l->j;
    xd_context *ctx = j->ctx;
    if (!j->ntodo)
        return XD_OK;
    if (ctx->world.all->rank == 0 && j->r->random_seed)
        xd_log(XD_LOG_INFO, "seed %llu, chosen at random (--seed %llu repeats it)",
               (unsigned long long)j->r->seed, (unsigned long long)j->r->seed);
    xd_job_warn_unused(j);
    xd_result_count_tokens(l->r, j, w);
    if (ctx->world.all->rank == 0) {
        xd_model_warn_chat(&ctx->model);
        xd_prompts_warn_cut(w, j);
    }
    xd_callback_stage(j, "text");
    l->fresh = !xd_transformer_of(j, 0)->w->store;
    if (ctx->keep)              /* another engine may have loaded the transformer on this rank  */
        l->fresh = !xd_world_all(&ctx->world, !l->fresh);
    double    t0 = xd_now_s();
    xd_status s = xd_prompts_encode(w, j, need->text_tmp, e);
    xd_result_time(l->r, "text", xd_now_s() - t0 - xd_yield_seconds(j));
    if (s != XD_OK && l->fresh)
        unload_after_failure(ctx, s);
    if (s == XD_OK)
        s = generate_images(l, need, w, e);
    if (need->messages)
        xd_log(XD_LOG_DEBUG, "messages have used %lld bytes of memory of %s; %zu were predicted",
               (long long)ctx->world.all->traffic->device_bytes, ctx->dev->name, need->messages);
    return s;
}

static xd_status run_request(xd_engine *g, const xd_request *r, xd_result **out, xd_err *e)
{
    xd_err     mine = { .rank = -1 };
    xd_job     j = { 0 };
    xd_prompts   w = { 0 };
    xd_need    need;
    xd_memory_limits room = { 0 };
    xd_job_agreed   told;
    xd_request own = *r;        /* a copy of the request, with rank 0's seed and the image's size */
    loop       l = { .j = &j };
    double     t0 = xd_now_s();
    xd_status  same = xd_job_compare(&g->ctx, r, &told, &mine);
    int64_t    sent = g->ctx.world.used->traffic->bytes;
    *out = NULL;
    xd_trace_again(g->ctx.trace);
    xd_cancel_reset(&g->cancel);
    own.seed = told.seed;
    own.height = told.size[0], own.width = told.size[1];
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
        s = prepare_request(&j, &w, &need, &room, &g->refused, s, &mine);
    int started = s == XD_OK;   /* 1: the request was not refused                              */
    if (++g->requests && started)       /* times were predicted only for the first request     */
        xd_warn_far_larger(&j, g->requests == 1 ? g->predicted.total_s : -1);
    if (started && j.ntodo)
        xd_log_request(&j, &room, g->requests == 1 ? &g->predicted : NULL);
    if (s == XD_OK)
        s = run_images(&l, &w, &need, &mine);
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
