/* role_conditions.c - images and videos that determine frames of the generated video
 *
 * The rules are those of diffusers' pipelines with conditions. An image or a video at frame 0 is
 * mixed with the noise of the first latent frames. Anywhere else, its first latent frame, or its
 * first two if it is a video, become further latent frames before the video's, which have the times
 * of the frames that they stand for; its other latent frames are mixed with the noise of the video.
 * A latent frame with strength s starts from a share s of the given latents, has timesteps of at
 * most (1 - s) * 1000, and only changes in steps that have such timesteps.
 *
 * With the rules of keyframes (XD_ROLE_KEYFRAMES, diffusers' LTX2ConditionPipeline), all latent
 * frames of an image or video after frame 0 come before the video's, and stand for the frames from
 * its first frame on. A latent frame with strength s has 1 - s times the noise and the timestep of
 * the others, and its clean latents replace a share s of those that a step predicts. */
#include "pipeline/image_roles_inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/minmax.h"
#include "families/help.h"
#include "io/image.h"
#include "pipeline/arenas.h"
#include "pipeline/callbacks.h"
#include "pipeline/context.h"
#include "pipeline/denoise_inside.h"
#include "pipeline/pixels.h"
#include "pipeline/vae_codec.h"
#include "ranks/world.h"

/* Maximum number of latent frames of a video that come before the generated video's. */
enum { PREFIX = 2 };

/* ---- checks ------------------------------------------------------------------------------- */

static xd_status refuse_conditions(const xd_job *j, xd_err *e)
{
    const xd_request_images *i = &j->r->images;
    const char              *what = i->frame_index                   ? "frame_index"
                                    : i->condition_strength          ? "condition_strength"
                                    : i->image_cond_noise_scale >= 0 ? "image_cond_noise_scale"
                                                                     : NULL;
    return what ? xd_fail(e, XD_EINVAL, "%s is for models such as %s; %s has no given frames", what,
                          xd_family_says(i->frame_index || i->condition_strength
                                             ? XD_WORD_CONDITIONS
                                             : XD_WORD_ADDS_NOISE),
                          j->ctx->model.recipe->name)
                : XD_OK;
}

/* Reads a list with one number for all images or one number for each. Without a list, all numbers
 * are `usual`. */
static xd_status read_list(int images, const char *key, const char *text, double usual,
                           double out[XD_MAXREFS], xd_err *e)
{
    int     n = 0;
    double *given = text ? xd_job_numbers(key, text, &n, e) : NULL;
    if (text && !given)
        return XD_EINVAL;
    for (int i = 0; i < images; i++)
        out[i] = !given ? usual : n == 1 ? given[0] : i < n ? given[i] : 0;
    free(given);
    if (!text || n == images || (n == 1 && images))
        return XD_OK;
    return images ? xd_fail(e, XD_EINVAL,
                            "%s has %d numbers, but %d images are given: it must have one for "
                            "each, or one for all",
                            key, n, images)
                  : xd_fail(e, XD_EINVAL, "%s is for given images: add --image", key);
}

/* Returns 1 if the request's last image is the last of the given images. */
static int reads_last(const xd_job *j)
{
    return j->role->keyframes && xd_job_has_last(j->r);
}

xd_status xd_role_conditions_check(xd_job *j, xd_err *e)
{
    const xd_request_images *r = &j->r->images;
    const xd_recipe         *p = j->ctx->model.recipe;
    int                      last = reads_last(j);
    int64_t                  images = xd_job_images(j->r) + last;
    double                   index[XD_MAXREFS] = { 0 }, strength[XD_MAXREFS];
    if (!j->role->conditions)
        return refuse_conditions(j, e);
    if (images > p->references)
        return xd_fail(e, XD_EINVAL, "%lld images are given, but %s reads at most %d",
                       (long long)images, p->name, p->references);
    if (images && !j->ctx->model.vae.vae->encode)
        return xd_fail(e, XD_EUNSUPPORTED, "the autoencoder of this model cannot encode an image");
    if (j->role->keyframes && r->image_cond_noise_scale >= 0)
        return xd_fail(e, XD_EINVAL,
                       "image_cond_noise_scale is set, but steps of %s add no noise to given "
                       "frames: use condition_strength",
                       p->name);
    j->nconditions = (int)images;
    xd_status s = read_list((int)images - last, "frame_index", r->frame_index, 0, index, e);
    if (s == XD_OK)
        s = read_list((int)images, "condition_strength", r->condition_strength,
                      r->strength > 0 ? r->strength : 1, strength, e);
    for (int i = 0; i < j->nconditions && s == XD_OK; i++) {
        if (!(index[i] >= 0 && index[i] < 1e9) || index[i] != floor(index[i]))
            return xd_fail(e, XD_EINVAL, "frame_index has %g; it must have whole numbers from 0 on",
                           index[i]);
        if (!(strength[i] >= 0 && strength[i] <= 1))
            return xd_fail(e, XD_EINVAL, "condition_strength has %g; it must be from 0 to 1",
                           strength[i]);
        j->conditions[i] = (xd_condition){ .index = (int64_t)index[i], .strength = strength[i] };
    }
    return s;
}

