/* memory_plan.c - counts the memory that a request needs, before anything is loaded */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/memory_plan.h"
#include "base/log.h"
#include "base/minmax.h"
#include "base/pages.h"
#include "model/component.h"
#include "model/shared_weights.h"
#include "pipeline/context.h"
#include "pipeline/denoise.h"
#include "pipeline/device_memory.h"
#include "pipeline/job.h"
#include "pipeline/memory_budget.h"
#include "pipeline/offload.h"
#include "pipeline/audio_decode.h"
#include "pipeline/preview_decoder.h"
#include "pipeline/text_encode.h"
#include "pipeline/transformers.h"
#include "pipeline/upsampling.h"
#include "pipeline/vae_codec.h"
#include "pipeline/weight_groups.h"
#include "pipeline/work.h"
#include "plan/plan.h"
#include "ranks/world.h"

static double to_gib(size_t bytes)
{
    return (double)bytes / 1073741824.0;
}

/* Returns the part of the host memory `have` that the memory budget allows. Returns all of `have`
 * if the memory budget is for a device. */
static double host_budget(const xd_context *ctx, double have)
{
    return xd_dev_identity(ctx->dev) ? have : xd_budget_least(ctx, have);
}

/* Writes the bytes of memory of this machine, and of this process. A count device, which stands for
 * another machine, has no limits. */
static void host_memory(const xd_context *ctx, size_t *machine, size_t *process)
{
    if (ctx->dev->counts)
        *machine = *process = SIZE_MAX / 4;
    else
        xd_host_memory(machine, process);
}

/* Refuses an image size that needs so much memory that an exact count is pointless: one hidden
 * state and the q, k and v of one attention alone exceed the free memory. */
static xd_status refuse_huge(const xd_job *j, size_t have, xd_err *e)
{
    double least = (double)j->tokens * (double)j->ctx->model.dit_info.dim * 4 *
                   (double)xd_dtype_size(j->ctx->type);
    double image = (double)xd_job_pixels(j) * 5;
    size_t machine, process;
    char   limit[160];
    if (xd_dev_identity(j->ctx->dev)) /* a device's own memory is counted exactly */
        least = 0;
    if (least + image <= (double)have)
        return XD_OK;
    host_memory(j->ctx, &machine, &process);
    int tight = host_budget(j->ctx, 1e18) <= (double)have;
    xd_budget_text(j->ctx, tight,
                   process < machine ? "address space (ulimit -v), without that of kernels,"
                                     : "memory",
                   (double)have, limit, sizeof limit);
    return xd_fail(e, XD_ENOMEM, "%s of %lld x %lld needs at least %s of %s",
                   j->fps > 0 ? "a video" : "an image", (long long)j->asked[1],
                   (long long)j->asked[0], xd_size_text(least + image).s, limit);
}

size_t xd_need_peak(const xd_need *n, int keep, int apart)
{
    size_t text = xd_max_size(n->text_tmp, n->text_work),
           dit = xd_max_size(n->dit_tmp + n->method_bytes + n->dit2_work, n->dit_work),
           weights = n->dit + n->dit2;
    size_t loop = xd_max_size(weights + dit, n->vae + xd_max_size(n->vae_tmp, n->vae_work));
    if (!apart) /* the VAE is loaded while the memory of the loop is still in use */
        loop = xd_max_size(weights + dit, weights + n->vae + xd_max_size(n->dit_tmp, n->vae_tmp) +
                                              n->method_bytes + n->vae_work);
    loop += n->images + n->preview_tmp + n->audio;
    return n->conds + n->messages + n->preview +
           (keep ? n->text + xd_max_size(text, loop) : xd_max_size(n->text + text, loop));
}

/* Returns the host memory that this rank needs to exchange messages between devices, because these
 * messages pass through host memory. It is four times the rank's hidden state. */
static size_t message_bytes(const xd_job *j, int ranks)
{
    const int *deg = j->ctx->plan.deg.n;
    int64_t    rows = j->tokens / (deg[XD_ULYSSES] * deg[XD_RING]) + 1;
    return ranks > 1 ? (size_t)(4 * rows * xd_dit_width(&j->ctx->model.dit_info)) * sizeof(float)
                     : 0;
}

void xd_need_sum(xd_need *n, const xd_job *j, int ranks)
{
    n->images = (size_t)xd_job_pixels(j) * 5;
    if (xd_dev_identity(j->ctx->count)) {
        n->host = n->images + n->host_work + n->pinned + message_bytes(j, ranks);
        n->images = 0;
    }
    n->peak = xd_need_peak(n, j->ctx->keep, xd_need_apart(j, ranks));
}

