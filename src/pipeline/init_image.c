/* init_image.c - reads and encodes the initial image of a request.
 *
 * Rank 0 reads and resizes the image. The VAE encodes the initial image to a Gaussian, from which
 * every output image uses a sample with its own seed. As in diffusers' Img2Img and ImageToVideo
 * pipelines, the sample is drawn before the noise, from the same generator. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/init_image.h"
#include "base/record.h"
#include "base/rng.h"
#include "exec/op.h"
#include "io/image.h"
#include "pipeline/condition.h"
#include "pipeline/context.h"
#include "pipeline/encoder_images.h"
#include "pipeline/job.h"
#include "pipeline/mask.h"
#include "pipeline/references.h"
#include "pipeline/yield.h"
#include "pipeline/vae_codec.h"
#include "ranks/world.h"

/* Returns the number of elements in the latents [C,h,w] of the initial image. */
static int64_t latent_count(const xd_job *j)
{
    return j->numbers / j->cells[0];
}

enum { MOST_SIDE = 1 << 20 };

static xd_status check_pixels(const xd_image *i, const char *name, xd_err *e)
{
    if (!i->data)
        return xd_fail(e, XD_EINVAL, "%s has no data", name);
    if (i->frames != 1 || i->width < 1 || i->height < 1 || i->width > MOST_SIDE ||
        i->height > MOST_SIDE)
        return xd_fail(e, XD_EINVAL,
                       "%s has %lld frames of %lld x %lld pixels; it must be one of at "
                       "least 1 x 1", name, (long long)i->frames, (long long)i->width,
                       (long long)i->height);
    if (i->channels != 1 && i->channels != 3 && i->channels != 4)
        return xd_fail(e, XD_EINVAL, "%s has %d channels; it can have 1, 3 or 4", name,
                       i->channels);
    if (i->stride && i->stride < i->width * i->channels)
        return xd_fail(e, XD_EINVAL,
                       "%s has a stride of %lld bytes, less than the %lld of a row", name,
                       (long long)i->stride, (long long)i->width * i->channels);
    return XD_OK;
}

/* Converts the program's pixels, of any stride and number of channels, to contiguous RGB, as if
 * they had been read from a file. *rgb is malloc'ed. */
static xd_status copy_pixels(const xd_pixel_source *of, uint8_t **rgb, int64_t *w, int64_t *h,
                             xd_err *e)
{
    xd_image i;
    xd_image_init(&i);
    xd_status s = xd_record_read(&i, sizeof i, of->pixels, "xd_image", e);
    if (s == XD_OK)
        s = check_pixels(&i, of->pixels_name, e);
    if (s != XD_OK)
        return s;
    int64_t stride = i.stride ? i.stride : i.width * i.channels;
    *w = i.width, *h = i.height;
    if (!(*rgb = malloc((size_t)(i.width * i.height) * 3)))
        return xd_fail(e, XD_ENOMEM, "no memory for an image of %lld x %lld pixels",
                       (long long)i.width, (long long)i.height);
    for (int64_t y = 0; y < i.height; y++)
        for (int64_t x = 0; x < i.width; x++)
            for (int c = 0; c < 3; c++)
                (*rgb)[(y * i.width + x) * 3 + c] =
                    i.data[y * stride + x * i.channels + (i.channels == 1 ? 0 : c)];
    return XD_OK;
}

xd_pixel_source xd_init_image_source(const xd_request *r, int k)
{
    if (k == 0)
        return (xd_pixel_source) { "image", "image_pixels", r->images.image,
                                   r->images.image_pixels };
    return (xd_pixel_source){ "more_images", "more_pixels",
                              r->images.more_images ? r->images.more_images[k - 1] : NULL,
                              r->images.more_pixels ? r->images.more_pixels[k - 1] : NULL };
}

xd_status xd_init_image_pixels(const xd_pixel_source *of, uint8_t **rgb, int64_t *w, int64_t *h,
                               xd_err *e)
{
    if (of->file && of->pixels)
        return xd_fail(e, XD_EINVAL, "%s and %s are both given; use one of them",
                       of->file_name, of->pixels_name);
    if (!of->file && !of->pixels)
        return xd_fail(e, XD_EINVAL, "an entry of %s and %s has neither a file nor pixels",
                       of->file_name, of->pixels_name);
    return of->file ? xd_image_read(of->file, rgb, w, h, e) : copy_pixels(of, rgb, w, h, e);
}

xd_status xd_init_image_floats(float **out, const uint8_t *rgb, xd_grid size, xd_err *e)
{
    int64_t n = size.rows * size.cols * 3;
    if (!(*out = malloc((size_t)n * sizeof **out)))
        return xd_fail(e, XD_ENOMEM, "no memory for an image");
    for (int64_t i = 0; i < n; i++)
        (*out)[i] = 2 * ((float)rgb[i] / 255) - 1;
    return XD_OK;
}

