/* image_roles.c - the table of the roles that a request's images can have */
#include "pipeline/image_roles_inside.h"

#include <stdlib.h>

#include "families/help.h"
#include "pipeline/context.h"
#include "pipeline/prior.h"

static const xd_role_row rows[] = {
    [XD_ROLE_START] = { .starts = 1,
                        .crops = 1,
                        .read = xd_role_start_read,
                        .encode = xd_role_start_encode },
    [XD_ROLE_NONE] = { 0 },
    [XD_ROLE_FIRST_FRAME] = { .needs = "the first frame of its video",
                              .keeps = 1,
                              .read = xd_role_start_read,
                              .encode = xd_role_start_encode,
                              .channels = xd_role_start_channels },
    [XD_ROLE_MARKED_FRAME] = { .needs = "the first frame of its video",
                               .keeps = 1,
                               .means = 1,
                               .read = xd_role_start_read,
                               .encode = xd_role_start_encode,
                               .channels = xd_role_start_marked_channels },
    [XD_ROLE_FRAMES] = { .needs = "the first frame of its video",
                         .keeps = 1,
                         .reads_video = 1,
                         .read = xd_role_frames_read,
                         .encode = xd_role_frames_encode,
                         .channels = xd_role_frames_channels },
    [XD_ROLE_HELD] = { .needs = "the first frame of its video",
                       .keeps = 1,
                       .holds = 1,
                       .read = xd_role_start_read,
                       .encode = xd_role_start_encode },
    [XD_ROLE_MASK] = { .reads_mask = 1,
                       .read = xd_role_mask_read,
                       .encode = xd_role_mask_encode,
                       .channels = xd_role_mask_channels },
    [XD_ROLE_CONTROL] = { .starts = 1,
                          .reads_control = 1,
                          .read = xd_role_control_read,
                          .encode = xd_role_control_encode,
                          .channels = xd_role_start_channels },
    [XD_ROLE_CONTROL_VIDEO] = { .keeps = 1,
                                .reads_control_video = 1,
                                .read = xd_role_control_video_read,
                                .encode = xd_role_control_video_encode,
                                .channels = xd_role_control_video_channels },
    [XD_ROLE_DRIVEN] = { .needs = "the image of a character",
                         .keeps = 1,
                         .reads_control_video = 1,
                         .drives = 1,
                         .read = xd_role_driven_read,
                         .encode = xd_role_driven_encode,
                         .channels = xd_role_driven_channels,
                         .follow = xd_role_driven_follow },
    [XD_ROLE_CONDITIONS] = { .conditions = 1,
                             .read = xd_role_conditions_read,
                             .encode = xd_role_conditions_encode },
    [XD_ROLE_KEYFRAMES] = { .conditions = 1,
                            .keyframes = 1,
                            .read = xd_role_conditions_read,
                            .encode = xd_role_conditions_encode },
    [XD_ROLE_REFERENCES] = { .needs = "an image to edit",
                             .keeps = 1,
                             .tokens = 1,
                             .read = xd_role_references_read,
                             .encode = xd_role_references_encode },
};

/* The role of a reference image if a mask selects a part of this image for inpainting
 * (xd_recipe.inpaints_reference). */
static const xd_role_row inpainted = { .needs = "an image to edit",
                                       .starts = 1,
                                       .tokens = 1,
                                       .read = xd_role_references_read,
                                       .encode = xd_role_start_encode };

/* The role of the images of a transformer with side networks, of which each reads a control
 * image. */
static const xd_role_row sided = { .starts = 1,
                                   .crops = 1,
                                   .reads_control = 1,
                                   .read = xd_role_sides_read,
                                   .encode = xd_role_sides_encode,
                                   .channels = xd_role_sides_channels };

/* The role if the side networks read the mask. Denoising then starts from noise alone. */
static const xd_role_row filled = { .means = 1,
                                    .reads_mask = 1,
                                    .reads_control = 1,
                                    .read = xd_role_sides_read,
                                    .encode = xd_role_sides_encode,
                                    .channels = xd_role_sides_channels };

const xd_role_row *xd_role_of(const xd_recipe *p, int masked)
{
    return masked && p->inpaints_reference ? &inpainted : &rows[p->role];
}

const xd_role_row *xd_role_of_model(const xd_model *m, int masked)
{
    const xd_dit_info *d = &m->dit_info;
    if (masked && (xd_dit_fills(d, XD_FILL_IMAGE) || xd_dit_fills(d, XD_FILL_CONTROL)))
        return &filled;
    return d->sides ? &sided : xd_role_of(m->recipe, masked);
}

/* Returns 1 if a request places images at frames, or has more than a first frame. */
static int places_images(const xd_request *r)
{
    return r->images.nmore_images || xd_job_has_last(r) || r->images.frame_index ||
           r->images.condition_strength;
}

