/* image_roles.h - a table of the roles that a request's images can have (xd_image_role): how the
 * images are read and encoded, and how they enter denoising. */
#ifndef XD_PIPELINE_IMAGE_ROLES_H
#define XD_PIPELINE_IMAGE_ROLES_H

#include "base/rng.h"
#include "pipeline/job.h"

typedef struct xd_role_row {
    /* The words for the image in an error message, if the model requires an image and the request
     * has none. If `needs` is NULL, a missing image causes no error here; xd_mask_check reports a
     * missing mask. */
    const char *needs;
    int         starts; /* 1: denoising starts from the image plus noise */
    int         keeps;  /* 1: noise does not change the image; the option `strength` is refused */
    int         means;  /* 1: the image's latents are the mean of the VAE's Gaussian */
    int         holds;  /* 1: the first latent frame is fixed to the image in all steps */
    int         crops;  /* 1: padding_mask_crop may generate only a part of the image */
    int         reads_mask; /* 1: the transformer reads the mask, which the request must have */
    /* 1: the transformer reads a control image, which the request must have */
    int         reads_control;
    /* 1: the transformer reads a control video, its mask, and reference images in addition to the
     * noise */
    int         reads_control_video;
    int         reads_video; /* 1: the VAE encodes a video that has the images as frames */
    /* 1: the images are given frames, and may be videos */
    int         conditions;
    int         tokens; /* 1: the transformer reads tokens of the images */
    /* Reads and resizes the request's images on rank 0. `read` NULL: images are refused. */
    xd_status   (*read)(xd_job *j, xd_err *e);
    /* Encodes the input images on every rank. The VAE must be loaded on the ranks that decode
     * images. `encode` is a collective call. `encode` is NULL if `read` is NULL. */
    xd_status   (*encode)(xd_job *j, xd_arena *a, xd_err *e);
    /* Writes the transformer's additional channels to `out` [t,channels,h,w], whose elements are 0
     * before the call. `sample` has latents [C,h,w], sampled from the Gaussian of the image. NULL:
     * the transformer has no additional channels. */
    void        (*channels)(const xd_job *j, const float *sample, float *out);
} xd_role_row;

/* Returns the table row for the role that images have in the pipeline p. `masked` is 1 if the
 * request has a mask. */
const xd_role_row *xd_role_of(const xd_recipe *p, int masked);
/* Returns the table row of an open model. If the transformer has side networks, the row differs
 * from the row of the model's pipeline. */
const xd_role_row *xd_role_of_model(const xd_model *m, int masked);
/* Removes the images from `r` if they change neither the transformer's tokens nor the frames, so
 * that the time of a request without images can be predicted. Returns 1 if the images were
 * removed. */
int                xd_role_drop_images(const xd_role_row *role, xd_request *r);
/* Reads the request's images with the function of their role. */
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
 * fractions of the steps in which side networks are used. Refuses the options of side networks if
 * the transformer has none. */
xd_status          xd_role_sides_check(const xd_job *j, xd_err *e);
/* Sets j->hint_scales to the factor of each side network in each step. */
xd_status          xd_role_sides_scales(xd_job *j, xd_err *e);
/* Checks the control video, its mask, its reference images and conditioning_scale. If the model
 * reads no control video, these options are refused. Sets the job's number of reference images, its
 * number of clips to encode, and the factors of hints. */
xd_status          xd_role_control_video_check(xd_job *j, xd_err *e);
/* Checks frame_index, condition_strength and image_cond_noise_scale. If images are not given frames
 * of the video, these options are refused. Sets j->conditions, except the numbers of frames. */
xd_status          xd_role_conditions_check(xd_job *j, xd_err *e);
/* Sets the numbers of frames of j->conditions, and j->leading. Call xd_role_conditions_place after
 * j->frames is set. */
xd_status          xd_role_conditions_place(xd_job *j, xd_err *e);
/* Sets j->frame_s and j->frame_strength. Call xd_role_conditions_frames after j->cells is set. */
xd_status          xd_role_conditions_frames(xd_job *j, xd_err *e);
/* Counts the frames of each given image or video, on the rank that reads them.
 * If a file cannot be read, its number of frames becomes 1; a later call reports the failure. */
void               xd_role_conditions_count(const xd_request *r, int64_t frames[XD_MAXREFS]);
/* Counts the frames of given images and videos before a request is predicted. */
void               xd_role_conditions_take(xd_context *ctx, const xd_request *r);
/* Draws the noise [t,C,h,w] of a video and of the given latent frames before it, and random numbers
 * for sampling from the Gaussians of the given images, in the order of diffusers. samples[i] is
 * malloc'ed; NULL: the numbers are drawn, but not kept. Returns 0 if out of memory. */
int  xd_role_conditions_draw(const xd_job *j, xd_rng *g, float *noise, float *samples[XD_MAXREFS]);
/* Mixes sampled latents of the given images with the noise [t,C,h,w]. */
void xd_role_conditions_mix(const xd_job *j, float *const samples[XD_MAXREFS], float *noise);
/* Returns the standard deviation of the noise that steps add to given frames, or 0 if they add
 * none. */
double    xd_role_conditions_noise(const xd_job *j);
/* Sends the sizes of the reference images from rank 0 to all ranks, and adds the images' tokens to
 * the layout. `s` is this rank's status so far. xd_role_references_share is a collective call. */
xd_status xd_role_references_share(xd_job *j, xd_status s, xd_err *e);
/* Converts sampled latents [C,h,w] of a reference image to tokens. */
void      xd_role_references_from_sample(const xd_job *j, const float *sample, float *tokens);

#endif
