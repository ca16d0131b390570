/* encoder_images.c - prepares the images of a request for the model's image encoder.
 *
 * As in diffusers' pipelines, the image encoder reads either the original images, or the images
 * resized for the video (xd_text_use.resized). */
#include "pipeline/encoder_images.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "pipeline/context.h"
#include "pipeline/prior.h"
#include "ranks/world.h"

int xd_encoder_reads_pixels(const xd_job *j, int k)
{
    const xd_text_use *u = &j->ctx->model.recipe->text[k];
    if (!j->ctx->model.has_text[k] || u->follows || (u->prior && !xd_prior_images(j->r)))
        return 0;
    return !u->tokenizer || u->image_every[0];
}

/* Returns the index of the encoder that reads images of one size, or -1 if the model has none. */
static int encoder_of(const xd_job *j)
{
    for (int k = 0; k < j->ctx->model.recipe->ntext; k++)
        if (xd_encoder_reads_pixels(j, k))
            return k;
    return -1;
}

/* Returns 1 if the encoder also reads a black image, for negative prompts. */
static int has_black(const xd_job *j)
{
    int k = encoder_of(j);
    return k >= 0 && j->ctx->model.recipe->text[k].image_every[1] > 0;
}

/* Returns 1 if the encoder belongs to a prior, which reads images of its own. */
static int is_prior(const xd_job *j)
{
    int k = encoder_of(j);
    return k >= 0 && j->ctx->model.recipe->text[k].prior;
}

int xd_encoder_images_read(const xd_job *j)
{
    int k = is_prior(j) ? -1 : encoder_of(j);
    return k < 0 ? 0 : has_black(j) ? 1 : xd_model_images(&j->ctx->model, k);
}

/* Returns the number of images that the encoder reads, without the black one. */
static int images_of(const xd_job *j)
{
    return is_prior(j) ? (int)xd_prior_images(j->r) : xd_encoder_images_read(j);
}

int xd_encoder_images_resized(const xd_job *j)
{
    int k = encoder_of(j);
    return k >= 0 && j->ctx->model.recipe->text[k].resized;
}

/* Returns the number of elements of one image at the encoder's size. */
static int64_t image_size(const xd_job *j)
{
    int64_t side = xd_model_image_side(&j->ctx->model, encoder_of(j));
    return 3 * side * side;
}

static size_t bytes_of(const xd_job *j)
{
    return (size_t)((images_of(j) + has_black(j)) * image_size(j)) * sizeof(float);
}

/* Sets the pixels of the black image, which is the last one. A benchmark may not know the settings
 * of the image processor; its black images are zeros. */
static xd_status set_black(xd_job *j, xd_err *e)
{
    const xd_clip_processor *p = &j->ctx->model.clip_processor;
    if (!has_black(j) || !p->side)
        return XD_OK;
    uint8_t  *rgb = calloc((size_t)image_size(j), 1);
    xd_status s = rgb ? xd_clip_processor_run(
                            p, rgb, p->side, p->side,
                            j->encoder_pixels + xd_encoder_images_read(j) * image_size(j), e)
                      : xd_fail(e, XD_ENOMEM, "no memory for a black image");
    free(rgb);
    return s;
}

xd_status xd_encoder_images_open(xd_job *j, xd_err *e)
{
    if (j->encoder_pixels)
        return XD_OK;
    if (!(j->encoder_pixels = calloc(1, bytes_of(j))))
        return xd_fail(e, XD_ENOMEM, "no memory for the pixels of %d images", images_of(j));
    return set_black(j, e);
}

xd_status xd_encoder_images_prepare(xd_job *j, int i, const uint8_t *rgb, int64_t w, int64_t h,
                                    xd_err *e)
{
    if (i >= xd_encoder_images_read(j))
        return XD_OK;
    return xd_encoder_images_take(j, i, rgb, w, h, e);
}

xd_status xd_encoder_images_take(xd_job *j, int i, const uint8_t *rgb, int64_t w, int64_t h,
                                 xd_err *e)
{
    xd_status s = xd_model_tok(&j->ctx->model, encoder_of(j), e);
    if (s == XD_OK)
        s = xd_encoder_images_open(j, e);
    return s == XD_OK ? xd_clip_processor_run(&j->ctx->model.clip_processor, rgb, w, h,
                                              j->encoder_pixels + i * image_size(j), e)
                      : s;
}

int64_t xd_encoder_images_hash(const xd_job *j)
{
    uint64_t h = 1;
    for (int64_t i = 0; i < images_of(j) * image_size(j); i++) {
        uint32_t bits;
        memcpy(&bits, &j->encoder_pixels[i], sizeof bits);
        h = xd_hash_mix(h, bits);
    }
    return is_prior(j) ? xd_prior_hash(j, (int64_t)h) : (int64_t)h;
}

xd_status xd_encoder_images_share(xd_job *j, xd_comm *c, xd_err *e)
{
    int64_t n = (int64_t)(bytes_of(j) / sizeof(float));
    if (!c || c->size == 1)
        return XD_OK;
    return xd_world_wait(c, c->ops->bcast(c, xd_view(j->encoder_pixels, XD_F32, 1, &n), 0), e);
}
