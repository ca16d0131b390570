/* loop.c - the loop of a request over its images */
#include "pipeline/loop.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/minmax.h"
#include "model/model.h"
#include "observe/trace.h"
#include "pipeline/arenas.h"
#include "pipeline/audio_decode.h"
#include "pipeline/callbacks.h"
#include "pipeline/checkpoint.h"
#include "pipeline/context.h"
#include "pipeline/given_noise.h"
#include "pipeline/image_roles.h"
#include "pipeline/preview_decoder.h"
#include "pipeline/transformers.h"
#include "pipeline/upsampling.h"
#include "pipeline/vae_codec.h"
#include "pipeline/weight_groups.h"
#include "pipeline/work.h"
#include "pipeline/yield.h"
#include "ranks/world.h"

/* ---- one image ---------------------------------------------------------------------------- */

/* Returns 1 if the transformer that computes `step` may differ from the transformer that is loaded.
 * For the first step of a replica's first image, the right transformer is already loaded. */
static int may_change(const xd_loop *l, int nth, int step)
{
    int later = step > 0 || l->j->small || nth >= l->j->ctx->plan.deg.n[XD_DATA];
    return xd_job_changes(l->j) && later;
}

/* Denoises image nth to `lat`, memory for the image's latents [t,C,h,w] on every rank of the
 * replica. On a replica that has no image to generate (`busy` is 0), takes part in the collective
 * calls with which the other replicas load transformers. */
static xd_status denoise_image(xd_loop *l, int nth, int busy, float *lat, xd_err *e)
{
    xd_job   *j = l->j;
    xd_status s = XD_OK;
    int       first = busy ? xd_checkpoint_finished(j, xd_job_image(j, nth)) : j->samp.steps;
    for (int step = 0; step < j->samp.steps; step = xd_job_dit_end(j, step)) {
        if (may_change(l, nth, step) &&
            (s = xd_transformer_change(j, l->need.vae > 0, step, s, e)) != XD_OK)
            break;
        if (first < xd_job_dit_end(j, step))
            s = j->ctx->work->denoise(l, nth, step < first ? first : step, lat, e);
    }
    if (l->f.j)
        xd_denoise_close(&l->f);
    l->f.j = NULL;
    return s;
}

/* Enlarges latents on the first rank of this replica, and sends the result to all its ranks. `s` is
 * this rank's status so far. */
static xd_status enlarge(xd_loop *l, const float *small, xd_status s, xd_err *e)
{
    xd_job   *j = l->j;
    xd_comm  *c = j->ctx->topo.replica;
    xd_tensor out = xd_view(j->start_latents, XD_F32, 1, &j->numbers);
    xd_status (*compute)(xd_job *, xd_arena *, const float *, float *, xd_err *) =
        j->ctx->work->upsample;
    xd_trace_phase(j->ctx->trace, "upsample");
    s = xd_world_agree_in(c, j->ctx->world.used->rank, s, e);
    if (s == XD_OK && c->rank == 0)
        s = compute(j, &l->a, small, j->start_latents, e);
    s = xd_world_agree_in(c, j->ctx->world.used->rank, s, e);
    if (s == XD_OK && c->size > 1) {
        xd_req r = c->ops->bcast(c, out, 0);
        if (c->ops->wait(c, &r, 1) != XD_OK)
            return xd_fail(e, XD_ECOMM, "a message between ranks failed");
    }
    int64_t d[4] = { j->lat[0] - j->spare, j->lat[1], j->lat[2], j->lat[3] };
    if (s == XD_OK && !j->ctx->dev->counts)
        xd_callback_tensor(j, "upsampled", 0, 4, d,
                           j->start_latents + j->spare * d[1] * d[2] * d[3]);
    return s;
}

/* Runs the first pass of image nth and enlarges its latents to j->start_latents. An image that a
 * checkpoint continues after the first pass needs none. */
