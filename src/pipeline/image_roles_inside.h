/* image_roles_inside.h - declares the functions that the table in image_roles.c points to. Some
 * roles of images have their own source file; roles whose image is read like an initial image use
 * the functions of role_start.c. */
#ifndef XD_PIPELINE_IMAGE_ROLES_INSIDE_H
#define XD_PIPELINE_IMAGE_ROLES_INSIDE_H

#include "pipeline/image_roles.h"
#include "pipeline/input_image.h"

/* Reads an input image on rank 0, prepares it as image i of the image encoder, and resizes it to
 * the request's size. Sets *out to the image's F32 pixels, which are malloc'ed. */
xd_status xd_role_start_take(xd_job *j, const xd_pixel_source *of, int i, float **out, xd_err *e);
/* Reads the initial image like xd_role_start_take, if the request has one; refuses several
 * images. */
xd_status xd_role_start_take_first(xd_job *j, float **out, xd_err *e);
/* xd_role_start_read reads the image to j->image, and xd_role_start_encode encodes it to
 * j->moments. xd_role_start_channels writes the image's latents to the transformer's additional
 * channels. */
xd_status xd_role_start_read(xd_job *j, xd_err *e);
xd_status xd_role_start_encode(xd_job *j, xd_arena *a, xd_err *e);
void      xd_role_start_channels(const xd_job *j, const float *sample, float *out);
/* In the first latent frame, sets the transformer's additional channels to the image's latents,
 * followed by a channel of ones. */
void      xd_role_start_marked_channels(const xd_job *j, const float *sample, float *out);
/* The given first and last frame are read to j->image and j->last_image, and the video that
 * contains them (the conditioning video) is encoded to j->condition. The transformer's additional
 * channels are a mask, then the latents of the conditioning video. The mask of a latent frame has
 * one channel for each video frame that the latent frame represents; the channel's value is 1 if
 * that video frame is a given image. In a benchmark without an image, the latents of the
 * conditioning video are zeros. */
xd_status xd_role_frames_read(xd_job *j, xd_err *e);
xd_status xd_role_frames_encode(xd_job *j, xd_arena *a, xd_err *e);
void      xd_role_frames_channels(const xd_job *j, const float *sample, float *out);
/* In an inpainting request, the masked area of the image j->image becomes grey. If denoising starts
 * from the image plus noise, j->start_image is a copy of the original image, and is encoded to
 * j->start_moments. The transformer's additional channels are the latents of the partly grey image,
 * then the mask. The mask has one channel for each pixel that one latent cell represents; all its
 * channels are zero if the request has no mask. */
xd_status xd_role_mask_read(xd_job *j, xd_err *e);
/* Sets the masked pixels of an image [H,W,3] to a colour; rank 0 has the mask. */
void      xd_role_mask_paint(const xd_job *j, float *image, float colour);
xd_status xd_role_mask_encode(xd_job *j, xd_arena *a, xd_err *e);
void      xd_role_mask_channels(const xd_job *j, const float *sample, float *out);
/* j->image is the control image and j->moments its moments; the latents of the control image are
 * the transformer's additional channels. If the request has an initial image, that image is read to
 * j->start_image and encoded to j->start_moments. In a benchmark without a control image, the
 * transformer's additional channels are zeros. */
xd_status xd_role_control_read(xd_job *j, xd_err *e);
xd_status xd_role_control_encode(xd_job *j, xd_arena *a, xd_err *e);
/* The control image of each side network is read to j->side_pixels and encoded to
 * j->side_moments. The transformer's additional channels are the mean latents of the control
 * images, one image after the other. In a benchmark without control images, the transformer's
 * additional channels are zeros. */
xd_status xd_role_sides_read(xd_job *j, xd_err *e);
xd_status xd_role_sides_encode(xd_job *j, xd_arena *a, xd_err *e);
void      xd_role_sides_channels(const xd_job *j, const float *sample, float *out);
/* The control video is read and resized to j->part_pixels and j->levels, and its reference images
 * to j->ref_pixels. The control video is encoded to j->part_moments, and its reference images to
 * j->leading_moments. If the request has no control video, a video of zeros with a white mask takes
 * its place. In a benchmark without a control video, the latents of the control video are zeros. */
xd_status xd_role_control_video_read(xd_job *j, xd_err *e);
xd_status xd_role_control_video_encode(xd_job *j, xd_arena *a, xd_err *e);
void      xd_role_control_video_channels(const xd_job *j, const float *sample, float *out);
/* The image, the pose video, the face video, and a control video with its mask are read to
 * j->driven. The image is encoded to j->leading_moments, the pose video of each segment to
 * j->driven.pose, and the video that the first segment continues to j->part_moments[0]; that of a
 * later segment is encoded to j->part_moments[1]. */
xd_status xd_role_driven_read(xd_job *j, xd_err *e);
xd_status xd_role_driven_encode(xd_job *j, xd_arena *a, xd_err *e);
xd_status xd_role_driven_follow(xd_job *j, xd_arena *a, const float *last, xd_status s, xd_err *e);
void      xd_role_driven_channels(const xd_job *j, const float *sample, float *out);
void      xd_role_driven_close(xd_job *j);
/* The given images and videos are read to j->ref_pixels, and encoded to j->leading_moments. */
xd_status xd_role_conditions_read(xd_job *j, xd_err *e);
xd_status xd_role_conditions_encode(xd_job *j, xd_arena *a, xd_err *e);
/* Each reference image is resized (xd_recipe.reference_size) and encoded to tokens j->ref_tokens.
 * Before xd_role_references_share is called, ranks other than 0 know only the number of reference
 * images. When time or memory is predicted, each reference image is assumed to have the size of the
 * result. xd_role_references_read also prepares the images that text encoders read
 * (prompt_images.h). */
xd_status xd_role_references_read(xd_job *j, xd_err *e);
xd_status xd_role_references_encode(xd_job *j, xd_arena *a, xd_err *e);

#endif
