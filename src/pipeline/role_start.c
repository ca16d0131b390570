/* role_start.c - the image from which denoising starts.
 *
 * Rank 0 reads and resizes the image. The VAE encodes the initial image to a Gaussian, from which
 * every output image uses a sample with its own seed. As in diffusers' Img2Img and ImageToVideo
 * pipelines, the sample is drawn before the noise, from the same generator. */
#include "pipeline/image_roles_inside.h"

#include <stdlib.h>
#include <string.h>

#include "io/image.h"
#include "io/inpaint.h"
#include "pipeline/callbacks.h"
#include "pipeline/context.h"
#include "pipeline/encoder_images.h"
#include "pipeline/mask.h"
#include "pipeline/pixels.h"
#include "pipeline/vae_codec.h"
#include "ranks/world.h"

xd_status xd_role_start_take(xd_job *j, const xd_pixel_source *of, int i, float **out, xd_err *e)
{
    uint8_t *rgb = NULL;
    int64_t  w, h;
    if (j->ctx->world.used->rank != 0 || j->ctx->unread)
        return XD_OK;
    xd_status s = xd_input_image_pixels(of, &rgb, &w, &h, e);
    if (s == XD_OK && !xd_encoder_images_resized(j))
        s = xd_encoder_images_prepare(j, i, rgb, w, h, e);
    if (s == XD_OK && i == 0)
        s = xd_mask_read(j, &rgb, &w, &h, e);
    if (s == XD_OK)
        s = j->ctx->model.recipe->covers
                ? xd_image_cover(&rgb, w, h, j->size[1], j->size[0], e)
                : xd_image_resize_by(&rgb,
                                     j->ctx->model.recipe->bilinear ? XD_BILINEAR : XD_LANCZOS, w,
                                     h, j->size[1], j->size[0], e);
    if (s == XD_OK && xd_encoder_images_resized(j))
        s = xd_encoder_images_prepare(j, i, rgb, j->size[1], j->size[0], e);
    if (s == XD_OK)
        s = xd_pixels_floats(out, rgb, (xd_grid){ j->size[0], j->size[1] }, 3, e);
    free(rgb);
    return s;
}

xd_status xd_role_start_take_first(xd_job *j, float **out, xd_err *e)
{
    xd_pixel_source of = xd_input_image_source(j->r, 0);
    if (!xd_job_has_image(j->r))
        return XD_OK;
    if (j->r->images.nmore_images)
        return xd_fail(e, XD_EINVAL, "%lld images are given, but %s uses one",
                       (long long)xd_job_images(j->r), j->ctx->model.recipe->name);
    if (!j->ctx->model.vae.vae->encode)
        return xd_fail(e, XD_EUNSUPPORTED, "the autoencoder of this model cannot encode an image");
    return xd_role_start_take(j, &of, 0, out, e);
}

xd_status xd_role_start_read(xd_job *j, xd_err *e)
{
    return xd_role_start_take_first(j, &j->image, e);
}

xd_status xd_role_start_encode(xd_job *j, xd_arena *a, xd_err *e)
{
    xd_vae_clip clip = { .frames = 1, .pixels = { j->size[0], j->size[1] } };
    float     **pixels[2] = { &j->image, NULL };
    if (!xd_job_has_image(j->r))
        return XD_OK;
    xd_status s = xd_mask_share(j, e);
    return s == XD_OK ? xd_vae_encode_clip(j, a, &clip, pixels, &j->moments, e) : s;
}

void xd_role_start_channels(const xd_job *j, const float *sample, float *out)
{
    memcpy(out, sample, (size_t)(j->numbers / j->cells[0]) * sizeof *out);
}

void xd_role_start_marked_channels(const xd_job *j, const float *sample, float *out)
{
    int64_t n = j->numbers / j->cells[0], hw = j->cells[1] * j->cells[2];
    int64_t d[4] = { j->lat[0], j->lat[1] + 1, j->lat[2], j->lat[3] };
    xd_role_start_channels(j, sample, out);
    for (int64_t i = 0; i < hw; i++)
        out[n + i] = 1;
    xd_callback_tensor(j, "condition", 0, 4, d, out);
}