static xd_status first_pass(xd_loop *l, int nth, int busy, xd_err *e)
{
    xd_job   *j = l->j, *small = j->small;
    xd_loop   first = { .j = small, .w = l->w, .r = l->r, .need = l->need, .a = l->a };
    size_t    bytes = (size_t)j->numbers * sizeof(float);
    xd_status s = XD_OK;
    free(j->start_latents);
    j->start_latents = NULL;
    first.first_s = l->first_s;
    if (!busy || xd_checkpoint_finished(j, xd_job_image(j, nth)))
        return denoise_image(&first, nth, 0, NULL, e);
    float *lat = xd_host_buffer(j->ctx, (size_t)small->numbers * sizeof *lat);
    j->start_latents = xd_host_buffer(j->ctx, bytes);
    if (!lat || !j->start_latents)
        s = xd_fail(e, XD_ENOMEM, "no memory for latents");
    else if (!j->ctx->dev->counts)
        memset(j->start_latents, 0, bytes);
    double    away_s = small->away_s;
    xd_status run = denoise_image(&first, nth, 1, lat, e);
    l->first_s = first.first_s;
    j->away_s += small->away_s - away_s;
    s = enlarge(l, lat, s == XD_OK ? run : s, e);
    free(lat);
    return s;
}

/* Denoises image nth in all passes, as denoise_image does in one. */
static xd_status denoise_passes(xd_loop *l, int nth, int busy, float *lat, xd_err *e)
{
    xd_job   *j = l->j;
    xd_status s = j->small ? first_pass(l, nth, busy, e) : XD_OK;
    if (s == XD_OK)
        s = denoise_image(l, nth, busy, lat, e);
    if (s == XD_OK && busy && j->small && !j->samp.steps && lat && !j->ctx->dev->counts)
        memcpy(lat, j->start_latents, (size_t)j->numbers * sizeof *lat);
    return s;
}

/* Loads the VAE after denoising, so that the first step need not wait for the VAE. If transformer
 * and VAE do not fit together, first frees the transformer and the memory of the denoising
 * steps. */
static xd_status change_over(xd_loop *l, xd_err *e)
{
    xd_context *ctx = l->j->ctx;
    if (l->apart) {
        xd_device_arena_close(&l->a, ctx->dev);
        xd_component_drop(&ctx->model.dit);
        xd_component_drop(&ctx->model.dit2);
    }
    xd_status s = xd_component_load(&ctx->model.vae, ctx->dev, ctx->type, 0, e);
    return s == XD_OK && l->apart ? xd_device_arena_open(&l->a, ctx->dev, l->need.vae_tmp, e) : s;
}

static xd_status decode_latents(xd_loop *l, const float *lat, float **rgb, xd_err *e)
{
    xd_status s = change_over(l, e);
    return s == XD_OK ? l->j->ctx->work->decode(l->j, &l->a, lat, rgb, e) : s;
}

/* ---- segments ------------------------------------------------------------------------------ */

/* Copies a decoded segment [all_frames,H,W,K] to its place in the video rgb, which may be NULL.
 * Frames that the segment shares with the previous one are that one's. */
static void put_segment(const xd_job *j, const float *clip, float *rgb)
{
    int64_t n = j->size[0] * j->size[1] * j->channels, first = j->segment ? j->overlap : 0;
    int64_t at = first + j->segment * (j->all_frames - j->overlap),
            count = xd_min(j->all_frames - first, j->frames - at);
    if (rgb && count > 0)
        memcpy(rgb + at * n, clip + first * n, (size_t)(count * n) * sizeof *rgb);
}

/* Decodes the current segment to its place in the video rgb of the replica's first rank. If `last`
 * is not NULL, it receives the frames with which the next segment begins. */
static xd_status decode_segment(xd_loop *l, const float *lat, float *rgb, float *last, xd_err *e)
{
    xd_job   *j = l->j;
    int64_t   n = j->size[0] * j->size[1] * j->channels;
    int       root = j->ctx->topo.replica->rank == 0;
    float    *clip = NULL;
    xd_status s = XD_OK;
    if (root && !(clip = xd_host_buffer(j->ctx, (size_t)(j->all_frames * n) * sizeof *clip)))
        s = xd_fail(e, XD_ENOMEM, "no memory for a segment of a video");
    if (j->ctx->plan.vae_rows)
        s = xd_world_agree_in(j->ctx->topo.replica, j->ctx->world.used->rank, s, e);
    if (s == XD_OK && xd_vae_on_this_rank(j))
        s = decode_latents(l, lat, &clip, e);
    if (s == XD_OK && root && !j->ctx->dev->counts) {
        put_segment(j, clip, rgb);
        if (last)
            memcpy(last, clip + (j->all_frames - j->overlap) * n,
                   (size_t)(j->overlap * n) * sizeof *last);
    }
    free(clip);
    return s;
}