/* Returns 1 if the transformer and the VAE are loaded one after the other. On several ranks both
 * are kept loaded, because the ranks would have to decide together when to unload shared weights.
 * With an initial image or a latent upsampler both are kept loaded, too, because the VAE is needed
 * before the denoising loop ends. */
int xd_need_apart(const xd_job *j, int ranks)
{
    return j->ctx->once && ranks == 1 && j->images == 1 && !xd_job_begins_with_vae(j) &&
           !j->r->output.latents_only;
}

/* Returns 1 if `number` is one of the n values in v. */
static int is_repeated(const int64_t *v, int n, int64_t number)
{
    int k = 0;
    while (k < n && v[k] != number)
        k++;
    return k < n;
}

/* Counts the scratch memory of encoder k for the token number of every prompt, because a library's
 * kernels may need more memory for a short prompt than for a long one. */
static xd_status count_encoder(xd_job *j, const xd_prompts *w, int k, size_t *bytes, xd_err *e)
{
    int64_t  *ids = malloc((size_t)w->n * sizeof *ids);
    xd_status s = ids ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory for %d prompts", w->n);
    int       texts = 0;
    for (int i = 0; i < w->n && s == XD_OK; i++) {
        int64_t n = xd_prompts_computed(w, j, i, k);
        if (!is_repeated(ids, texts, n))
            ids[texts++] = n;
    }
    if (s == XD_OK)
        s = xd_prompts_count(j, k, ids, texts, bytes, e);
    free(ids);
    return s;
}

int xd_need_both(const xd_job *j)
{
    int D = j->ctx->plan.deg.n[XD_DATA], rounds = (j->ntodo + D - 1) / D;
    return xd_job_changes(j) && (rounds > 1 || !j->ctx->once);
}

/* Returns the bytes of a component's weights in memory. Blocks that stay in files are not
 * included. */
static size_t weight_bytes(const xd_component *p)
{
    xd_block_sizes w = xd_component_blocks(p);
    return p->w->streams && p->w->store ? xd_stream_plan_bytes(&p->w->stream, &w)
                                        : p->count->packed;
}

/* Counts the memory of the text encoders. If all encoders stay loaded, this is the sum over them;
 * otherwise it is the memory of the largest, because only one encoder is loaded at a time. */
static xd_status count_text(xd_job *j, const xd_prompts *w, xd_need *need, xd_err *e)
{
    xd_status s = XD_OK;
    for (int k = 0; s == XD_OK && k < w->ntext; k++) {
        size_t tmp = 0, packed;
        if (!j->ctx->model.has_text[k] || (!j->ctx->keep && !xd_prompts_need(j, k)))
            continue;
        s = count_encoder(j, w, k, &tmp, e);
        packed = weight_bytes(&j->ctx->model.text[k]);
        need->text = j->ctx->keep ? need->text + packed : xd_max_size(need->text, packed);
        need->text_tmp = xd_max_size(need->text_tmp, tmp);
        need->text_work = xd_max_size(need->text_work, j->ctx->model.text[k].count->work);
        need->host_work = xd_max_size(need->host_work, j->ctx->model.text[k].count->host_work);
    }
    return s;
}

/* Returns the job whose steps use the transformers: that of the first pass if it is the only
 * one. */
static const xd_job *job_of_steps(const xd_job *j)
{
    return j->small && !j->samp.steps ? j->small : j;
}

void xd_need_dits(xd_need *n, const xd_job *j)
{
    xd_model *m = &j->ctx->model;
    j = job_of_steps(j);
    for (int i = 0; i < xd_model_dits(m); i++) {
        const xd_component *p = xd_model_dit(m, i);
        if (!xd_job_uses_dit(j, i))
            continue;
        n->dit = xd_max_size(n->dit, weight_bytes(p));
        n->dit_work = xd_max_size(n->dit_work, p->count->work);
        n->host_work = xd_max_size(n->host_work, p->count->host_work);
    }
    int changes = xd_job_changes(j);
    n->dit2 = changes ? weight_bytes(&m->dit) + weight_bytes(&m->dit2) - n->dit : 0;
    n->dit2_work = changes ? n->dit_work : 0;
}

/* Returns 1 if this rank encodes or decodes with the VAE, whose weights ranks of a host share. */
static int shares_vae(const xd_job *j)
{
    int encodes = xd_job_encodes(j) || (j->small && xd_job_encodes(j->small));
    return (!j->r->output.latents_only || encodes) && xd_vae_on_this_rank(j);
}

