/* plans.c - predicts plans, and returns the predictions to a program as data.
 *
 * Opens the model without weights, searches plans, and fills the records that the public interface
 * returns. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/par.h"
#include "base/record.h"
#include "base/word_list.h"
#include "pipeline/dtypes.h"
#include "pipeline/image_roles.h"
#include "pipeline/image_shape.h"
#include "pipeline/job.h"
#include "pipeline/memory_budget.h"
#include "pipeline/memory_plan.h"
#include "predict/fit.h"
#include "report/plans.h"

/* ---- the model and the machine -------------------------------------------------------------- */

/* Sets the machine's memory to the memory that is free now, because the machine file has the memory
 * that was free during `xdit probe`. */
static void set_room(xd_plans *p)
{
    size_t have, space;
    xd_host_memory(&have, &space);
    p->m.memory = have ? (double)have : 1;
    p->space = space ? (double)space : 1;
}

/* Sets the bytes of weights that must be read from the disk of this machine. A model whose weights
 * are absent can be planned, too. */
static void set_cold(xd_plans *p)
{
    xd_model         m = { 0 };
    xd_context      *ctx = &p->g->ctx;
    const xd_logger *log = xd_log_enter(NULL);
    if (xd_model_open(&m, p->a.model, NULL) == XD_OK && xd_model_files(&m, NULL) == XD_OK)
        xd_model_cold_bytes(&m, ctx->count, ctx->type, ctx->cold);
    xd_model_close(&m);
    xd_log_enter(log);
}

/* Sets p->m to the description of this machine, with one GPU per rank. */
static xd_status set_devices(xd_plans *p, int *ranks, xd_err *e)
{
    int       n = 1;
    xd_status s = xd_dev_instances(p->device, &n, e);
    *ranks = *ranks ? *ranks : n;
    if (s == XD_OK && *ranks > n && !strchr(p->device, ':'))
        s = xd_fail(e, XD_EINVAL,
                    "%d ranks are requested and this machine has %d of the device %s: each rank "
                    "needs one (--cluster plans for another machine)",
                    *ranks, n, p->device);
    if (s == XD_OK)
        s = xd_machine_of_devices(&p->m, p->g->ctx.dev, p->device, *ranks, e);
    set_cold(p);
    return s;
}

/* Sets the machine and the number of ranks. A cluster (the option --cluster) is another machine.
 * Plans for a cluster assume that its devices compute in bf16, unless f32 is requested. */
static xd_status set_machine(xd_plans *p, xd_err *e)
{
    const xd_advise_args *a = &p->a;
    xd_status             s = XD_OK;
    int                   threads = xd_par_threads(), ranks = a->ranks;
    if (!a->cluster && p->device) {
        s = set_devices(p, &ranks, e);
    } else if (!a->cluster) {
        ranks = ranks ? ranks : threads;
        s = xd_machine_here(&p->m, p->g->ctx.dev, ranks, threads > ranks ? threads / ranks : 1, e);
        set_room(p);
        set_cold(p);
    } else if (!p->device && (!a->dtype || strcmp(xd_word_dtype(a->dtype), "f32") != 0)) {
        p->g->ctx.type = XD_BF16;
    }
    p->m.memory = xd_budget_least(&p->g->ctx, p->m.memory);
    p->info.cluster_ranks = p->m.hosts * p->m.ranks;
    p->info.ranks = ranks = ranks ? ranks : p->info.cluster_ranks;
    if (s == XD_OK && ranks > p->info.cluster_ranks)
        s = xd_fail(e, XD_EINVAL, "%d ranks are requested and %s has %d", ranks, p->m.name,
                    p->info.cluster_ranks);
    return s;
}

