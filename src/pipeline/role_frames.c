/* role_frames.c - the conditioning video of image to video. The first frame of this video, and in
 * some requests the last frame, are given images; all other frames are grey.
 *
 * The latents of the conditioning video are the mean of the VAE's Gaussian, so no random number is
 * drawn. The first frame is encoded to one latent frame; all mask channels of that latent frame are
 * equal. */
#include "pipeline/image_roles_inside.h"

#include "families/help.h"
#include "pipeline/callbacks.h"
#include "pipeline/context.h"
#include "pipeline/encoder_images.h"
#include "pipeline/vae_codec.h"

xd_status xd_role_frames_check(const xd_job *j, xd_err *e)
{
    const xd_recipe *p = j->ctx->model.recipe;
    int              last = xd_job_has_last(j->r), n = xd_encoder_images_read(j);
    if (j->role->keyframes)
        return XD_OK;
    if (last && !j->role->reads_video)
        return xd_fail(e, XD_EINVAL,
                       "last_image is for models with a last frame as input (%s); "
                       "%s has none",
                       xd_family_says(XD_WORD_LAST_IMAGE), p->name);
    if (!last && n > 1 && !j->ctx->bench)
        return xd_fail(e, XD_EINVAL,
                       "this model of %s needs the first and the last frame of its "
                       "video: add --last_image",
                       p->name);
    if (last && n == 1)
        return xd_fail(e, XD_EINVAL,
                       "last_image is given, but this model of %s only reads the "
                       "first frame of its video",
                       p->name);
    if (last && !xd_job_has_image(j->r))
        return xd_fail(e, XD_EINVAL, "last_image needs the first frame, too: add --image");
    if (last && j->frames < 2)
        return xd_fail(e, XD_EINVAL,
                       "last_image is given, but the video has one frame "
                       "(num_frames)");
    return XD_OK;
}

xd_status xd_role_frames_read(xd_job *j, xd_err *e)
{
    xd_pixel_source of = xd_pixel_source_of("last_image", "last_pixels", j->r->images.last_image,
                                            j->r->images.last_pixels);
    xd_status       s = xd_role_start_read(j, e);
    return s == XD_OK && xd_job_has_last(j->r) ? xd_role_start_take(j, &of, 1, &j->last_image, e)
                                               : s;
}

xd_status xd_role_frames_encode(xd_job *j, xd_arena *a, xd_err *e)
{
    xd_vae_clip clip = { .frames = j->frames, .pixels = { j->size[0], j->size[1] } };
    float     **pixels[2] = { &j->image, xd_job_has_last(j->r) ? &j->last_image : NULL };
    return xd_job_has_image(j->r) ? xd_vae_encode_clip(j, a, &clip, pixels, &j->condition, e)
                                  : XD_OK;
}

/* Returns 1 if frame `at` of latent frame t is one of the request's images. */
static int is_image(const xd_job *j, int64_t t, int64_t at)
{
    int64_t frame = t ? t * j->ctx->model.vae_info.cell[0] + at - j->ctx->model.vae_info.cell[0] + 1
                      : 0;
    return frame == 0 || (xd_job_has_last(j->r) && frame == j->frames - 1);
}

void xd_role_frames_channels(const xd_job *j, const float *sample, float *out)
{
    int64_t n = j->ctx->model.vae_info.cell[0], C = j->lat[1], hw = j->cells[1] * j->cells[2];
    int64_t d[4] = { j->lat[0], n + C, j->lat[2], j->lat[3] };
    float  *to = out;
    (void)sample;
    for (int64_t t = -j->spare; t < j->cells[0] - j->spare; t++) {
        for (int64_t i = 0; i < n * hw; i++)
            *to++ = t >= 0 && is_image(j, t, i / hw);
        for (int64_t i = 0; i < C * hw; i++)
            *to++ = t < 0 || !j->condition ? 0 : j->condition[(t * hw + i % hw) * 2 * C + i / hw];
    }
    xd_callback_tensor(j, "condition", 0, 4, d, out);
}
