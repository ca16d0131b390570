/* decode.c - decodes latents given by the program to an image or a video, as a request without
 * denoising */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/borrow.h"
#include "engine/engine.h"
#include "model/component.h"
#include "pipeline/arenas.h"
#include "pipeline/image_roles.h"
#include "pipeline/job.h"
#include "pipeline/job_compare.h"
#include "pipeline/memory_plan.h"
#include "pipeline/result.h"
#include "pipeline/vae_codec.h"
#include "ranks/world.h"

/* Clears the request's fields that only denoising reads. If the request has no image size, the size
 * is computed from the shape of the latents. */
static xd_status settle_request(const xd_engine *g, xd_request *r, const int64_t shape[4],
                                xd_err *e)
{
    const xd_vae_info *v = &g->ctx.model.vae_info;
    for (int i = 0; i < 4; i++)
        if (shape[i] < 1 || shape[i] > 1 << 24)
            return xd_fail(e, XD_EINVAL,
                           "latents have the shape [frames,channels,rows,columns], "
                           "but dimension %d is %lld",
                           i + 1, (long long)shape[i]);
    r->images.image = r->images.last_image = r->images.mask_image = NULL;
    r->images.image_pixels = r->images.last_pixels = r->images.mask_pixels = NULL;
    r->images.control_image = NULL, r->images.control_pixels = NULL;
    r->images.nmore_control_images = 0;
    r->images.control_video = NULL, r->images.control_frames = NULL;
    memset(&r->driving, 0, sizeof r->driving);
    r->noise.values = NULL;
    r->latents = NULL;
    memset(&r->redux, 0, sizeof r->redux);
    r->images.nmore_images = 0;
    r->images.strength = 0;
    r->images.padding_mask_crop = -1;
    r->num_images_per_prompt = 1;
    r->output.latents_only = 0;
    r->callbacks.wanted = NULL;
    if (r->nprompts > 1)
        r->nprompts = 1;
    xd_job_first_texts(r);
    if (!r->height && !r->width) {
        r->height = shape[2] * v->cell[1], r->width = shape[3] * v->cell[2];
        r->output.max_area = g->ctx.model.recipe->max_area ? r->height * r->width : 0;
        r->output.no_resolution_binning = 1;
    }
    if (g->ctx.model.recipe->layers && shape[0] > 1)
        r->layers = shape[0] - 1;
    int drives = xd_role_of(g->ctx.model.recipe, 0)->drives;
    if (!r->num_frames && !(r->output.seconds > 0) && g->ctx.model.recipe->fps > 0)
        r->num_frames = (int)xd_vae_frames(v, shape[0] - (drives && shape[0] > 1));
    if (drives) /* latents are those of one segment */
        r->driving.segment_frame_length = r->num_frames;
    return XD_OK;
}

static xd_status compare_shape(const xd_job *j, const int64_t shape[4], xd_err *e)
{
    if (memcmp(shape, j->lat, sizeof j->lat) == 0)
        return XD_OK;
    return xd_fail(e, XD_EINVAL,
                   "latents have the shape [%lld,%lld,%lld,%lld], but a request of "
                   "%lld x %lld pixels needs [%lld,%lld,%lld,%lld]",
                   (long long)shape[0], (long long)shape[1], (long long)shape[2],
                   (long long)shape[3], (long long)j->asked[1], (long long)j->asked[0],
                   (long long)j->lat[0], (long long)j->lat[1], (long long)j->lat[2],
                   (long long)j->lat[3]);
}

/* Returns the number of elements of the latent frames of reference images, which come before the
 * video's latents and are not decoded, if the request has the number of frames; else 0. Changes
 * *frames to the number of latent frames of the video. */
static int64_t skip_references(const xd_job *j, const int64_t shape[4], int64_t *frames)
{
    int64_t more = j->role->reads_control_video || j->role->conditions ? shape[0] - j->lat[0] : 0;
    more = more > 0 ? more : 0;
    *frames = shape[0] - more;
    return more * shape[1] * shape[2] * shape[3];
}

/* Broadcasts the latents of rank 0, and allocates pixels on the ranks that receive pixels. */
static xd_status share_latents(const xd_job *j, const float *latents, float **lat, float **rgb,
                               xd_err *e)
{
    const xd_context *ctx = j->ctx;
    size_t            bytes = (size_t)j->numbers * sizeof **lat;
    xd_status         s = XD_OK;
    *lat = malloc(bytes + 1);
    if (ctx->topo.replica->rank == 0)
        *rgb =
            malloc((size_t)(j->frames * j->size[0] * j->size[1] * j->channels) * sizeof **rgb + 1);
    if (!*lat || (ctx->topo.replica->rank == 0 && !*rgb))
        s = xd_fail(e, XD_ENOMEM, "no memory for an image");
    else if (ctx->world.used->rank == 0)
        memcpy(*lat, latents, bytes);
    s = xd_world_agree(&ctx->world, s, e);
    return s == XD_OK ? xd_world_broadcast(&ctx->world, *lat, (int64_t)bytes, e) : s;
}

