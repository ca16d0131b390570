/* given_noise.h - reads the initial noise that a request passes in place of noise drawn from its
 * seed. */
#ifndef XD_PIPELINE_GIVEN_NOISE_H
#define XD_PIPELINE_GIVEN_NOISE_H

#include "pipeline/job.h"

/* Checks the initial noise that the request passes. Returns XD_EINVAL if the noise does not have
 * exactly as many values as the latents of all images together. */
xd_status    xd_given_noise_check(const xd_job *j, xd_err *e);
/* Sends the initial noise of rank 0's request to every rank. Every rank in use must call
 * xd_given_noise_share, even if the request has no noise. */
xd_status    xd_given_noise_share(xd_job *j, xd_err *e);
/* Returns the initial noise that the request passes for one image, [frames,channels,rows,columns].
 * Returns NULL if the initial noise is drawn from the seed. */
const float *xd_given_noise_of(const xd_job *j, int image);
void         xd_given_noise_close(xd_job *j);

#endif
