/* condition.h - the video that a video is conditioned on: its first frame and perhaps its last one
 * are images, the others are grey */
#ifndef XD_PIPELINE_CONDITION_H
#define XD_PIPELINE_CONDITION_H

#include "pipeline/job.h"

/* Checks the first and the last image against the model, once the number of frames is known. */
xd_status xd_condition_check(const xd_job *j, xd_err *e);
/* Reads the last image, on rank 0. */
xd_status xd_condition_read(xd_job *j, xd_err *e);
/* Encodes the video to j->condition. Collective. */
xd_status xd_condition_encode(xd_job *j, xd_arena *a, xd_err *e);
/* What the transformer reads beside the latents, [t,channels,h,w]: a mask for each frame of a cell,
 * 1 where it is an image, then the latents of the video (zeros without an image: a benchmark). */
void      xd_condition_channels(const xd_job *j, float *out);
void      xd_condition_close(xd_job *j);

#endif
