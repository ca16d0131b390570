/* image_roles.h - defines a table with one row for each role of a request's images, such as initial
 * image or mask (xd_image_role). A row tells how the images are read, encoded and used in
 * denoising. */
#ifndef XD_PIPELINE_IMAGE_ROLES_H
#define XD_PIPELINE_IMAGE_ROLES_H

#include "base/rng.h"
#include "pipeline/job.h"

typedef struct xd_role_row {
    /* Name of the required image in the error message for a request without it. NULL: xd_role_check
     * does not report a missing image; xd_mask_check reports a missing mask. */
    const char *needs;
    int         starts; /* 1: denoising starts from the image plus noise */
    /* 1: no noise is added to the image, and the option `strength` is refused */
    int         keeps;
    int         means;      /* 1: the image's latents are the mean of the VAE's Gaussian */
    int         holds;      /* 1: the first latent frame is fixed to the image in all steps */
    int         crops;      /* 1: padding_mask_crop may generate only a rectangle of the image */
    int         reads_mask; /* 1: the transformer reads the mask, which the request must have */
    /* 1: the transformer reads a control image, which the request must have */
    int         reads_control;
    /* 1: the transformer reads a control video, its mask, and reference images in addition to the
     * noise */
    int         reads_control_video;
    /* 1: a pose video and a face video drive the character of the image, and a long video is
     * generated in segments */
    int         drives;
    int         reads_video; /* 1: the VAE encodes a video in which the images are frames */
    /* 1: the images or videos are frames of the result that the request fixes */
    int         conditions;
    int         keyframes; /* 1: the rules of XD_ROLE_KEYFRAMES (with `conditions`) */
    int         tokens;    /* 1: the transformer reads the images as additional tokens */
    /* Function that reads and resizes the request's images on rank 0. If `read` is NULL, requests
     * with images are refused. */
    xd_status   (*read)(xd_job *j, xd_err *e);
    /* Function that encodes the input images with the VAE. The VAE must be loaded on the ranks that
     * decode images. All ranks must call `encode`. The pointer `encode` is NULL if `read` is
     * NULL. */
    xd_status   (*encode)(xd_job *j, xd_arena *a, xd_err *e);
    /* Writes the transformer's additional channels to `out` [t,channels,h,w], whose elements are 0
     * before the call. `sample` contains the image's latents [C,h,w], sampled from the Gaussian
     * that the VAE computed. If `channels` is NULL, the transformer has no additional channels. */
    void        (*channels)(const xd_job *j, const float *sample, float *out);
    /* Prepares the inputs of segment j->segment. A segment that follows another one continues its
     * last frames, F32 [overlap,H,W,3] on the replica's first rank. `s` is this rank's status so
     * far. The call is collective over the ranks of the replica. */
    xd_status   (*follow)(xd_job *j, xd_arena *a, const float *last, xd_status s, xd_err *e);
} xd_role_row;

/* Returns the table row for the role that images have in the pipeline p. `masked` is 1 if the
 * request has a mask. */
const xd_role_row *xd_role_of(const xd_recipe *p, int masked);
/* Returns the table row of an open model. If the transformer has side networks (such as a
 * ControlNet), this row differs from the row of the pipeline without side networks. */
const xd_role_row *xd_role_of_model(const xd_model *m, int masked);
/* Returns the table row for a request to an open model. */
const xd_role_row *xd_role_of_request(const xd_model *m, const xd_request *r);
/* Removes the images from the request `r` if they change neither the transformer's tokens nor the
 * number of frames; the time can then be predicted without reading images. Returns 1 if images were
 * removed from the request. */
int                xd_role_drop_images(const xd_role_row *role, xd_request *r);
/* Reads the request's images with the function `read` of their role's table row. */
xd_status          xd_role_read(xd_job *j, xd_err *e);
void               xd_role_close(xd_job *j); /* frees all images of the job */
/* Checks that the model accepts the first and the last image of the request. Call
 * xd_role_frames_check after the number of frames is set. */
xd_status          xd_role_frames_check(const xd_job *j, xd_err *e);
/* Checks the inputs of all roles except given first and last frames. xd_role_check calls
 * xd_role_control_check, xd_role_sides_check and xd_role_control_video_check. */