/* Returns 1 if this rank needs the VAE, also if only for its statistics of latents. */
static int needs_vae(const xd_job *j)
{
    return shares_vae(j) ||
           (j->small && j->ctx->model.upsampler.upsampler && j->ctx->topo.replica->rank == 0);
}

/* Counts the memory of the denoising loop for the given numbers of rows in the embeddings of the
 * prompt and of the negative prompt. */
static xd_status count_rows(xd_job *j, int64_t prompt, int64_t negative, xd_need *need, xd_err *e)
{
    int64_t   len[XD_MAXPASS] = { prompt, negative };
    size_t    tmp, method;
    xd_status s = xd_denoise_count(j, len, &tmp, &method, e);
    if (s == XD_OK) {
        need->dit_tmp = xd_max_size(need->dit_tmp, tmp);
        need->method_bytes = xd_max_size(need->method_bytes, method);
    }
    return s;
}

/* Returns 1 if an earlier pair of prompt and negative prompt has the same numbers of embedding rows
 * as prompt i and its negative prompt. */
static int is_counted(const xd_prompts *w, const xd_job *j, int i)
{
    int k = 0;
    while (k < i && (xd_prompts_rows(w, j, k, 0) != xd_prompts_rows(w, j, i, 0) ||
                     xd_prompts_rows(w, j, k, 1) != xd_prompts_rows(w, j, i, 1)))
        k++;
    return k < i;
}

/* Counts the memory of the denoising loop for the maximum number of embedding rows, and for the
 * numbers of rows of every prompt, because kernels of a library may need more memory for fewer
 * rows. */
xd_status xd_memory_count_loop(xd_job *j, const xd_prompts *w, xd_need *need, xd_err *e)
{
    int64_t   most = xd_prompts_longest(w, j);
    xd_status s = count_rows(j, most, most, need, e);
    for (int i = 0; i < w->prompts && s == XD_OK; i++) {
        int64_t n[2] = { xd_prompts_rows(w, j, i, 0), xd_prompts_rows(w, j, i, 1) };
        if (!is_counted(w, j, i) && (n[0] < most || (xd_job_has_negative(j) && n[1] < most)))
            s = count_rows(j, n[0], n[1], need, e);
    }
    return s;
}

/* Counts the loop also for the largest share of the tokens that this rank may get between two
 * steps. */
static xd_status count_loop(xd_job *j, const xd_prompts *w, xd_need *need, xd_err *e)
{
    xd_context *ctx = j->ctx;
    xd_balance *now = ctx->balance;
    xd_status   s = xd_memory_count_loop(j, w, need, e);
    if (s != XD_OK || !ctx->adaptive || !ctx->topo.replica)
        return s;
    s = xd_balance_largest(&ctx->balance, &ctx->plan, ctx->topo.replica->rank, e);
    if (s == XD_OK)
        s = xd_memory_count_loop(j, w, need, e);
    xd_balance_close(&ctx->balance);
    ctx->balance = now;
    return s;
}

/* Adds the memory of the first pass and of the latent upsampler, which is loaded like the VAE. */
static xd_status count_first_pass(xd_job *j, const xd_prompts *w, xd_need *need, xd_err *e)
{
    size_t    weights, tmp, encode = 0;
    int       encodes = xd_job_encodes(j->small) && xd_vae_on_this_rank(j);
    xd_status s = count_loop(j->small, w, need, e);
    if (s == XD_OK && encodes)
        s = xd_vae_encode_count(j->small, &encode, e);
    if (s == XD_OK)
        s = xd_upsampling_count(j, &weights, &tmp, e);
    if (s != XD_OK)
        return s;
    need->vae += weights;
    need->vae_tmp = xd_max_size(need->vae_tmp, xd_max_size(tmp, encode));
    return xd_preview_count(j->small, &need->preview, &need->preview_tmp, e);
}