const xd_role_row *xd_role_of_request(const xd_model *m, const xd_request *r)
{
    /* In two passes, an image is encoded for both sizes. */
    int twice = m->upsampler.upsampler && xd_job_has_image(r);
    return m->recipe->placed && (twice || places_images(r))
               ? &rows[m->recipe->placed]
               : xd_role_of_model(m, xd_job_has_mask(r));
}

int xd_role_drop_images(const xd_role_row *role, xd_request *r)
{
    if (role->tokens || role->reads_video || role->reads_control_video || role->conditions)
        return 0;
    r->images.image = r->images.last_image = r->images.mask_image = NULL;
    r->images.image_pixels = r->images.last_pixels = r->images.mask_pixels = NULL;
    r->images.control_image = NULL, r->images.control_pixels = NULL;
    r->images.nmore_control_images = 0;
    r->images.control_video = NULL, r->images.control_frames = NULL;
    r->images.nmore_images = 0, r->images.padding_mask_crop = -1;
    return 1;
}

void xd_role_count(const xd_role_row *role, const xd_request *r, int64_t frames[XD_MAXREFS])
{
    xd_pixel_source pose = xd_input_video_pose(r);
    if (role->conditions)
        xd_role_conditions_count(r, frames);
    if (role->drives)
        frames[0] = pose.file || pose.pixels ? xd_input_video_count(&pose) : 0;
}

void xd_role_count_given(xd_context *ctx, const xd_request *r)
{
    xd_role_count(xd_role_of_request(&ctx->model, r), r, ctx->image_frames);
}

/* Refuses the options of a role that drives a character. */
static xd_status refuse_driving(const xd_job *j, xd_err *e)
{
    const xd_request_driving *d = &j->r->driving;
    const char *what = d->pose_video || d->pose_frames       ? "pose_video"
                       : d->face_video || d->face_frames     ? "face_video"
                       : d->mode                             ? "mode"
                       : d->segment_frame_length             ? "segment_frame_length"
                       : d->prev_segment_conditioning_frames ? "prev_segment_conditioning_frames"
                                                             : NULL;
    return what && !j->role->drives
               ? xd_fail(e, XD_EINVAL, "%s is for %s; %s does not drive a character by videos",
                         what, xd_family_says(XD_WORD_DRIVES), j->ctx->model.recipe->name)
               : XD_OK;
}

xd_status xd_role_check(xd_job *j, xd_err *e)
{
    xd_status s = refuse_driving(j, e);
    if (s == XD_OK)
        s = xd_role_control_check(j, e);
    if (s == XD_OK)
        s = xd_role_sides_check(j, e);
    if (s == XD_OK)
        s = xd_role_control_video_check(j, e);
    if (s == XD_OK)
        s = xd_prior_check(j, e);
    return s == XD_OK ? xd_role_conditions_check(j, e) : s;
}

xd_status xd_role_read(xd_job *j, xd_err *e)
{
    if (j->r->images.control_image && j->r->images.control_pixels)
        return xd_fail(e, XD_EINVAL, "control_image and control_pixels are given; use one of them");
    if (j->r->images.control_video && j->r->images.control_frames)
        return xd_fail(e, XD_EINVAL, "control_video and control_frames are given; use one of them");
    if (j->r->images.image && j->r->images.image_pixels)
        return xd_fail(e, XD_EINVAL, "image and image_pixels are given; use one of them");
    if (j->r->images.mask_image && j->r->images.mask_pixels)
        return xd_fail(e, XD_EINVAL, "mask_image and mask_pixels are given; use one of them");
    xd_status s = xd_prior_read(j, e);
    return s == XD_OK && j->role->read ? j->role->read(j, e) : s;
}

void xd_role_close(xd_job *j)
{
    float **const floats[] = { &j->image,          &j->moments,         &j->start_image,
                               &j->start_moments,  &j->last_image,      &j->condition,
                               &j->encoder_pixels, &j->ref_tokens,      &j->part_pixels[0],
                               &j->part_pixels[1], &j->part_moments[0], &j->part_moments[1] };
    xd_role_driven_close(j);
    free(j->frame_spans), j->frame_spans = NULL;
    free(j->frame_strength), j->frame_strength = NULL;
    uint8_t **const bytes[] = { &j->mask, &j->paste.rgb, &j->paste.grey, &j->levels };
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        free(*floats[i]), *floats[i] = NULL;
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        free(*bytes[i]), *bytes[i] = NULL;
    for (int i = 0; i < XD_MAXSIDES; i++) {
        free(j->side_pixels[i]), j->side_pixels[i] = NULL;
        free(j->side_moments[i]), j->side_moments[i] = NULL;
    }
    for (int i = 0; i < XD_MAXREFS; i++) {
        free(j->ref_pixels[i]), j->ref_pixels[i] = NULL;
        free(j->leading_moments[i]), j->leading_moments[i] = NULL;
        free(j->seen[i]), j->seen[i] = NULL;
    }
}
