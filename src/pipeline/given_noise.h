/* given_noise.h - noise that a program gives in place of that of the seed */
#ifndef XD_PIPELINE_GIVEN_NOISE_H
#define XD_PIPELINE_GIVEN_NOISE_H

#include "pipeline/job.h"

/* XD_EINVAL: not as many numbers as the images' latents have. */
xd_status    xd_given_noise_check(const xd_job *j, xd_err *e);
/* Rank 0's noise on every rank. Collective, also where there is none. */
xd_status    xd_given_noise_share(xd_job *j, xd_err *e);
/* Of an image, [frames,channels,rows,columns]; NULL: it has that of its seed. */
const float *xd_given_noise_of(const xd_job *j, int image);
void         xd_given_noise_close(xd_job *j);

#endif