xd_status xd_memory_count(xd_job *j, const xd_prompts *w, xd_need *need, xd_err *e)
{
    xd_context *ctx = j->ctx;
    int         text = ctx->world.used->rank < ctx->plan.text_tp;
    int         vae = needs_vae(j);
    xd_status   s = XD_OK;
    *need = (xd_need){ .conds = xd_prompts_bytes(w, j) };
    if (text)
        s = count_text(j, w, need, e);
    if (s == XD_OK && j->samp.steps)
        s = count_loop(j, w, need, e);
    if (s == XD_OK && vae && (!j->r->output.latents_only || j->segments > 1))
        s = xd_vae_decode_count(j, &need->vae_tmp, e);
    if (s == XD_OK && vae && xd_job_encodes(j)) {
        size_t tmp = 0;
        s = xd_vae_encode_count(j, &tmp, e);
        need->vae_tmp = xd_max_size(need->vae_tmp, tmp);
    }
    if (s == XD_OK)
        s = xd_preview_count(j, &need->preview, &need->preview_tmp, e);
    size_t audio = 0;
    if (s == XD_OK)
        s = xd_audio_count(j, &need->audio, &audio, e);
    need->audio += audio;
    if (s == XD_OK && j->small)
        s = count_first_pass(j, w, need, e);
    xd_need_dits(need, j);
    need->vae += vae ? ctx->model.vae.count->packed : 0;
    need->vae_work = vae ? ctx->model.vae.count->work : 0;
    need->host_work = xd_max_size(need->host_work, vae ? ctx->model.vae.count->host_work : 0);
    need->messages = (size_t)ctx->count_world->traffic->device_bytes;
    xd_need_sum(need, j, ctx->world.used->size);
    return s;
}

void xd_memory_sum(xd_comm *c, double v[XD_HOST_SUMS])
{
    int64_t n = XD_HOST_SUMS;
    if (c->size == 1)
        return;
    xd_req r = c->ops->allreduce(c, xd_view(v, XD_F64, 1, &n), XD_SUM);
    c->ops->wait(c, &r, 1);
}

/* Returns the bytes of all weights that this rank has loaded. Sets *once to a sum in which this
 * rank contributes only its part of the weights that a group of ranks shares, so that the group
 * counts these weights once. */
static double loaded_bytes(xd_context *ctx, double *once)
{
    double sum = 0;
    *once = 0;
    for (int i = 0; i < XD_MODEL_PARTS; i++) {
        const xd_component *p = xd_model_part(&ctx->model, i);
        double              bytes = p ? (double)xd_store_bytes(p->w->store) : 0;
        sum += bytes;
        *once += p && p->w->shared ? bytes / p->w->group.c->size : bytes;
    }
    return sum;
}

void xd_memory_hold(xd_context *ctx)
{
    double once;
    loaded_bytes(ctx, &once);
    xd_budget_hold(ctx, once);
}

static xd_size size_of(size_t bytes)
{
    return xd_size_text((double)bytes);
}

/* Returns the error that a request needs `bytes`, more than `limit` (a text of xd_budget_text). The
 * error lists the memory need of each component. */
static xd_status refuse_memory(const xd_dev *d, const xd_need *n, double bytes, const char *limit,
                               xd_err *e)
{
    return xd_fail(e, XD_ENOMEM,
                   "the request needs %s of %s: text encoder %s + %s, "
                   "transformer %s + %s, vae %s + %s (weights + activations), kernels %s",
                   xd_size_text(bytes).s, limit, size_of(n->text).s, size_of(n->text_tmp).s,
                   size_of(n->dit + n->dit2).s, size_of(n->dit_tmp + n->method_bytes).s,
                   size_of(n->vae).s, size_of(n->vae_tmp).s, size_of(xd_dev_kernel_bytes(d)).s);
}

/* Divides the host memory that a request leaves free among the ranks that read files ahead, and
 * returns one rank's part. Returns 0 if the address space is too small for the thread that reads
 * ahead. */
static size_t free_of(const double host[XD_HOST_SUMS], double space)
{
    const double thread = 1 << 20;
    return host[1] > host[0] && space > thread ? (size_t)((host[1] - host[0]) / host[2]) : 0;
}

/* Returns the bytes of weights that this rank has loaded into host memory, and sets *once as
 * loaded_bytes does. Both are 0 for a device with its own memory. */
static double held_by_host(xd_context *ctx, double *once)
{
    double mine = loaded_bytes(ctx, once);
    return xd_dev_identity(ctx->dev) ? (*once = 0) : mine;
}

static void log_memory(const xd_context *ctx, const xd_need *need, const double host[XD_HOST_SUMS])
{
    double kernels = (double)xd_dev_kernel_bytes(ctx->dev);
    xd_log(XD_LOG_DEBUG,
           "memory: text %.3f + %.3f, transformer %.3f + %.3f, vae %.3f + %.3f, "
           "peak %.3f, kernels %.3f, %.3f on this host of %.3f GiB",
           to_gib(need->text), to_gib(need->text_tmp), to_gib(need->dit + need->dit2),
           to_gib(need->dit_tmp + need->method_bytes), to_gib(need->vae), to_gib(need->vae_tmp),
           to_gib(need->peak), kernels / 1073741824.0, host[0] / 1073741824.0,
           host[1] / 1073741824.0);
}

