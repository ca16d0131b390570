/* condition.h - makes the conditioning video of image-to-video models. The first frame of this
 * video, and in some requests the last frame, are given images; all other frames are grey. */
#ifndef XD_PIPELINE_CONDITION_H
#define XD_PIPELINE_CONDITION_H

#include "pipeline/job.h"

/* Checks that the model accepts the first and the last image of the request. Call after the number
 * of frames is set. */
xd_status xd_condition_check(const xd_job *j, xd_err *e);
/* Reads the image of the last frame on rank 0. */
xd_status xd_condition_read(xd_job *j, xd_err *e);
/* Encodes the conditioning video with the VAE to j->condition. The call is collective. */
xd_status xd_condition_encode(xd_job *j, xd_arena *a, xd_err *e);
/* Writes the transformer's condition channels [t,channels,h,w]: first a mask with a channel for
 * each frame of a latent frame (1: the frame is a given image), then the latents of the
 * conditioning video. In a benchmark without an image the latents are zeros. */
void      xd_condition_channels(const xd_job *j, float *out);
void      xd_condition_close(xd_job *j);

#endif
