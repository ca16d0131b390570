/* role_mask.c - the image and mask that the transformer of an inpainting model reads */
#include "pipeline/image_roles_inside.h"

#include <stdlib.h>
#include <string.h>

#include "pipeline/context.h"
#include "pipeline/vae_codec.h"

/* Returns 1 if denoising starts from latents that contain the original image, while the transformer
 * reads a copy of the image whose masked region is grey. */
static int starts_apart(const xd_job *j)
{
    double of[2] = { 0, 1 };
    if (xd_job_has_image(j->r) && j->sampler->shares)
        j->sampler->shares(&j->samp, 0, of);
    return of[0] != 0;
}

void xd_role_mask_paint(const xd_job *j, float *image, float colour)
{
    for (int64_t i = 0; i < j->size[0] * j->size[1] * 3 && j->mask; i++)
        image[i] = j->mask[i / 3] ? colour : image[i];
}

xd_status xd_role_mask_read(xd_job *j, xd_err *e)
{
    size_t    bytes = (size_t)(j->size[0] * j->size[1] * 3) * sizeof *j->image;
    xd_status s = xd_role_start_read(j, e);
    if (s != XD_OK || !j->image)
        return s;
    if (starts_apart(j) && !(j->start_image = malloc(bytes)))
        return xd_fail(e, XD_ENOMEM, "no memory for an image");
    if (j->start_image)
        memcpy(j->start_image, j->image, bytes);
    xd_role_mask_paint(j, j->image, 0); /* grey */
    return XD_OK;
}

xd_status xd_role_mask_encode(xd_job *j, xd_arena *a, xd_err *e)
{
    xd_vae_clip clip = { .frames = 1, .pixels = { j->size[0], j->size[1] } };
    float     **pixels[2] = { &j->start_image, NULL };
    xd_status   s = xd_role_start_encode(j, a, e);
    return s == XD_OK && starts_apart(j)
               ? xd_vae_encode_clip(j, a, &clip, pixels, &j->start_moments, e)
               : s;
}

void xd_role_mask_channels(const xd_job *j, const float *sample, float *out)
{
    const int *cell = j->ctx->model.vae_info.cell;
    int64_t    n = (int64_t)cell[1] * cell[2], h = j->cells[1], w = j->cells[2];
    xd_role_start_channels(j, sample, out);
    out += j->numbers / j->cells[0];
    for (int64_t i = 0; i < n * h * w; i++) {
        int64_t c = i / (h * w), y = i / w % h * cell[1] + c / cell[2];
        int64_t x = i % w * cell[2] + c % cell[2];
        out[i] = j->mask ? (float)j->mask[y * j->size[1] + x] : 0;
    }
}