/* Returns the bytes that this rank saves because ranks share the weights of transformers
 * (xd_shared_weights_saved_bytes). If only one transformer is loaded at a time, counts only the
 * bytes of that transformer. */
static double dits_saved(const xd_job *j)
{
    double one = xd_shared_weights_saved_bytes(&j->ctx->model.dit),
           two = xd_shared_weights_saved_bytes(&j->ctx->model.dit2);
    return j->both ? one + two : xd_job_uses_dit(j, 0) ? one : two;
}

/* Returns the bytes that this rank saves because engines share the weights of text encoders. Only
 * concurrent engines with one rank share text encoders. */
static double texts_saved(const xd_context *ctx)
{
    double sum = 0;
    for (int k = 0; k < XD_MAXTEXT && ctx->neighbours > 1; k++)
        if (ctx->model.has_text[k])
            sum += xd_shared_weights_saved_bytes(&ctx->model.text[k]);
    return sum;
}

/* Returns this engine's part of the host's free memory, which concurrent engines divide among
 * them. */
static size_t share_of(const xd_context *ctx, size_t bytes)
{
    return ctx->neighbours > 1 ? bytes / (size_t)ctx->neighbours : bytes;
}

/* Over the ranks of this host, sums up the bytes that the request needs and the bytes that it may
 * use. Returns 1 if the memory budget is the limit, or 0 if the host's memory is the limit. */
static int sum_host(const xd_job *j, double peak, double once, int reads, size_t have,
                    double host[XD_HOST_SUMS])
{
    xd_context *ctx = j->ctx;
    double      left = (double)have;
    host[0] = peak + (xd_dev_identity(ctx->dev) ? 0 : (double)xd_dev_kernel_bytes(ctx->dev));
    host[0] -= dits_saved(j) + xd_shared_weights_saved_bytes(&ctx->model.vae) + texts_saved(ctx);
    host[1] = once;
    host[2] = reads;
    host[3] = xd_budget_elsewhere(ctx);
    xd_memory_sum(ctx->world.host, host);
    if (!xd_dev_identity(ctx->dev))
        left = xd_budget_left(ctx, left, host[1] + host[3]);
    host[1] += (double)share_of(ctx, (size_t)left);
    return left < (double)have;
}

/* Makes the request fit into the host's memory: some blocks of weights stay in their files and are
 * streamed (read each time they are used). These are as few blocks as necessary, or all blocks if
 * the offload setting demands it. If ranks share weights, the saved memory is divided among them.
 * Loaded weights stay as they are. */
static void fit_to_host(xd_job *j, xd_need *need)
{
    xd_context         *ctx = j->ctx;
    xd_offload_parts    p;
    size_t              have, space;
    double              once, mine = held_by_host(ctx, &once), host[XD_HOST_SUMS];
    const xd_component *dit = xd_transformer_of(j, 0);
    double copies[XD_HOST_SUMS] = { dit->w->group.c ? 1.0 / dit->w->group.c->size : 1 };
    if (ctx->offload == XD_OFFLOAD_NONE || !dit->w->streams || !dit->files)
        return;
    host_memory(ctx, &have, &space);
    sum_host(j, (double)need->peak, once, 1, have, host);
    xd_memory_sum(ctx->world.host, copies);
    if (xd_model_has_dits(&ctx->model))
        return;
    double room = (double)need->peak - (host[0] - host[1]) / copies[0];
    room = room < (double)space + mine ? room : (double)space + mine;
    xd_offload_sizes(ctx, ctx->world.used->rank < ctx->plan.text_tp, &p);
    xd_offload_fit(&p, need, j, ctx->world.used->size, room);
    xd_offload_set(ctx, &p);
    if (need->streamed && ctx->world.all->rank == 0)
        xd_log(XD_LOG_INFO,
               "offload: %d of the transformer's %d blocks (%s) stay in their files "
               "and are read in every step",
               dit->w->stream.streamed, dit->w->net.last - dit->w->net.first,
               size_of(need->streamed).s);
}

/* Checks two limits. One is the address space of this process. The other is the memory of the host,
 * which must be enough for all ranks of the host together, with shared weights counted once. */
