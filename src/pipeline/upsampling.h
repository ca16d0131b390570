/* upsampling.h - generates latents in two passes: the first pass denoises smaller latents, a latent
 * upsampler enlarges them, and the second pass, if there is one, adds noise and denoises the
 * enlarged latents.
 *
 * Each pass has a job of its own, so that sizes, schedules and input images follow from the same
 * code. The job of the request is that of the second pass; without a second pass, this job has no
 * steps. */
#ifndef XD_PIPELINE_UPSAMPLING_H
#define XD_PIPELINE_UPSAMPLING_H

#include "pipeline/job.h"

/* Opens the jobs of a request of a model with a latent upsampler: *j, whose context and request are
 * set, and j->small. */
xd_status xd_upsampling_open(xd_job *j, xd_err *e);
void      xd_upsampling_close(xd_job *j);
/* Returns the factor of rows (i 1) or columns (2) from the first pass to this one; else 1. */
int64_t   xd_upsampling_factor(const xd_job *j, int i);
/* Sets the share of steps that run in a pass that starts from latents. Refuses denoise_strength in
 * other passes. */
xd_status xd_upsampling_strength(const xd_job *j, xd_steps *a, xd_err *e);
/* Mixes noise [t,C,h,w] with the latents from which denoising starts, if there are such latents. */
void      xd_upsampling_mix(const xd_job *j, float *noise);
/* Counts the bytes of the latent upsampler's weights, and of scratch memory, on this rank. */
xd_status xd_upsampling_count(xd_job *j, size_t *weights, size_t *bytes, xd_err *e);
/* Loads the latent upsampler on the rank that runs it, the first one of each replica. */
xd_status xd_upsampling_load(xd_job *j, xd_err *e);
/* Enlarges latents of j->small to latents of j, both [t,C,h,w] in host memory, with the complete
 * arena `a` as scratch memory. Called on the rank that has loaded the latent upsampler. */
xd_status xd_upsampling_compute(xd_job *j, xd_arena *a, const float *small, float *out, xd_err *e);

#endif
