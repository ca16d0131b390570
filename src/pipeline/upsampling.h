/* upsampling.h - generates latents in two passes: the first pass denoises smaller latents, a latent
 * upsampler enlarges them, and the second pass, if there is one, adds noise and denoises the
 * enlarged latents.
 *
 * Each of the two denoising passes has its own job, so that the same code computes sizes, schedules
 * and input images. The job of the request is the second pass's job; if the request has no second
 * pass, this job has no steps. */
#ifndef XD_PIPELINE_UPSAMPLING_H
#define XD_PIPELINE_UPSAMPLING_H

#include "pipeline/job.h"

/* Opens both jobs of a request for a model with a latent upsampler: *j, whose context and request
 * the caller has set, and j->small, the job of the first denoising pass. */
xd_status xd_upsampling_open(xd_job *j, xd_err *e);
void      xd_upsampling_close(xd_job *j);
/* Returns the factor by which the number of latent rows (i is 1) or columns (i is 2) grows from the
 * first denoising pass to the second one, or 1 if the request has only one denoising pass. */
int64_t   xd_upsampling_factor(const xd_job *j, int i);
/* For denoising that starts from latents, sets the fraction of the steps that run
 * (denoise_strength). Refuses denoise_strength for denoising that starts from noise. */
xd_status xd_upsampling_strength(const xd_job *j, xd_steps *a, xd_err *e);
/* If denoising starts from latents, mixes the noise [t,C,h,w] with these latents. */
void      xd_upsampling_mix(const xd_job *j, float *noise);
/* Counts the bytes of the latent upsampler's weights, and of scratch memory, on this rank. */
xd_status xd_upsampling_count(xd_job *j, size_t *weights, size_t *bytes, xd_err *e);
/* Loads the latent upsampler on the rank that runs it, which is the first rank of each replica. */
xd_status xd_upsampling_load(xd_job *j, xd_err *e);
/* Enlarges latents of j->small to latents of j, both [t,C,h,w] in host memory, with the complete
 * arena `a` as scratch memory. Call xd_upsampling_compute on the rank that has loaded the latent
 * upsampler. */
xd_status xd_upsampling_compute(xd_job *j, xd_arena *a, const float *small, float *out, xd_err *e);

#endif