static void set_request(xd_plans *p)
{
    static const char *const prompt[] = { "" };
    if (!p->r.nprompts)
        p->r.prompts = prompt, p->r.nprompts = 1;
    if (p->r.guidance.true_cfg_scale > 1 && !xd_job_has_text(&p->r, XD_TEXT_NEGATIVE))
        /* Plans depend on whether there is a negative prompt, not on its text. */
        p->r.negative_prompt = "";
    xd_image_shape_take(&p->g->ctx, &p->r);
    xd_role_count_given(&p->g->ctx, &p->r);
    xd_role_drop_images(xd_role_of_request(&p->g->ctx.model, &p->r), &p->r);
}

/* Sets p->device to the device whose kernels determine the memory sizes: the device named in the
 * arguments, else that of the machine; NULL: the CPU. */
static xd_status find_device(xd_plans *p, xd_err *e)
{
    const xd_advise_args *a = &p->a;
    int                   cpu = a->device && strcmp(a->device, "cpu") == 0;
    if (cpu && p->m.device[0])
        return xd_fail(e, XD_EINVAL, "%s was measured on device %s, but --device is %s", a->cluster,
                       p->m.device, a->device);
    p->device = cpu ? NULL : a->device ? a->device : p->m.device[0] ? p->m.device : NULL;
    if (p->device && a->cluster && !p->m.device[0])
        snprintf(p->m.device, sizeof p->m.device, "%.*s", (int)strcspn(p->device, ":"), p->device);
    return XD_OK;
}

static xd_status open_all(xd_plans *p, xd_err *e)
{
    const xd_advise_args *a = &p->a;
    xd_status             s = a->cluster ? xd_machine_read(&p->m, a->cluster, e) : XD_OK;
    if (s == XD_OK)
        s = find_device(p, e);
    xd_component_file sides[XD_MAXSIDES + 3];
    int               nsides = xd_model_side_files(sides, a->controlnets, a->ncontrolnets);
    if (a->latent_upsampler)
        sides[nsides++] = (xd_component_file){ XD_UPSAMPLER_SLOT, a->latent_upsampler };
    if (a->redux)
        sides[nsides++] = (xd_component_file){ XD_PRIOR_SLOT, a->redux };
    xd_open_args o = { .size = sizeof o,
                       .model = a->model,
                       .files = sides,
                       .nfiles = nsides,
                       .dtype = a->dtype,
                       .weights_dtype = a->weights_dtype,
                       .text_weights_dtype = a->text_weights_dtype,
                       .once = 1,
                       .log = a->log,
                       .offload = a->offload                 ? a->offload
                                  : a->cluster && !p->device ? "none"
                                                             : NULL,
                       .device = p->device,
                       .memory = a->memory,
                       .cookie = a->cookie,
                       .log_level = a->log_level };
    int          sizes = a->cluster && p->device ? XD_SIZES : 0;
    if (s == XD_OK)
        s = xd_open_with(&p->g, &o, XD_FOR_BENCH | XD_ALONE | sizes, e);
    if (s == XD_EUNSUPPORTED && p->device && !sizes && e)
        snprintf(e->msg + strlen(e->msg), sizeof e->msg - strlen(e->msg),
                 "; --cluster plans for another machine");
    if (s == XD_OK)
        s = set_machine(p, e);
    if (s == XD_OK)
        set_request(p);
    /* opens the tokenizers before the predictions, which would open them repeatedly */
    if (s == XD_OK && p->r.prompts[0][0])
        xd_model_tokenizers(&p->g->ctx.model, NULL);
    return s;
}

/* Searches plans. If no plan fits, the error lists options that would fit. */
static xd_status search_plans(xd_plans *p, xd_err *e)
{
    char      near[1024] = "";
    xd_fit    t = { .ctx = &p->g->ctx,
                    .r = &p->r,
                    .m = &p->m,
                    .fixed = &p->a.parallel,
                    .ranks = p->info.ranks,
                    .stale = !p->a.exact,
                    .chosen = 1,
                    .space = p->space };
    xd_status s = xd_fit_search(&t, &p->s, p->info.ranks, e);
    if (s == XD_ENOMEM && !p->s.good)
        xd_fit_advice_of(&t, &p->s, near, sizeof near);
    if (e && near[0])
        snprintf(e->msg + strlen(e->msg), sizeof e->msg - strlen(e->msg), "%s", near);
    return s;
}

