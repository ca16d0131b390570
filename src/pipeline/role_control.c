/* role_control.c - the control image that the transformer reads beside the noise
 *
 * As in diffusers' control pipelines, the latents of the control image are a sample of the VAE's
 * Gaussian, drawn before the sample of an initial image and before the noise. */
#include "pipeline/image_roles_inside.h"

#include "families/help.h"
#include "pipeline/context.h"
#include "pipeline/mask.h"
#include "pipeline/vae_codec.h"

/* Checks the names of the annotators, and their number. */
static xd_status check_annotators(const xd_job *j, int given, xd_err *e)
{
    int64_t      n, images = given + j->r->images.nmore_control_images;
    xd_annotator a;
    xd_status    s = xd_input_image_annotator(j->r, 0, &a, &n, e);
    if (s != XD_OK || !n)
        return s;
    if (!given && xd_job_has_control_video(j->r))
        return xd_fail(e, XD_EUNSUPPORTED,
                       "control_preprocess is for control images; omit it with control_video");
    if (!given)
        return xd_fail(e, XD_EINVAL,
                       "control_preprocess \"%s\" has no image to read: add --control_image",
                       j->r->images.control_preprocess);
    if (n != 1 && n != images)
        return xd_fail(e, XD_EINVAL,
                       "control_preprocess has %lld names for %lld control images; it must have "
                       "one, or one for each image",
                       (long long)n, (long long)images);
    return XD_OK;
}

xd_status xd_role_control_check(const xd_job *j, xd_err *e)
{
    const char *name = j->ctx->model.recipe->name;
    int         given = xd_job_has_control(j->r);
    if (given && !j->role->reads_control)
        return xd_fail(e, XD_EINVAL,
                       "control_image is for models such as %s; this %s model reads none%s",
                       xd_family_says(XD_WORD_CONTROLS), name,
                       j->ctx->model.dit.dit->side ? ": add --controlnet" : "");
    if (!given && j->role->reads_control && !j->ctx->bench)
        return xd_fail(e, XD_EINVAL,
                       "%s needs a control image, such as edges or depth: add --control_image",
                       name);
    return check_annotators(j, given, e);
}

xd_status xd_role_control_read(xd_job *j, xd_err *e)
{
    xd_pixel_source of = xd_input_image_control(j->r, 0);
    xd_status       s = xd_role_start_take_first(j, &j->start_image, e);
    return s == XD_OK && xd_job_has_control(j->r) ? xd_role_start_take(j, &of, 1, &j->image, e) : s;
}

xd_status xd_role_control_encode(xd_job *j, xd_arena *a, xd_err *e)
{
    xd_vae_clip clip = { .frames = 1, .pixels = { j->size[0], j->size[1] } };
    float     **control[2] = { &j->image, NULL }, **start[2] = { &j->start_image, NULL };
    xd_status   s = xd_mask_share(j, e);
    if (s == XD_OK && xd_job_has_control(j->r))
        s = xd_vae_encode_clip(j, a, &clip, control, &j->moments, e);
    if (s == XD_OK && xd_job_has_image(j->r))
        s = xd_vae_encode_clip(j, a, &clip, start, &j->start_moments, e);
    return s;
}