static xd_status compare_limits(xd_job *j, const xd_need *need, xd_memory_limits *limits, xd_err *e)
{
    xd_context *ctx = j->ctx;
    size_t      have = 0, space = 0;
    double      once, mine = held_by_host(ctx, &once);
    char        ranks[80] = "memory", limit[200];
    host_memory(ctx, &have, &space);
    const xd_weight_group *group = &xd_transformer_of(j, 0)->w->group;
    int                    reads = !group->c || group->c->rank == 0;
    int                    apart = xd_dev_identity(ctx->dev) != 0;
    double                 peak = (double)(apart ? need->host : need->peak);
    double                 host[XD_HOST_SUMS];
    int                    tight = sum_host(j, peak, once, reads, have, host);
    limits->machine = host[1];
    limits->needed = host[0];
    limits->space = (double)space + mine;
    log_memory(ctx, need, host);
    ctx->spare = reads ? free_of(host, (double)space + mine - peak) : 0;
    if (peak > (double)space + mine) {
        xd_budget_text(ctx, 0, "address space (ulimit -v), without that of kernels,",
                       (double)space + mine, limit, sizeof limit);
        return refuse_memory(ctx->dev, need, peak, limit, e);
    }
    if (ctx->world.host->size > 1)
        snprintf(ranks, sizeof ranks, "memory (%d ranks together)", ctx->world.host->size);
    xd_budget_text(ctx, tight, ranks, host[1], limit, sizeof limit);
    return host[0] > host[1] ? refuse_memory(ctx->dev, need, host[0], limit, e) : XD_OK;
}

/* Returns the bytes of the larger of the transformers that the request uses. A loaded transformer
 * counts with its loaded bytes. For a transformer that is not loaded, all its bytes count, and
 * streaming is turned off. */
static size_t as_loaded(const xd_job *j)
{
    xd_model *m = &j->ctx->model;
    size_t    most = 0;
    j = job_of_steps(j);
    for (int i = 0; i < xd_model_dits(m); i++) {
        xd_component *p = xd_model_dit(m, i);
        if (!xd_job_uses_dit(j, i))
            continue;
        if (!p->w->store)
            p->w->stream = (xd_stream_plan){ 0 };
        most = xd_max_size(most, p->w->store ? xd_store_bytes(p->w->store) : p->count->packed);
    }
    return most;
}

/* Returns the part of a device's memory that this rank may use. */
static double share_of_room(const xd_need *need, const xd_device_room *room)
{
    return (room->have - room->kernels) * (double)need->peak / (room->need - room->kernels);
}

/* Returns 1 if the request fits into the device's memory with the transformers as they are loaded
 * now, and then sets *need to the memory need with these transformers. */
static int fits_as_loaded(const xd_job *j, xd_need *need, const xd_device_room *room)
{
    xd_need as_it_is = *need;
    if (!xd_model_has_dits(&j->ctx->model))
        return 1;
    as_it_is.dit = as_loaded(j);
    xd_need_sum(&as_it_is, j, j->ctx->world.used->size);
    if ((double)as_it_is.peak > share_of_room(need, room) && !j->ctx->borrowed)
        return 0;
    *need = as_it_is;
    return 1;
}

/* If a rank needs more than its part of the device's memory, streams blocks of the transformers.
 * `fits` is 1 if fits_as_loaded returned 1 on all ranks; loaded weights then stay as they are.
 * Otherwise all ranks drop their weights, because the ranks of a host may share one copy of
 * them. */
static void fit_to_device(xd_job *j, xd_need *need, const xd_device_room *room, int fits)
{
    xd_context      *ctx = j->ctx;
    xd_offload_parts p;
    int              text = ctx->world.used->rank < ctx->plan.text_tp;
    if (ctx->dev->counts || (fits && xd_model_has_dits(&ctx->model)))
        return; /* a prediction has selected the blocks */
    if (!fits) {
        xd_component_drop(&ctx->model.dit);
        xd_component_drop(&ctx->model.dit2);
    }
    xd_offload_sizes(ctx, text, &p);
    xd_offload_fit(&p, need, j, ctx->world.used->size, share_of_room(need, room));
    xd_offload_set(ctx, &p);
}

/* Logs how many blocks are streamed from host memory, and the minimum time that copying them takes
 * in each step. */
static void log_streaming(const xd_job *j, const xd_need *need)
{
    const xd_context   *ctx = j->ctx;
    const xd_component *p = xd_transformer_of(j, 0);
    int                 runs = xd_offload_runs(j, xd_job_usual_passes(j), 0);
    double              bytes = (double)need->streamed * runs, rate = 0;
    if (!need->streamed || ctx->world.all->rank)
        return;
    if (ctx->dev->mem->link)
        rate = ctx->dev->mem->link(ctx->dev, 0);
    xd_log(XD_LOG_INFO,
           "offload: %d of the transformer's %d blocks are streamed from host memory to %s: "
           "%s per step, at least %.3g s at %s/s%s",
           p->w->stream.streamed, p->w->net.last - p->w->net.first, ctx->dev->name,
           xd_size_text(bytes).s, rate > 0 ? bytes / rate : 0, xd_size_text(rate).s,
           ctx->offload == XD_OFFLOAD_AUTO ? ", as they do not fit there" : "");
}