/* Denoises image nth segment by segment, and decodes all segments but the last, whose latents `lat`
 * receives. */
static xd_status denoise_segments(xd_loop *l, int nth, float *lat, float *rgb, xd_err *e)
{
    xd_job   *j = l->j;
    size_t    bytes = (size_t)(j->overlap * j->size[0] * j->size[1] * j->channels) * sizeof(float);
    float    *last = j->segments > 1 ? xd_host_buffer(j->ctx, bytes) : NULL;
    xd_status s = XD_OK;
    if (j->segments > 1 && !last)
        s = xd_fail(e, XD_ENOMEM, "no memory for frames of a video");
    for (j->segment = 0; j->segment < j->segments; j->segment++) {
        j->steps_before = j->segment * j->samp.steps;
        s = j->role->follow(j, &l->a, last, s, e);
        if (s == XD_OK)
            s = denoise_passes(l, nth, 1, lat, e);
        if (s != XD_OK || j->segment + 1 == j->segments)
            break;
        s = decode_segment(l, lat, rgb, last, e);
    }
    free(last);
    return s;
}

/* Adds seconds since t0 to the times of an image and of the request. */
static void add_seconds(xd_loop *l, int nth, const char *part, double t0)
{
    double s = xd_now_s() - t0 - xd_yield_seconds(l->j);
    xd_result_time(l->r, part, s);
    xd_result_image_time(l->r, xd_job_image(l->j, nth), part, s);
}

/* Generates the latents of one image on all ranks of this replica, and allocates pixels on the
 * ranks that receive pixels. */
static xd_status one_latent(xd_loop *l, int nth, float **lat, float **rgb, xd_err *e)
{
    xd_job *j = l->j;
    double  t0 = xd_now_s();
    size_t  bytes = (size_t)(j->frames * j->size[0] * j->size[1] * j->channels) * sizeof(float);
    xd_callback_stage(j, "denoise");
    *lat = xd_host_buffer(j->ctx, (size_t)j->numbers * sizeof **lat);
    int       pixels = !j->r->output.latents_only && j->ctx->topo.replica->rank == 0;
    xd_status s = XD_OK;
    if (j->segments && pixels)
        *rgb = xd_host_buffer(j->ctx, bytes);
    s = j->segments ? denoise_segments(l, nth, *lat, *rgb, e) : denoise_passes(l, nth, 1, *lat, e);
    if (s != XD_OK)
        return s;
    if (!j->segments && pixels)
        *rgb = xd_host_buffer(j->ctx, bytes);
    if (pixels && !*rgb)
        return xd_fail(e, XD_ENOMEM, "no memory for an image");
    add_seconds(l, nth, "denoise", t0);
    return XD_OK;
}

/* Decodes this replica's image on the first rank of the replica, or on all ranks of the replica. */
static xd_status one_image(xd_loop *l, int nth, const float *lat, float **rgb, xd_err *e)
{
    double t0 = xd_now_s();
    int    mine = xd_vae_on_this_rank(l->j);
    l->j->decoded = xd_job_image(l->j, nth);
    xd_callback_stage(l->j, "decode");
    if (mine)
        xd_yield_begin(l->j);
    xd_status s = !mine            ? xd_yield_follow(l->j, e)
                  : l->j->segments ? decode_segment(l, lat, *rgb, NULL, e)
                                   : decode_latents(l, lat, rgb, e);
    xd_yield_end(l->j);
    add_seconds(l, nth, "decode", t0);
    return s;
}

/* ---- collecting --------------------------------------------------------------------------- */

/* Computes the number of floats of an image's latents (n[0]) and pixels (n[1]). */
static void sizes_of(const xd_job *j, int64_t n[2])
{
    n[0] = j->numbers;
    n[1] = j->r->output.latents_only ? 0 : xd_job_pixels(j);
}

/* Returns the number of floats of an image's sound. */
static int64_t sound_of(const xd_job *j)
{
    int     channels, rate;
    int64_t n = xd_audio_samples(j, &channels, &rate);
    return n * channels;
}