xd_status xd_init_image_take(xd_job *j, const xd_pixel_source *of, int i, float **out, xd_err *e)
{
    uint8_t *rgb = NULL;
    int64_t  w, h;
    if (j->ctx->world.used->rank != 0 || j->ctx->unread)
        return XD_OK;
    xd_status s = xd_init_image_pixels(of, &rgb, &w, &h, e);
    if (s == XD_OK)
        s = xd_encoder_images_prepare(j, i, rgb, w, h, e);
    if (s == XD_OK && i == 0)
        s = xd_mask_read(j, &rgb, &w, &h, e);
    if (s == XD_OK)
        s = xd_image_resize(&rgb, w, h, j->size[1], j->size[0], e);
    if (s == XD_OK)
        s = xd_init_image_floats(out, rgb, (xd_grid){ j->size[0], j->size[1] }, e);
    free(rgb);
    return s;
}

/* Returns 1 if the request has an initial image or an image to inpaint. */
static int is_begun_with(const xd_job *j)
{
    return xd_job_has_image(j->r) &&
           (!j->ctx->model.recipe->references || xd_references_inpainted(j));
}

/* Returns 1 if the first latents contain the original image, while the transformer reads a copy of
 * the image whose masked region is grey. */
static int starts_apart(const xd_job *j)
{
    double of[2] = { 0, 1 };
    if (j->ctx->model.recipe->from_mask && xd_job_has_image(j->r) && j->sampler->shares)
        j->sampler->shares(&j->samp, 0, of);
    return of[0] != 0;
}

static xd_status copy_image(xd_job *j, xd_err *e)
{
    size_t bytes = (size_t)(j->size[0] * j->size[1] * 3) * sizeof *j->image;
    if (!(j->start_image = malloc(bytes)))
        return xd_fail(e, XD_ENOMEM, "no memory for an image");
    memcpy(j->start_image, j->image, bytes);
    return XD_OK;
}

xd_status xd_init_image_read(xd_job *j, xd_err *e)
{
    if (j->r->images.image && j->r->images.image_pixels)
        return xd_fail(e, XD_EINVAL, "image and image_pixels are given; use one of them");
    if (j->r->images.mask_image && j->r->images.mask_pixels)
        return xd_fail(e, XD_EINVAL,
                       "mask_image and mask_pixels are given; use one of them");
    if (!is_begun_with(j))
        return XD_OK;
    if (j->r->images.nmore_images)
        return xd_fail(e, XD_EINVAL, "%lld images are given, but %s uses one",
                       (long long)xd_job_images(j->r), j->ctx->model.recipe->name);
    if (!j->ctx->model.vae.vae->encode)
        return xd_fail(e, XD_EUNSUPPORTED, "the autoencoder of this model cannot encode an image");
    xd_pixel_source of = xd_init_image_source(j->r, 0);
    xd_status       s = xd_init_image_take(j, &of, 0, &j->image, e);
    if (s == XD_OK && starts_apart(j) && j->image)
        s = copy_image(j, e);
    if (s == XD_OK && j->image && j->ctx->model.recipe->from_mask)
        xd_mask_grey(j, j->image);
    return s;
}

/* Allocates memory on this rank for the pixels that rank 0 will send. */
static int allocate_pixels(float **pixels[2], int64_t n)
{
    for (int i = 0; i < 2; i++)
        if (pixels[i] && !*pixels[i] && !(*pixels[i] = malloc((size_t)n * sizeof(float))))
            return 0;
    return 1;
}

/* Returns the frames of a clip for the VAE, malloc'ed, and frees the pixels of its images. Returns
 * NULL if there is no memory. */
static float *fill_clip(const xd_vae_clip *clip, float **pixels[2])
{
    int64_t n = clip->pixels.rows * clip->pixels.cols * 3;
    float  *all = calloc((size_t)(clip->frames * n), sizeof *all);
    for (int i = 0; i < 2; i++) {
        if (!pixels[i])
            continue;
        if (all)
            memcpy(all + (i ? clip->frames - 1 : 0) * n, *pixels[i], (size_t)n * sizeof *all);
        free(*pixels[i]);
        *pixels[i] = NULL;
    }
    return all;
}

static xd_status encode_clip(xd_job *j, xd_arena *a, const xd_vae_clip *clip, float **pixels[2],
                             float *moments, xd_err *e)
{
    xd_context *ctx = j->ctx;
    xd_exec     x;
    if (clip->frames > 1 && !(*pixels[0] = fill_clip(clip, pixels)))
        return xd_fail(e, XD_ENOMEM, "no memory for %lld frames to encode",
                       (long long)clip->frames);
    xd_arena_rewind(a, 0);
    xd_exec_init(&x, ctx->dev, a, ctx->type);
    x.cancel = ctx->cancel;
    xd_world_watch(&ctx->world, &x);
    xd_yield_watch(j, &x);
    xd_vae_encode_frames(&x, j, &ctx->model.vae.w->net, clip, *pixels[0], moments);
    return xd_exec_status(&x, e);
}

static xd_status encode_in_turns(xd_job *j, xd_arena *a, const xd_vae_clip *clip,
                                 float **pixels[2], float *moments, xd_err *e)
{
    xd_yield_begin(j);
    xd_status s = encode_clip(j, a, clip, pixels, moments, e);
    xd_yield_end(j);
    return s;
}

