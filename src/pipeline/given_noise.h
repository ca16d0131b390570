/* given_noise.h - initial noise from the request in place of the seed's */
#ifndef XD_PIPELINE_GIVEN_NOISE_H
#define XD_PIPELINE_GIVEN_NOISE_H

#include "pipeline/job.h"

/* XD_EINVAL: the number of values differs from that of the images' latents. */
xd_status    xd_given_noise_check(const xd_job *j, xd_err *e);
/* Sends rank 0's noise to every rank. Collective, also without given noise. */
xd_status    xd_given_noise_share(xd_job *j, xd_err *e);
/* Returns the noise of an image [frames,channels,rows,columns]; NULL: the seed's noise is used. */
const float *xd_given_noise_of(const xd_job *j, int image);
void         xd_given_noise_close(xd_job *j);

#endif