/* ---- records -------------------------------------------------------------------------------- */

static xd_status no_memory(const xd_plans *p, xd_err *e)
{
    return xd_fail(e, XD_ENOMEM, "no memory for a table of %d plans", p->s.n);
}

static xd_plan_rank rank_record(const xd_prediction_rank *k)
{
    const xd_need *n = &k->need;
    return (xd_plan_rank){ .text = (int64_t)n->text,
                           .text_tmp = (int64_t)n->text_tmp,
                           .transformer = (int64_t)n->dit,
                           .transformer_tmp = (int64_t)(n->dit_tmp + n->method_bytes),
                           .method_bytes = (int64_t)n->method_bytes,
                           .vae = (int64_t)n->vae,
                           .vae_tmp = (int64_t)n->vae_tmp,
                           .peak = (int64_t)n->peak,
                           .busy_s = k->busy_s,
                           .wait_s = k->wait_s,
                           .sent = k->sent,
                           .sent_hosts = k->between };
}

static xd_status fill_ranks(xd_plans *p, int i, xd_err *e)
{
    const xd_prediction *f = &p->s.c[i].f;
    if (!p->plan[i].predicted)
        return XD_OK;
    if (!(p->rank[i] = calloc((size_t)f->ranks, sizeof **p->rank)))
        return no_memory(p, e);
    for (int r = 0; r < f->ranks; r++)
        p->rank[i][r] = rank_record(&f->rank[r]);
    return XD_OK;
}

/* Replaces the strings in a plan's options by the copies in p->texts, because the original strings
 * belong to the program. */
static void use_own_texts(const xd_plans *p, xd_parallel *a)
{
    a->pipefusion_text = a->pipefusion_text ? p->texts[1] : NULL;
    a->attn_layer_num_for_pp = a->attn_layer_num_for_pp ? p->texts[2] : NULL;
    a->comms = a->comms ? p->texts[3] : NULL;
}

static void fill_plan(const xd_plans *p, int i)
{
    const xd_candidate  *c = &p->s.c[i];
    const xd_prediction *f = &c->f;
    xd_plan_info        *t = &p->plan[i];
    *t = (xd_plan_info){ .name = c->name,
                         .flags = c->flags,
                         .text = f->plan.text,
                         .refused = c->why.code ? c->why.msg : NULL,
                         .parallel = c->parallel,
                         .steps = f->steps };
    use_own_texts(p, &t->parallel);
    t->predicted = f->rank && f->steps;
    if (!t->predicted)
        return;
    t->ranks = f->ranks;
    t->same_image = !f->stale && !f->coded && !f->saved;
    t->exact_steps = f->exact;
    t->load_s = xd_predicted_reading_to_load(f);
    t->text_s = f->text_s, t->exact_step_s = f->exact_s, t->step_s = f->step_s;
    t->decode_s = f->decode_s;
    t->vae_s = f->decode_s + xd_predicted_reading_to_decode(f);
    t->request_s = f->request_s;
    t->read_text_s = f->read_s[XD_KIND_TEXT];
    t->read_transformer_s = f->read_s[XD_KIND_DIT];
    t->read_vae_s = f->read_s[XD_KIND_VAE];
    t->peak = f->peak, t->sent = f->sent;
}

