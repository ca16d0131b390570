/* mask.c - the mask of a request, which selects the part of the image that is inpainted.
 *
 * The rules are those of diffusers' inpainting pipelines: the mask is resized like the image, and
 * pixels of 128 and above are inpainted. A latent cell is inpainted if its pixel at the top left is
 * inpainted. */
#include "pipeline/mask.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "families/help.h"
#include "io/image.h"
#include "io/inpaint.h"
#include "pipeline/arenas.h"
#include "pipeline/context.h"
#include "pipeline/image_roles.h"
#include "pipeline/input_image.h"
#include "ranks/world.h"

xd_status xd_mask_check(const xd_job *j, xd_err *e)
{
    const xd_recipe  *p = j->ctx->model.recipe;
    const xd_request *r = j->r;
    if (!xd_job_has_mask(r) && r->images.padding_mask_crop >= 0)
        return xd_fail(e, XD_EINVAL, "padding_mask_crop needs a mask: add --mask_image");
    if (!j->role->crops && xd_recipe_inpaints(p) && r->images.padding_mask_crop >= 0)
        return xd_fail(e, XD_EINVAL,
                       "padding_mask_crop cannot be used with %s, which reads the "
                       "complete image",
                       p->name);
    if (xd_vae_pixel_channels(&j->ctx->model.vae_info) > 3 && r->images.padding_mask_crop >= 0)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "padding_mask_crop cannot be used with the autoencoder %s/%s, whose images "
                       "have alpha",
                       j->ctx->model.dir, p->vae);
    if (j->role->reads_mask && !j->role->reads_control && !j->ctx->bench &&
        (!xd_job_has_mask(r) || !xd_job_has_image(r)))
        return xd_fail(e, XD_EINVAL,
                       "%s is for inpainting: add --image and "
                       "--mask_image",
                       p->name);
    if (!xd_job_has_mask(r))
        return XD_OK;
    if (j->role->reads_control_video)
        return xd_job_has_control_video(r)
                   ? XD_OK
                   : xd_fail(e, XD_EINVAL,
                             "mask_image needs the video that it masks: add --control_video");
    if (!xd_recipe_inpaints(p))
        return xd_fail(e, XD_EINVAL, "mask_image is for %s; %s does not support inpainting",
                       xd_family_says(XD_WORD_INPAINTS), p->name);
    if (!xd_job_has_image(r) && !xd_dit_fills(&j->ctx->model.dit_info, XD_FILL_CONTROL))
        return xd_fail(e, XD_EINVAL, "mask_image needs the image to inpaint: add --image");
    return XD_OK;
}

/* ---- reading ------------------------------------------------------------------------------ */

/* Reads the pixels of the request's mask. If `crop` is 1, resizes the mask to the size of the
 * image. */
static xd_status read_pixels(const xd_job *j, int crop, int64_t w, int64_t h, uint8_t **rgb,
                             int64_t size[2], xd_err *e)
{
    xd_pixel_source of = xd_pixel_source_of("mask_image", "mask_pixels", j->r->images.mask_image,
                                            j->r->images.mask_pixels);
    xd_status       s = xd_input_image_pixels(&of, rgb, &size[0], &size[1], e);
    if (s != XD_OK || (size[0] == w && size[1] == h))
        return s;
    xd_log(XD_LOG_INFO, "resizing the mask from %lld x %lld pixels to the image's %lld x %lld",
           (long long)size[0], (long long)size[1], (long long)w, (long long)h);
    if (crop)
        s = xd_image_resize(rgb, size[0], size[1], w, h, e);
    if (crop)
        size[0] = w, size[1] = h;
    return s;
}

/* Crops image and mask to the region around the mask, and scales this region to the size of the
 * generated image. Keeps copies of the complete image and mask in j->paste. */