static xd_status allocate_image(xd_job *j, float *v[2], xd_err *e)
{
    int64_t n[2], sound = sound_of(j);
    sizes_of(j, n);
    if (sound && j->ctx->world.used->rank == 0) {
        free(j->wave);
        if (!(j->wave = xd_host_buffer(j->ctx, (size_t)sound * sizeof(float))))
            return xd_fail(e, XD_ENOMEM, "no memory for the audio of another rank");
    }
    for (int i = 0; i < 2 && j->ctx->world.used->rank == 0; i++)
        if (n[i] && !(v[i] = xd_host_buffer(j->ctx, (size_t)n[i] * sizeof(float))))
            return xd_fail(e, XD_ENOMEM, "no memory for an image of another rank");
    return XD_OK;
}

/* Sends latents, pixels, step-cache counters, hashes and sound from rank 0 of replica `from` to
 * rank 0. */
static xd_status hand_over(xd_job *j, int from, float *v[2], xd_err *e)
{
    xd_comm *c = j->ctx->topo.group[XD_DATA];
    int64_t  words = sizeof *j->hashes / sizeof(int64_t);
    int64_t  n[5] = { 0, 0, 2, words * j->samp.steps * xd_step_hash_count(j), sound_of(j) };
    void    *p[5] = { v[0], v[1], j->cached, j->hashes, j->wave };
    int      wanted[5] = { 1, 1, j->cache.kind != NULL, n[3] > 0, n[4] > 0 };
    sizes_of(j, n);
    for (int i = 0; i < 5; i++) {
        if (!wanted[i])
            continue;
        xd_tensor t = xd_view(p[i], i < 2 || i == 4 ? XD_F32 : XD_I64, 1, &n[i]);
        xd_req    r = c->rank == 0 ? c->ops->recv(c, t, from) : c->ops->send(c, t, 0);
        if (c->ops->wait(c, &r, 1) != XD_OK)
            return xd_fail(e, XD_ECOMM, "an image of replica %d was lost", from);
    }
    return XD_OK;
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
static xd_status collect_images(xd_loop *l, int first, float *mine[2], xd_err *e)
{
    xd_job           *j = l->j;
    const xd_context *ctx = j->ctx;
    int               D = ctx->plan.deg.n[XD_DATA], at = ctx->topo.at[XD_DATA];
    int               root = ctx->topo.replica->rank == 0;
    xd_status         s = XD_OK;
    xd_checkpoint_settle(j);
    for (int d = 0; d < D && first + d < j->ntodo; d++) {
        float *other[2] = { NULL, NULL }, **v = at == d ? mine : other;
        if (d > 0) {
            s = xd_world_agree(&ctx->world, s == XD_OK ? allocate_image(j, v, e) : s, e);
            if (s == XD_OK && root && (at == 0 || at == d))
                s = hand_over(j, d, v, e);
            else if (s != XD_OK)
                d = D; /* all ranks have decided to stop, so no more images follow */
        }
        if (s == XD_OK && ctx->world.used->rank == 0)
            s = ctx->work->deliver(l, xd_job_image(j, first + d), v, e);
        free(other[0]);
        free(other[1]);
        if (d == D)
            return s;
    }
    s = agree_behind_calls(ctx, s, e);
    for (int d = 0; d < D && first + d < j->ntodo && s == XD_OK; d++)
        xd_checkpoint_remove(j, xd_job_image(j, first + d)); /* also on other hosts */
    return s;
}

/* Generates all images, assigned to the replicas round robin. */
static xd_status generate_all(xd_loop *l, xd_err *e)
{
    xd_job   *j = l->j;
    int       D = j->ctx->plan.deg.n[XD_DATA], at = j->ctx->topo.at[XD_DATA];
    xd_status s = XD_OK;
    for (int i = 0; s == XD_OK && i < j->ntodo; i += D) {
        float *v[2] = { NULL, NULL };
        int    busy = i + at < j->ntodo;
        if (i && (s = xd_yield_now(j, e)) != XD_OK)
            break;
        s = busy ? one_latent(l, i + at, &v[0], &v[1], e) : denoise_passes(l, i + at, 0, NULL, e);
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

/* ---- the request -------------------------------------------------------------------------- */

/* Called if a request has failed with status s. Frees the weights of the transformers and the VAE,
 * so that no rank has these weights when the next request begins. */
static void unload_after_failure(xd_context *ctx, xd_status s)
{
    if (s == XD_ECOMM || ctx->borrowed)
        return;
    xd_component_drop(&ctx->model.dit);
    xd_component_drop(&ctx->model.dit2);
    xd_component_drop(&ctx->model.vae);
    if (ctx->model.upsampler.upsampler)
        xd_component_drop(&ctx->model.upsampler);
}

/* Loads the transformer on all ranks. Also loads the VAE if several ranks load it together, or if
 * the request has an image to encode. After a component is loaded, the ranks share their status. */
static xd_status load_together(const xd_loop *l, xd_err *e)
{
    xd_job       *j = l->j;
    xd_context   *ctx = j->ctx;
    xd_job       *first = j->small ? j->small : j;
    int           begins = xd_job_begins_with_vae(j);
    int           early = ctx->plan.vae_rows || ctx->plan.deg.n[XD_DATA] > 1 || begins;
    xd_component *p = xd_transformer_of(first, 0);
    xd_transformer_alone(first, 0);
    j->loads[xd_job_dit(first, 0)]++;
    xd_status s = xd_component_load(p, ctx->dev, ctx->type, 0, e);
    if (s == XD_OK)
        s = xd_preview_load(first, e);
    if (s == XD_OK)
        s = xd_upsampling_load(j, e);
    s = xd_world_agree(&ctx->world, s, e);
    if (s == XD_OK && l->fresh)
        xd_weight_groups_nonfinite(ctx, p);
    if (s == XD_OK && early && l->need.vae) {
        xd_prefetch_component(ctx, &ctx->model.vae);
        s = xd_component_load(&ctx->model.vae, ctx->dev, ctx->type, 0, e);
    }
    if (early)
        s = xd_world_agree(&ctx->world, s, e);
    if (s != XD_OK)
        unload_after_failure(ctx, s);
    return s;
}

static xd_status generate_images(xd_loop *l, xd_err *e)
{
    xd_job        *j = l->j;
    xd_context    *ctx = j->ctx;
    const xd_need *need = &l->need;
    double         t0 = xd_now_s();
    xd_callback_stage(j, "load");
    xd_status s = load_together(l, e);
    l->apart = xd_need_apart(j, ctx->world.used->size);
    int longer = need->vae_tmp > need->dit_tmp && !l->apart;
    s = xd_request_arena_open(ctx, &l->a, longer ? need->vae_tmp : need->dit_tmp, s, e);
    xd_result_time(l->r, "load", xd_now_s() - t0);
    s = xd_world_agree(&ctx->world, s, e);
    for (xd_job *of = j; of && s == XD_OK; of = of->small) {
        if (of->role->encode)
            s = of->role->encode(of, &l->a, e);
        if (s == XD_OK)
            s = xd_given_noise_share(of, e);
    }
    if (s == XD_OK)
        s = generate_all(l, e);
    xd_request_arena_close(ctx, &l->a);
    return s;
}

xd_status xd_loop_accept(xd_loop *l, xd_memory_limits *room, xd_status s, xd_err *e)
{
    xd_job *j = l->j;
    if (j->small)
        j->small->rank0_images = j->rank0_images;
    s = xd_role_references_share(j, s, e);
    if (j->small)
        s = xd_role_references_share(j->small, s, e);
    if (s == XD_OK)
        s = j->ctx->work->prepare(j, l->w, e);
    s = xd_world_agree(&j->ctx->world, s, e);
    if (s == XD_OK)
        s = xd_job_pick(j, e);
    if (j->small)
        j->small->todo = j->todo, j->small->ntodo = j->ntodo;
    if (s == XD_OK)
        s = xd_checkpoint_find(j, e);
    return s == XD_OK && j->ntodo ? xd_memory_plan(j, l->w, &l->need, room, e) : s;
}

xd_status xd_loop_images(xd_loop *l, xd_err *e)
{
    xd_job     *j = l->j;
    xd_context *ctx = j->ctx;
    xd_callback_stage(j, "text");
    l->fresh = !xd_transformer_of(j->small ? j->small : j, 0)->w->store;
    if (ctx->keep) /* another engine may have loaded the transformer on this rank */
        l->fresh = !xd_world_all(&ctx->world, !l->fresh);
    double    t0 = xd_now_s();
    xd_status s = xd_prompts_encode(l->w, j, l->need.text_tmp, e);
    xd_result_time(l->r, "text", xd_now_s() - t0 - xd_yield_seconds(j));
    if (s != XD_OK && l->fresh)
        unload_after_failure(ctx, s);
    return s == XD_OK ? generate_images(l, e) : s;
}