/* Returns the bytes of the device's memory that this rank's weights and messages already use. */
static double held_by_device(xd_context *ctx)
{
    double once;
    return loaded_bytes(ctx, &once) + (double)ctx->world.all->traffic->device_bytes;
}

/* Counts the pinned host memory for streamed blocks whose weights are about to be loaded. The ranks
 * of a host share one copy of these blocks. */
static void count_copies(xd_job *j, xd_need *need)
{
    size_t most = 0;
    for (int i = 0; i < xd_model_dits(&j->ctx->model); i++) {
        const xd_component *p = xd_model_dit(&j->ctx->model, i);
        most = xd_max_size(most,
                           p->w->stream.host / (size_t)(p->w->group.c ? p->w->group.c->size : 1));
    }
    if (need->streamed)
        xd_offload_pin(need, j, j->ctx->world.used->size, most);
}

/* Checks the memory limit of a device with its own memory, which other ranks may also use. */
static xd_status compare_device(xd_job *j, xd_need *need, xd_memory_limits *limits, xd_err *e)
{
    xd_context    *ctx = j->ctx;
    xd_device_room room;
    char           who[120], limit[200];
    xd_status      s = xd_device_room_find(ctx, (double)need->peak, held_by_device(ctx), &room, e);
    xd_need        whole = *need;
    int            fits = xd_world_all(&ctx->world, s != XD_OK || fits_as_loaded(j, need, &room));
    if (s != XD_OK)
        return s;
    if (!fits) /* at least one rank needs too much memory */
        *need = whole;
    fit_to_device(j, need, &room, fits);
    s = xd_device_room_find(ctx, (double)need->peak, held_by_device(ctx), &room, e);
    if (s != XD_OK)
        return s;
    xd_log(XD_LOG_DEBUG, "memory of %s: %s needed%s, %s free; host memory needed: %s",
           ctx->dev->name, xd_size_text(room.need).s, room.ranks > 1 ? " by all ranks" : "",
           xd_size_text(room.have).s, size_of(need->host).s);
    if (need->messages)
        xd_log(XD_LOG_DEBUG, "memory of %s: %zu of these bytes are for messages", ctx->dev->name,
               need->messages);
    limits->needed = room.need;
    limits->device = (room.have - room.kernels) / room.ranks;
    limits->device = limits->device > 1 ? limits->device : 1;
    if (room.need <= room.have) {
        log_streaming(j, need);
        return XD_OK;
    }
    snprintf(who, sizeof who, "the memory of %s", ctx->dev->name);
    if (room.ranks > 1)
        snprintf(who, sizeof who, "the memory of %s (%d ranks together)", ctx->dev->name,
                 room.ranks);
    xd_budget_text(ctx, ctx->budget > 0 && room.have >= ctx->budget, who, room.have, limit,
                   sizeof limit);
    return refuse_memory(ctx->dev, need, room.need, limit, e);
}

/* Decides whether memory can hold both transformers of a model at the same time. The decision is
 * equal on all ranks. */
static xd_status keep_both(xd_job *j, xd_need *need, const xd_memory_limits *limits, xd_err *e)
{
    xd_context      *ctx = j->ctx;
    xd_memory_limits any = *limits;
    xd_device_room   room;
    xd_err           why = { .rank = -1 };
    xd_need_sum(need, j, ctx->world.used->size);
    j->both = 1;
    xd_status s = compare_limits(j, need, &any, &why);
    if (s == XD_OK && ctx->offload == XD_OFFLOAD_STREAM)
        s = XD_ENOMEM;
    if (xd_dev_identity(ctx->dev)) {
        xd_status found =
            xd_device_room_find(ctx, (double)need->peak, held_by_device(ctx), &room, &why);
        s = s == XD_OK && found == XD_OK && room.need > room.have ? XD_ENOMEM
            : s == XD_OK                                          ? found
                                                                  : s;
    }
    s = xd_world_agree(&ctx->world, s, &why);
    j->both = s == XD_OK;
    return s == XD_ENOMEM ? XD_OK : s == XD_OK ? s : xd_fail(e, s, "%s", why.msg);
}