xd_status          xd_role_check(xd_job *j, xd_err *e);
/* Checks that the request has a control image if and only if the model reads one. */
xd_status          xd_role_control_check(const xd_job *j, xd_err *e);
/* Checks the number of control images, the factors of side networks (conditioning_scale), and the
 * fractions of the steps in which side networks are used. Returns an error if the request has
 * options of side networks and the transformer has no side network. */
xd_status          xd_role_sides_check(const xd_job *j, xd_err *e);
/* Sets j->hint_scales to the factor of each side network in each step. */
xd_status          xd_role_sides_scales(xd_job *j, xd_err *e);
/* Checks the control video, its mask, its reference images and conditioning_scale; refuses all of
 * them if the model reads no control video. Sets the number of reference images, the number of
 * clips to encode, and the factors by which the control video's features are multiplied. */
xd_status          xd_role_control_video_check(xd_job *j, xd_err *e);
/* Checks frame_index, condition_strength and image_cond_noise_scale; refuses these options if the
 * request's images do not fix frames of the video. Sets all of j->conditions except the numbers of
 * frames. */
xd_status          xd_role_conditions_check(xd_job *j, xd_err *e);
/* Sets the number of frames of each given image or video in j->conditions, and the number of latent
 * frames before the video, j->leading. Call xd_role_conditions_place after j->frames is set. */
xd_status          xd_role_conditions_place(xd_job *j, xd_err *e);
/* Sets the time and the strength of each latent frame, j->frame_s and j->frame_strength. Call
 * xd_role_conditions_frames after j->cells is set. */
xd_status          xd_role_conditions_frames(xd_job *j, xd_err *e);
/* Counts the frames of each given image or video, or of a pose video, on the rank that reads them,
 * if the role depends on them. If a file cannot be read, its number of frames becomes 1; a later
 * call reports the failure. */
void      xd_role_count(const xd_role_row *role, const xd_request *r, int64_t frames[XD_MAXREFS]);
void      xd_role_conditions_count(const xd_request *r, int64_t frames[XD_MAXREFS]);
/* Counts the frames of given images and videos before the time of a request is predicted. */
void      xd_role_count_given(xd_context *ctx, const xd_request *r);
/* Checks the videos and options of a role that drives a character; refuse_driving refuses them for
 * other roles. */
xd_status xd_role_driven_check(xd_job *j, xd_err *e);
/* Sets the numbers of frames of the result and of its segments. Sets *latents to the number of
 * latent frames of a segment. */
xd_status xd_role_driven_frames(xd_job *j, int64_t *latents, xd_err *e);
/* Sets j->face to the pixels of the face video in segment j->segment. */
xd_status xd_role_driven_face(xd_job *j, xd_err *e);
/* Draws the noise [t,C,h,w] of a video and of the given latent frames before it, and the random
 * numbers with which latents of given images are sampled. The numbers are drawn in the order of
 * diffusers. The array samples[i] for image i is malloc'ed. If `samples` is NULL, the numbers are
 * drawn but not kept. Returns 0 if out of memory. */
int  xd_role_conditions_draw(const xd_job *j, xd_rng *g, float *noise, float *samples[XD_MAXREFS]);
/* Mixes the sampled latents of the given images into the video's initial noise [t,C,h,w]. */
void xd_role_conditions_mix(const xd_job *j, float *const samples[XD_MAXREFS], float *noise);
/* Writes the latents of the given images to their frames of `latents` [t,C,h,w]. */
void xd_role_conditions_clean(const xd_job *j, float *latents);
/* Mixes noise with latents, both [t,C,h,w], by the rules of XD_ROLE_KEYFRAMES. */
void xd_role_conditions_mix_clean(const xd_job *j, const float *latents, float *noise);
/* Returns 1 if clean latents of given frames are mixed with the predictions of each step, because
 * the strength of a frame is between 0 and 1. */
int  xd_role_conditions_blends(const xd_job *j);
/* Returns the standard deviation of the noise that steps add to given frames, or 0 if steps add no
 * noise. */
double    xd_role_conditions_noise(const xd_job *j);
/* Sends the sizes of the reference images from rank 0 to all ranks, and adds the images' tokens to
 * the layout. `s` is this rank's status so far. All ranks must call xd_role_references_share. */
xd_status xd_role_references_share(xd_job *j, xd_status s, xd_err *e);
/* Converts sampled latents [C,h,w] of a reference image to tokens. */
void      xd_role_references_from_sample(const xd_job *j, const float *sample, float *tokens);

#endif