static xd_status fill_info(xd_plans *p, xd_err *e)
{
    const xd_context *ctx = &p->g->ctx;
    const char       *given[] = { ctx->model.dir, p->a.parallel.pipefusion_text,
                                  p->a.parallel.attn_layer_num_for_pp, p->a.parallel.comms };
    for (int i = 0; i < XD_PLAN_TEXTS; i++)
        if (given[i] && !(p->texts[i] = strdup(given[i])))
            return no_memory(p, e);
    p->info.model = p->texts[0];
    p->info.cluster = p->m.name;
    p->info.fitted = !p->m.sheet;
    p->info.dtype = xd_dtype_name(ctx->type);
    p->info.weights_dtype = xd_types_name(&ctx->model.dit, ctx->type);
    p->info.cold_bytes = ctx->cold[XD_KIND_TEXT] + ctx->cold[XD_KIND_DIT] + ctx->cold[XD_KIND_VAE];
    p->info.read_bytes_s = p->m.read;
    p->info.possible = p->s.good;
    return XD_OK;
}

static xd_status fill_all(xd_plans *p, xd_err *e)
{
    xd_status s = fill_info(p, e);
    p->plan = calloc((size_t)p->s.n + 1, sizeof *p->plan);
    p->rank = calloc((size_t)p->s.n + 1, sizeof *p->rank);
    if (s == XD_OK && (!p->plan || !p->rank))
        s = no_memory(p, e);
    for (int i = 0; i < p->s.n && s == XD_OK; i++) {
        fill_plan(p, i);
        s = fill_ranks(p, i, e);
        p->info.count = i + 1;
    }
    return s;
}

/* ---- all ------------------------------------------------------------------------------------ */

static xd_status take_args(xd_plans *p, const xd_advise_args *args, xd_err *e)
{
    xd_advise_args_init(&p->a);
    xd_request_init(&p->r);
    xd_status s = xd_record_read(&p->a, sizeof p->a, args, "xd_advise_args", e);
    if (s == XD_OK && p->a.request)
        s = xd_request_take(&p->r, p->a.request, e);
    return s;
}

xd_status xd_plans_make(xd_plans **out, const xd_advise_args *args, xd_err *e)
{
    xd_plans *p = *out = calloc(1, sizeof *p);
    if (!p)
        return xd_fail(e, XD_ENOMEM, "no memory for plans");
    xd_status        s = take_args(p, args, e);
    const xd_logger  log = { p->a.log, p->a.cookie, p->a.log_level };
    const xd_logger *before = xd_log_enter(&log);
    if (s == XD_OK)
        s = open_all(p, e);
    if (s == XD_OK) {
        s = search_plans(p, e);
        if (p->s.n) /* if the search failed, fills the records of the refused plans */
            s = fill_all(p, e) == XD_OK ? s : XD_ENOMEM;
    }
    xd_log_enter(before);
    return s;
}

/* Closes everything that only predictions need. */
static void finish_plans(xd_plans *p)
{
    xd_close(&p->g);
    memset(&p->a, 0, sizeof p->a);
    memset(&p->r, 0, sizeof p->r);
}

xd_status xd_plans_predict(xd_plans **out, const xd_advise_args *args, xd_err *e)
{
    xd_status s = xd_plans_make(out, args, e);
    if (s != XD_OK)
        xd_plans_free(out);
    else
        finish_plans(*out);
    return s;
}

void xd_plans_free(xd_plans **p)
{
    if (!p || !*p)
        return;
    finish_plans(*p);
    for (int i = 0; i < (*p)->s.n && (*p)->rank; i++)
        free((*p)->rank[i]);
    for (int i = 0; i < XD_PLAN_TEXTS; i++)
        free((*p)->texts[i]);
    free((*p)->rank);
    free((*p)->plan);
    xd_search_free(&(*p)->s);
    free(*p);
    *p = NULL;
}

const xd_plans_info *xd_plans_about(const xd_plans *p)
{
    return &p->info;
}

const xd_plan_info *xd_plans_get(const xd_plans *p, int i)
{
    return i >= 0 && i < p->info.count ? &p->plan[i] : NULL;
}

const xd_plan_rank *xd_plans_rank(const xd_plans *p, int i, int rank)
{
    const xd_plan_info *t = xd_plans_get(p, i);
    return t && rank >= 0 && rank < t->ranks ? &p->rank[i][rank] : NULL;
}