static xd_status cut_out(xd_job *j, uint8_t **rgb, uint8_t **mask, int64_t w, int64_t h, xd_err *e)
{
    xd_job_paste *p = &j->paste;
    xd_status     s = xd_image_grey(&p->grey, *mask, w * h, e);
    if (s == XD_OK && !(p->rgb = malloc((size_t)(w * h) * 3)))
        s = xd_fail(e, XD_ENOMEM, "no memory for an image of %lld x %lld", (long long)w,
                    (long long)h);
    if (s != XD_OK)
        return s;
    memcpy(p->rgb, *rgb, (size_t)(w * h) * 3);
    p->size = (xd_grid){ h, w };
    if (!xd_mask_region(p->grey, w, h, j->size[1], j->size[0], j->r->images.padding_mask_crop,
                        &p->box))
        return xd_fail(e, XD_EINVAL, "the mask is black: no part of the image would be inpainted");
    int64_t wide = p->box.right - p->box.left, high = p->box.bottom - p->box.top;
    xd_log(XD_LOG_INFO, "inpainting %lld x %lld of the image's %lld x %lld pixels", (long long)wide,
           (long long)high, (long long)w, (long long)h);
    for (int i = 0; i < 2 && s == XD_OK; i++) {
        s = xd_image_crop(i ? mask : rgb, w, p->box, e);
        if (s == XD_OK)
            s = xd_image_fill(i ? mask : rgb, wide, high, j->size[1], j->size[0], e);
    }
    return s;
}

/* Converts the mask's pixels, at the generated size, to zeros and ones. */
static xd_status set_mask(xd_job *j, const uint8_t *rgb, xd_err *e)
{
    int64_t   n = j->size[0] * j->size[1];
    xd_status s = xd_image_grey(&j->mask, rgb, n, e);
    for (int64_t i = 0; i < n && s == XD_OK; i++)
        j->mask[i] = j->mask[i] >= 128;
    return s;
}

xd_status xd_mask_read(xd_job *j, uint8_t **rgb, int64_t *w, int64_t *h, xd_err *e)
{
    uint8_t *mask = NULL;
    int64_t  size[2];
    int      crop = j->r->images.padding_mask_crop >= 0;
    if (!xd_job_has_mask(j->r))
        return XD_OK;
    xd_status s = read_pixels(j, crop, *w, *h, &mask, size, e);
    if (s == XD_OK && crop) {
        s = cut_out(j, rgb, &mask, *w, *h, e);
        *w = size[0] = j->size[1];
        *h = size[1] = j->size[0];
    }
    if (s == XD_OK)
        s = xd_image_resize(&mask, size[0], size[1], j->size[1], j->size[0], e);
    if (s == XD_OK)
        s = set_mask(j, mask, e);
    free(mask);
    return s;
}

xd_status xd_mask_share(xd_job *j, xd_err *e)
{
    int64_t   n = j->size[0] * j->size[1];
    xd_status s = XD_OK;
    if (!xd_job_has_mask(j->r))
        return XD_OK;
    if (!j->mask && !(j->mask = xd_host_buffer(j->ctx, (size_t)n)))
        s = xd_fail(e, XD_ENOMEM, "no memory for a mask of %lld pixels", (long long)n);
    s = xd_world_agree(&j->ctx->world, s, e);
    return s == XD_OK ? xd_world_broadcast(&j->ctx->world, j->mask, n, e) : s;
}

/* ---- use of the mask --------------------------------------------------------------------- */

void xd_mask_latents(const xd_job *j, float *out)
{
    const int *cell = j->ctx->model.vae_info.cell;
    for (int64_t c = 0; c < j->lat[1]; c++)
        for (int64_t y = 0; y < j->cells[1]; y++)
            for (int64_t x = 0; x < j->cells[2]; x++)
                *out++ = j->mask[y * cell[1] * j->size[1] + x * cell[2]];
}

xd_status xd_mask_paste(const xd_job *j, uint8_t **pixels, xd_err *e)
{
    const xd_job_paste *p = &j->paste;
    int64_t             wide = p->box.right - p->box.left, high = p->box.bottom - p->box.top;
    int64_t             n = p->size.rows * p->size.cols;
    xd_status           s = xd_image_cover(pixels, j->asked[1], j->asked[0], wide, high, e);
    uint8_t            *out = s == XD_OK ? calloc((size_t)n, 3) : NULL;
    if (s == XD_OK && !out)
        s = xd_fail(e, XD_ENOMEM, "no memory for an image of %lld x %lld", (long long)p->size.cols,
                    (long long)p->size.rows);
    if (s != XD_OK)
        return s;
    for (int64_t y = 0; y < high; y++)
        memcpy(out + ((p->box.top + y) * p->size.cols + p->box.left) * 3, *pixels + y * wide * 3,
               (size_t)wide * 3);
    xd_image_overlay(out, p->rgb, p->grey, n);
    free(*pixels);
    *pixels = out;
    return XD_OK;
}
