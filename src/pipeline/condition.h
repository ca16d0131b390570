/* condition.h - conditioning video of image to video: the first and perhaps the last frame are
 * given images, all other frames are grey */
#ifndef XD_PIPELINE_CONDITION_H
#define XD_PIPELINE_CONDITION_H

#include "pipeline/job.h"

/* Checks the first and the last image against the model. Call after the number of frames is set. */
xd_status xd_condition_check(const xd_job *j, xd_err *e);
/* Reads the last image on rank 0. */
xd_status xd_condition_read(xd_job *j, xd_err *e);
/* Encodes the video to j->condition. Collective. */
xd_status xd_condition_encode(xd_job *j, xd_arena *a, xd_err *e);
/* Writes the transformer's condition channels [t,channels,h,w]: a mask of each frame of a latent
 * frame (1: a given image), then the latents of the video (zeros without an image: a benchmark). */
void      xd_condition_channels(const xd_job *j, float *out);
void      xd_condition_close(xd_job *j);

#endif