/* ---- the plan of a complete request ------------------------------------------------------- */

xd_status xd_memory_plan(xd_job *j, const xd_prompts *w, xd_need *need, xd_memory_limits *limits,
                         xd_err *e)
{
    xd_context *ctx = j->ctx;
    size_t      machine, space;
    double      once, mine = held_by_host(ctx, &once);
    host_memory(ctx, &machine, &space);
    *need = (xd_need){ 0 };
    double most = host_budget(ctx, (double)share_of(ctx, machine) + mine);
    *limits = (xd_memory_limits){ .machine = most, .space = (double)space + mine, .held = mine };
    xd_status s = refuse_huge(
        j, (size_t)(limits->machine < limits->space ? limits->machine : limits->space), e);
    limits->huge = s != XD_OK;
    if (s == XD_OK)
        s = ctx->work->count(j, w, need, e);
    s = xd_world_agree(&ctx->world, s, e);
    if (s == XD_OK && !xd_dev_identity(ctx->dev))
        s = xd_weight_groups_find(ctx, shares_vae(j), e);
    if (s == XD_OK && xd_need_both(j))
        s = keep_both(j, need, limits, e);
    if (!j->both)
        need->dit2 = 0;
    if (s == XD_OK)
        xd_need_sum(need, j, ctx->world.used->size);
    if (s == XD_OK && xd_dev_identity(ctx->dev)) {
        s = xd_world_agree(&ctx->world, compare_device(j, need, limits, e), e);
        if (s == XD_OK)
            s = xd_weight_groups_find(ctx, shares_vae(j), e);
        if (s == XD_OK)
            count_copies(j, need);
    } else if (s == XD_OK) {
        fit_to_host(j, need);
    }
    if (s == XD_OK) {
        limits->device = 0;
        s = xd_world_agree(&ctx->world, compare_limits(j, need, limits, e), e);
    }
    return s;
}

/* ---- the plan of a request that only decodes ---------------------------------------------- */

static xd_status count_decoding(xd_job *j, xd_need *need, xd_err *e)
{
    xd_context         *ctx = j->ctx;
    const xd_component *vae = &ctx->model.vae;
    int                 here = xd_vae_on_this_rank(j);
    double once, loaded = loaded_bytes(ctx, &once) - (double)xd_store_bytes(vae->w->store);
    *need = (xd_need){ .dit = (size_t)loaded };
    xd_status s = here ? xd_vae_decode_count(j, &need->vae_tmp, e) : XD_OK;
    need->vae = here ? vae->count->packed : 0;
    need->vae_work = here ? vae->count->work : 0;
    need->host_work = here ? vae->count->host_work : 0;
    xd_need_sum(need, j, ctx->world.used->size);
    return s;
}

static xd_status fits_decoding(xd_job *j, const xd_need *need, xd_err *e)
{
    xd_context      *ctx = j->ctx;
    xd_memory_limits limits = { 0 };
    xd_device_room   room;
    xd_status        s = XD_OK;
    if (xd_dev_identity(ctx->dev)) {
        s = xd_device_room_find(ctx, (double)need->peak, held_by_device(ctx), &room, e);
        if (s == XD_OK && room.need > room.have)
            s = refuse_memory(ctx->dev, need, room.need, "the memory of the device", e);
        s = xd_world_agree(&ctx->world, s, e);
    }
    return s == XD_OK ? xd_world_agree(&ctx->world, compare_limits(j, need, &limits, e), e) : s;
}

xd_status xd_memory_plan_decode(xd_job *j, xd_need *need, xd_err *e)
{
    xd_context *ctx = j->ctx;
    xd_err      why = { .rank = -1 };
    xd_status   s = xd_world_agree(&ctx->world, count_decoding(j, need, e), e);
    if (s == XD_OK)
        s = xd_weight_groups_whole(ctx, ctx, 1, e);
    if (s != XD_OK)
        return s;
    s = fits_decoding(j, need, &why);
    if (s == XD_ENOMEM && !ctx->borrowed && xd_model_has_dits(&ctx->model)) {
        xd_component_drop(&ctx->model.dit);
        xd_component_drop(&ctx->model.dit2);
        why = (xd_err){ .rank = -1 };
        s = xd_world_agree(&ctx->world, count_decoding(j, need, &why), &why);
        s = s == XD_OK ? fits_decoding(j, need, &why) : s;
    }
    if (s == XD_OK)
        return s;
    xd_fail(e, s, "%s", why.msg);
    e->rank = why.rank;
    return s;
}