static xd_status decode_image(xd_job *j, const float *latents, xd_result *r, xd_err *e)
{
    xd_context *ctx = j->ctx;
    xd_need     need;
    xd_arena    a = { 0 };
    float      *lat = NULL, *rgb = NULL;
    double      t0 = xd_now_s();
    int         here = xd_vae_on_this_rank(j);
    xd_status   s = xd_memory_plan_decode(j, &need, e);
    if (s == XD_OK)
        s = share_latents(j, latents, &lat, &rgb, e);
    if (s == XD_OK && here)
        s = xd_component_load(&ctx->model.vae, ctx->dev, ctx->type, 0, e);
    if (s != XD_ECOMM)
        s = xd_world_agree(&ctx->world, s, e);
    if (s == XD_OK) {
        xd_result_time(r, "load", xd_now_s() - t0);
        t0 = xd_now_s();
        s = xd_request_arena_open(ctx, &a, need.vae_tmp, XD_OK, e);
        s = xd_world_agree(&ctx->world, s, e);
        if (s == XD_OK && here)
            s = xd_vae_decode_image(j, &a, lat, &rgb, e);
        s = xd_world_agree(&ctx->world, s, e);
        xd_request_arena_close(ctx, &a);
        xd_result_time(r, "decode", xd_now_s() - t0);
    }
    if (s == XD_OK && ctx->world.used->rank == 0) {
        s = xd_result_add(r, j, 0, lat, rgb, e);
        lat = rgb = NULL;
    }
    free(lat);
    free(rgb);
    return s == XD_ECOMM ? s : xd_world_agree(&ctx->world, s, e);
}

static xd_status run_decode(xd_engine *g, const xd_request *r, const float *latents,
                            const int64_t shape[4], xd_result **out, xd_err *e)
{
    xd_context   *ctx = &g->ctx;
    xd_request    own = *r;
    xd_job        j = { 0 };
    xd_job_agreed told;
    double        t0 = xd_now_s();
    int           bench = ctx->bench;
    xd_status     s = settle_request(g, &own, shape, e), same = xd_job_compare(ctx, &own, &told, e);
    xd_cancel_reset(&g->cancel);
    own.seed = told.seed;
    own.height = told.size[0], own.width = told.size[1];
    ctx->bench = 1; /* no input image is required, because only denoising reads it */
    j.ctx = ctx, j.r = &own;
    s = s == XD_OK ? xd_job_open_pass(&j, e) : s;
    ctx->bench = bench;
    s = s == XD_OK ? same : s;
    int64_t skipped = 0, own_shape[4] = { shape[0], shape[1], shape[2], shape[3] };
    if (s == XD_OK)
        skipped = skip_references(&j, shape, &own_shape[0]);
    if (s == XD_OK)
        s = compare_shape(&j, own_shape, e);
    if (s == XD_OK)
        s = xd_result_open(out, &j, e);
    if (!ctx->world.idle && s != XD_ECOMM && (s = xd_world_agree(&ctx->world, s, e)) == XD_OK)
        s = decode_image(&j, latents ? latents + skipped : NULL, *out, e);
    if (s == XD_OK && !ctx->world.idle)
        xd_result_time(*out, "total", xd_now_s() - t0);
    if (!ctx->world.idle)
        xd_memory_hold(ctx);
    xd_job_close(&j);
    return s;
}

xd_status xd_decode(xd_engine *g, const xd_request *r, const float *latents, const int64_t shape[4],
                    xd_result **out, xd_err *e)
{
    xd_request own;
    xd_err     mine = { .rank = -1 };
    *out = NULL;
    xd_status s = xd_request_take(&own, r, e);
    if (s != XD_OK)
        return s;
    const xd_logger *before = xd_log_enter(&g->log);
    s = xd_borrow_begin(g, &mine);
    if (s == XD_OK)
        s = run_decode(g, &own, latents, shape, out, &mine);
    s = xd_world_judge(&g->ctx.world, s, &mine);
    xd_log_enter(before);
    if (s == XD_OK)
        return s;
    xd_result_free(out);
    xd_fail(e, s, "%s", mine.msg);
    if (e)
        e->rank = mine.rank;
    return s;
}