double xd_role_conditions_noise(const xd_job *j)
{
    double own = j->r->images.image_cond_noise_scale;
    if (!j->nconditions)
        return 0;
    return own >= 0 ? own : j->ctx->model.recipe->condition_noise;
}

/* ---- frames ------------------------------------------------------------------------------- */

/* Returns given image or video i of a request, of which the last image is the last one. */
static xd_pixel_source source_of(const xd_request *r, int i)
{
    const int64_t images = xd_job_images(r);
    return i < images    ? xd_input_image_source(r, i)
           : i == images ? xd_pixel_source_of("last_image", "last_pixels", r->images.last_image,
                                              r->images.last_pixels)
                         : (xd_pixel_source){ 0 };
}

void xd_role_conditions_count(const xd_request *r, int64_t frames[XD_MAXREFS])
{
    for (int i = 0; i < XD_MAXREFS; i++) {
        xd_pixel_source of = source_of(r, i);
        frames[i] = of.file || of.pixels ? xd_input_video_count(&of) : 1;
    }
}

xd_status xd_role_conditions_place(xd_job *j, xd_err *e)
{
    int64_t cell = j->ctx->model.vae_info.cell[0];
    if (reads_last(j) && j->frames <= cell)
        return xd_fail(e, XD_EINVAL,
                       "last_image is given, but the video has one frame (num_frames)");
    for (int i = 0; i < j->nconditions; i++) {
        xd_condition *c = &j->conditions[i];
        int64_t       most = xd_max(1, j->ctx->image_frames[i]);
        if (reads_last(j) && i == j->nconditions - 1)
            c->index = j->frames - cell, most = 1;
        if (c->index >= j->frames)
            return xd_fail(e, XD_EINVAL,
                           "frame_index has %lld, but %lld frames are generated: it must be at "
                           "most %lld",
                           (long long)c->index, (long long)j->frames, (long long)j->frames - 1);
        c->latents = (xd_min(most, j->frames - c->index) - 1) / cell + 1;
        c->frames = (c->latents - 1) * cell + 1;
        c->leading = !c->index ? 0 : j->role->keyframes ? c->latents : xd_min(c->latents, PREFIX);
        c->at = j->leading;
        j->leading += (int)c->leading;
    }
    return XD_OK;
}

/* Returns the first latent frame whose noise is mixed with those latents of a condition that do not
 * come before the video. */
static int64_t first_of(const xd_job *j, const xd_condition *c)
{
    int64_t cell = j->ctx->model.vae_info.cell[0];
    return j->spare + (c->index ? c->index / cell + PREFIX : 0);
}

/* Returns the latent frame of the video, or of the frames before it, that has latent frame t of a
 * condition. */
static int64_t frame_of(const xd_job *j, const xd_condition *c, int64_t t)
{
    return t < c->leading ? c->at + t : first_of(j, c) + t - c->leading;
}

/* Returns the frames of latent frame t of a video that begins at frame `begin`. */
static xd_span frames_of(int64_t t, int64_t cell, int64_t begin)
{
    return (xd_span){ begin + (t ? t * cell + 1 - cell : 0), t ? cell : 1 };
}

xd_status xd_role_conditions_frames(xd_job *j, xd_err *e)
{
    int64_t cell = j->ctx->model.vae_info.cell[0], n = j->cells[0];
    if (!j->role->conditions)
        return XD_OK;
    j->frame_spans = calloc((size_t)n, sizeof *j->frame_spans);
    j->frame_strength = calloc((size_t)n, sizeof *j->frame_strength);
    if (!j->frame_spans || !j->frame_strength)
        return xd_fail(e, XD_ENOMEM, "no memory for the times of %lld frames", (long long)n);
    for (int64_t t = j->spare; t < n; t++)
        j->frame_spans[t] = frames_of(t - j->spare, cell, 0);
    for (int i = 0; i < j->nconditions; i++) {
        const xd_condition *c = &j->conditions[i];
        for (int64_t t = 0; t < c->latents; t++)
            j->frame_strength[frame_of(j, c, t)] = (float)c->strength;
        for (int64_t t = 0; t < c->leading; t++)
            j->frame_spans[c->at + t] = !j->role->keyframes ? frames_of(t, cell, c->index)
                                        : c->latents == 1 ? (xd_span){ c->index, 1 }
                                                          : (xd_span){ c->index + t * cell, cell };
    }
    return XD_OK;
}