/* Encodes a clip to the moments of its latents. With a parallel VAE every replica encodes;
 * otherwise only rank 0 does. */
xd_status xd_init_image_moments(xd_job *j, xd_arena *a, const xd_vae_clip *clip, float **pixels[2],
                                float **moments, xd_err *e)
{
    xd_context        *ctx = j->ctx;
    const xd_vae_info *v = &ctx->model.vae_info;
    int                all = ctx->plan.vae_rows;
    xd_grid            size = clip->pixels;
    int64_t            n = 2 * v->channels * (size.rows / v->cell[1]) * (size.cols / v->cell[2]) *
                           xd_vae_latents(v, clip->frames);
    int64_t            in = size.rows * size.cols * 3;
    xd_status          s = XD_OK;
    *moments = malloc((size_t)n * sizeof **moments);
    if (!*moments || (all && !allocate_pixels(pixels, in)))
        s = xd_fail(e, XD_ENOMEM, "no memory for an image to encode");
    s = xd_world_agree(&ctx->world, s, e);
    for (int i = 0; i < 2 && all; i++)
        if (s == XD_OK && pixels[i])
            s = xd_world_broadcast(&ctx->world, *pixels[i], in * (int64_t)sizeof(float), e);
    if (s == XD_OK)
        s = all || ctx->world.used->rank == 0 ? encode_in_turns(j, a, clip, pixels, *moments, e)
                                              : xd_yield_follow(j, e);
    xd_yield_seconds(j);        /* yields during encoding are not in the result's times        */
    s = xd_world_agree(&ctx->world, s, e);
    if (s == XD_OK && !all)
        s = xd_world_broadcast(&ctx->world, *moments, n * (int64_t)sizeof **moments, e);
    for (int i = 0; i < 2; i++)
        if (pixels[i]) {
            free(*pixels[i]);
            *pixels[i] = NULL;
        }
    return s;
}

xd_status xd_init_image_encode(xd_job *j, xd_arena *a, xd_err *e)
{
    xd_vae_clip clip = { 1, { j->size[0], j->size[1] } };
    float     **pixels[2] = { &j->image, NULL };
    if (!is_begun_with(j))
        return XD_OK;
    if (j->ctx->model.recipe->from_frames)
        return xd_condition_encode(j, a, e);
    xd_status s = xd_mask_share(j, e);
    if (s == XD_OK)
        s = xd_init_image_moments(j, a, &clip, pixels, &j->moments, e);
    pixels[0] = &j->start_image;
    if (s == XD_OK && starts_apart(j))
        s = xd_init_image_moments(j, a, &clip, pixels, &j->start_moments, e);
    return s;
}

/* Draws the noise of an output image and the sample of the initial image's latents. With the philox
 * generator the noise is the same with and without an initial image. */
void xd_init_image_draw(const xd_job *j, xd_rng *g, float *noise, float *sample, float *start)
{
    if (j->held)                /* the latents of a fixed image are the mean, without a sample  */
        memset(sample, 0, (size_t)latent_count(j) * sizeof *sample);
    else if (j->moments && g->torch)
        xd_rng_normal(g, sample, latent_count(j));
    if (start && g->torch)
        memcpy(start, sample, (size_t)latent_count(j) * sizeof *sample);
    /* If the request gives the noise, diffusers draws no noise from its generator. */
    if (!j->given_noise || !g->torch)
        xd_rng_normal(g, noise, j->numbers);
    if (j->held)
        return;
    /* Like diffusers, encodes the complete image first, even if only noise is used. */
    if (j->moments && (!g->torch || j->ctx->model.recipe->from_mask))
        xd_rng_normal(g, sample, latent_count(j));
    if (start && !g->torch)
        xd_rng_normal(g, start, latent_count(j));
}

void xd_init_image_sample(const xd_job *j, const float *moments, float *sample)
{
    const xd_vae_info *v = &j->ctx->model.vae_info;
    int64_t            C = v->channels, hw = j->cells[1] * j->cells[2];
    double             scale = v->invert ? 1 / v->scaling : v->scaling;
    for (int64_t c = 0; c < C; c++)
        for (int64_t i = 0; i < hw; i++) {
            float mean = moments[i * 2 * C + c], var = moments[i * 2 * C + C + c];
            float std = expf(0.5f * fminf(fmaxf(var, -30), 20)), *p = &sample[c * hw + i];
            *p = (mean + std * *p - (float)v->shift) * (float)scale;
        }
}

void xd_init_image_mix(const xd_job *j, float *noise, const float *sample)
{
    double of[2] = { 1, 0 };    /* factors of image and noise for a fixed frame                 */
    if (!j->held)
        j->sampler->shares(&j->samp, 0, of);
    for (int64_t i = 0; i < latent_count(j); i++)
        noise[i] = (float)of[1] * noise[i] + (float)of[0] * sample[i];
}

void xd_init_image_close(xd_job *j)
{
    free(j->image);
    free(j->moments);
    free(j->start_image);
    free(j->start_moments);
    j->image = j->moments = j->start_image = j->start_moments = NULL;
}
