/* init_image.h - the image that a request starts from: read, encoded, mixed with noise */
#ifndef XD_PIPELINE_INIT_IMAGE_H
#define XD_PIPELINE_INIT_IMAGE_H

#include "base/rng.h"
#include "pipeline/job.h"

xd_status xd_init_image_read(xd_job *j, xd_err *e);  /* the image, on rank 0                       */
/* Its Gaussian, on every rank; the autoencoder is loaded where images are decoded. Collective. */
xd_status xd_init_image_encode(xd_job *j, xd_arena *a, xd_err *e);
/* Normal numbers of an image's latents, and [C,h,w] for the sample of the Gaussian when there is one
 * (sample is not touched else). */
void      xd_init_image_draw(const xd_job *j, xd_rng *g, float *noise, float *sample);
/* The image's latents [C,h,w] from a sample's normal numbers, in place. */
void      xd_init_image_sample(const xd_job *j, float *sample);
/* The first latents of an image's: noise in, in place. */
void      xd_init_image_mix(const xd_job *j, float *noise, const float *sample);
void      xd_init_image_close(xd_job *j);

#endif