/* ---- reading and encoding ----------------------------------------------------------------- */

/* Reads the next frame of image i, resized to the generated size, to `out`. */
static xd_status read_frame(const xd_job *j, int i, xd_input_video *v, float *out, xd_err *e)
{
    uint8_t  *rgb = NULL;
    float    *own = NULL;
    int64_t   w, h;
    xd_grid   size = { j->size[0], j->size[1] }, read = size;
    xd_status s = xd_input_video_next(v, &rgb, &w, &h, e);
    if (s == XD_OK && !rgb)
        return xd_fail(e, XD_EINVAL, "image %d has fewer frames than when it was opened", i + 1);
    if (s == XD_OK && j->role->keyframes)
        read = (xd_grid){ h, w };
    else if (s == XD_OK)
        s = xd_image_resize(&rgb, w, h, size.cols, size.rows, e);
    if (s == XD_OK)
        s = xd_pixels_floats(&own, rgb, read, 3, e);
    if (s == XD_OK && j->role->keyframes)
        xd_pixels_fit(own, read, out, size, 3, 1);
    else if (s == XD_OK)
        memcpy(out, own, (size_t)(size.rows * size.cols) * 3 * sizeof *out);
    free(rgb), free(own);
    return s;
}

static xd_status read_one(xd_job *j, int i, xd_err *e)
{
    xd_pixel_source of = source_of(j->r, i);
    int64_t         n = j->size[0] * j->size[1] * 3, frames = j->conditions[i].frames;
    xd_input_video  v;
    xd_status       s = xd_input_video_open(&v, &of, e);
    if (s == XD_OK && !(j->ref_pixels[i] = malloc((size_t)(frames * n) * sizeof(float))))
        s = xd_fail(e, XD_ENOMEM, "no memory for %lld frames", (long long)frames);
    for (int64_t t = 0; t < frames && s == XD_OK; t++)
        s = read_frame(j, i, &v, j->ref_pixels[i] + t * n, e);
    xd_input_video_close(&v);
    return s;
}

xd_status xd_role_conditions_read(xd_job *j, xd_err *e)
{
    xd_status s = XD_OK;
    for (int i = 0; i < j->nconditions && s == XD_OK; i++)
        if (j->ctx->world.used->rank == 0 && !j->ctx->unread)
            s = read_one(j, i, e);
    return s;
}

xd_status xd_role_conditions_encode(xd_job *j, xd_arena *a, xd_err *e)
{
    xd_status s = XD_OK;
    for (int i = 0; i < j->nconditions && s == XD_OK; i++) {
        xd_vae_clip clip = { .frames = j->conditions[i].frames,
                             .pixels = { j->size[0], j->size[1] },
                             .whole = 1 };
        float     **pixels[2] = { &j->ref_pixels[i], NULL };
        s = xd_vae_encode_clip(j, a, &clip, pixels, &j->leading_moments[i], e);
    }
    return s;
}

/* ---- latents ------------------------------------------------------------------------------ */

static int64_t frame_numbers(const xd_job *j)
{
    return j->lat[1] * j->lat[2] * j->lat[3];
}

/* Draws noise [C,n,h,w], and writes it as [n,C,h,w] to `out`; overwrites `from`. */
static void draw_frames(const xd_job *j, xd_rng *g, int64_t n, float *from, float *out)
{
    int64_t C = j->lat[1], hw = j->lat[2] * j->lat[3];
    xd_rng_normal(g, from, n * C * hw);
    for (int64_t t = 0; t < n; t++)
        for (int64_t c = 0; c < C; c++)
            memcpy(out + (t * C + c) * hw, from + (c * n + t) * hw, (size_t)hw * sizeof *out);
}

/* Draws noise [n,h,w,C] of all tokens, those of the video first, and writes it as [t,C,h,w] to
 * `out`. */
