/* init_image.h - initial image of a request: read, encoded, mixed with noise */
#ifndef XD_PIPELINE_INIT_IMAGE_H
#define XD_PIPELINE_INIT_IMAGE_H

#include "base/rng.h"
#include "pipeline/job.h"
#include "pipeline/vae_codec.h"

/* An image of a request, as file or pixels, and the names of both fields. */
typedef struct xd_pixel_source {
    const char     *file_name, *pixels_name, *file;
    const xd_image *pixels;
} xd_pixel_source;

xd_pixel_source xd_init_image_source(const xd_request *r, int k);       /* the k-th image        */
/* Reads the file or copies the pixels: RGB bytes, malloc'ed. */
xd_status xd_init_image_pixels(const xd_pixel_source *of, uint8_t **rgb, int64_t *w, int64_t *h,
                               xd_err *e);
/* Converts RGB bytes to F32 in [-1,1], malloc'ed. */
xd_status xd_init_image_floats(float **out, const uint8_t *rgb, xd_grid size, xd_err *e);
/* Reads an image on rank 0, passes it to the image encoder as image i, and resizes it to the
 * request's size as F32, malloc'ed. */
xd_status xd_init_image_take(xd_job *j, const xd_pixel_source *of, int i, float **out, xd_err *e);
/* Encodes a clip to the moments [t,h,w,2C] of its Gaussian, malloc'ed on every rank. Rank 0 passes
 * the first and the last frame (or NULL); the other frames are grey. Frees the pixels.
 * Collective. */
xd_status xd_init_image_moments(xd_job *j, xd_arena *a, const xd_vae_clip *clip, float **pixels[2],
                                float **moments, xd_err *e);
xd_status xd_init_image_read(xd_job *j, xd_err *e);  /* reads the image on rank 0              */
/* Encodes the image to its Gaussian (j->moments, j->start_moments) on every rank. The VAE must be
 * loaded on the ranks that decode images. Collective. */
xd_status xd_init_image_encode(xd_job *j, xd_arena *a, xd_err *e);
/* Draws normal random numbers: the noise of an image's latents and, if there is a Gaussian, [C,h,w]
 * for its sample (else `sample` is unchanged). start: the same for j->start_moments; NULL: none. */
void      xd_init_image_draw(const xd_job *j, xd_rng *g, float *noise, float *sample,
                             float *start);
/* Turns normal random numbers in place into a sample [C,h,w] of the moments' Gaussian. */
void      xd_init_image_sample(const xd_job *j, const float *moments, float *sample);
/* Mixes noise and the image's latents into the initial latents, in place in `noise`. */
void      xd_init_image_mix(const xd_job *j, float *noise, const float *sample);
void      xd_init_image_close(xd_job *j);

#endif