static void draw_tokens(const xd_job *j, xd_rng *g, float *from, float *out)
{
    xd_rng_normal(g, from, j->numbers);
    xd_denoise_from_tokens(from, j->lat, j->spare, out);
}

int xd_role_conditions_draw(const xd_job *j, xd_rng *g, float *noise, float *samples[XD_MAXREFS])
{
    int64_t one = frame_numbers(j), T = j->lat[0] - j->spare;
    float  *from = malloc((size_t)(j->lat[0] * one) * sizeof *from);
    if (!from)
        return 0;
    if (j->role->keyframes) {
        if (!j->given_noise || !g->torch)
            draw_tokens(j, g, from, noise);
        free(from);
        return 1;
    }
    if (!j->given_noise || !g->torch)
        draw_frames(j, g, T, from, noise + j->spare * one);
    for (int i = 0; i < j->nconditions; i++) {
        const xd_condition *c = &j->conditions[i];
        float              *kept = NULL;
        if (samples && !(kept = samples[i] = malloc((size_t)(c->latents * one) * sizeof *kept))) {
            free(from);
            return 0;
        }
        xd_rng_normal(g, kept ? kept : from, c->latents * one);
        if (c->leading)
            draw_frames(j, g, c->leading, from, noise + c->at * one);
    }
    free(from);
    return 1;
}

/* Converts random numbers [C,n,h,w] to latents of frame t [C,h,w] of the Gaussian with `moments`
 * [n,h,w,2C]. numbers NULL: the latents are the mean. */
static void sample_frame(const xd_job *j, const xd_condition *c, const float *moments,
                         const float *numbers, int64_t t, float *out)
{
    const xd_vae_info *v = &j->ctx->model.vae_info;
    int64_t            C = j->lat[1], hw = j->lat[2] * j->lat[3];
    double             scale = v->invert ? 1 / v->scaling : v->scaling;
    for (int64_t k = 0; k < C; k++)
        for (int64_t i = 0; i < hw; i++) {
            const float *m = moments + (t * hw + i) * 2 * C;
            float        std = expf(0.5f * fminf(fmaxf(m[C + k], -30), 20));
            float        x = m[k] + (numbers ? std * numbers[(k * c->latents + t) * hw + i] : 0);
            out[k * hw + i] = (x - (float)v->shift) * (float)scale;
        }
}

/* Mixes as torch.lerp. */
static void lerp(float *to, const float *end, float share, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float d = end[i] - to[i];
        to[i] = share < 0.5f ? to[i] + share * d : end[i] - d * (1 - share);
    }
}

void xd_role_conditions_mix(const xd_job *j, float *const samples[XD_MAXREFS], float *noise)
{
    int64_t one = frame_numbers(j);
    float  *frame = malloc((size_t)one * sizeof *frame);
    for (int i = 0; frame && i < j->nconditions; i++) {
        const xd_condition *c = &j->conditions[i];
        for (int64_t t = 0; t < c->latents; t++) {
            memset(frame, 0, (size_t)one * sizeof *frame); /* without an image: zeros */
            if (j->leading_moments[i])
                sample_frame(j, c, j->leading_moments[i], samples[i], t, frame);
            lerp(noise + frame_of(j, c, t) * one, frame, (float)c->strength, one);
        }
    }
    free(frame);
}

int xd_role_conditions_blends(const xd_job *j)
{
    int blends = 0;
    for (int i = 0; j->role->keyframes && i < j->nconditions; i++)
        blends |= j->conditions[i].strength > 0 && j->conditions[i].strength < 1;
    return blends;
}

void xd_role_conditions_clean(const xd_job *j, float *latents)
{
    int64_t one = frame_numbers(j);
    for (int i = 0; i < j->nconditions; i++) {
        const xd_condition *c = &j->conditions[i];
        for (int64_t t = 0; t < c->latents; t++)
            if (j->leading_moments[i])
                sample_frame(j, c, j->leading_moments[i], NULL, t,
                             latents + frame_of(j, c, t) * one);
    }
}

void xd_role_conditions_mix_clean(const xd_job *j, const float *latents, float *noise)
{
    int64_t one = frame_numbers(j);
    double  of[2] = { 0, 1 }; /* weights of latents and noise of frames that are not given */
    if (j->start_latents)
        j->sampler->shares(&j->samp, 0, of);
    for (int64_t i = 0; i < j->numbers; i++) {
        float share = (1 - j->frame_strength[i / one]) * (float)of[1];
        noise[i] = noise[i] * share + latents[i] * (1 - share);
    }
}
