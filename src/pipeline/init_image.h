/* init_image.h - reads the initial image of a request, encodes it, and mixes its latents with
 * noise. */
#ifndef XD_PIPELINE_INIT_IMAGE_H
#define XD_PIPELINE_INIT_IMAGE_H

#include "base/rng.h"
#include "pipeline/job.h"
#include "pipeline/vae_codec.h"

/* An input image of a request, as a file or as pixels. The names of the two request fields are for
 * error messages. */
typedef struct xd_pixel_source {
    const char     *file_name, *pixels_name, *file;
    const xd_image *pixels;
} xd_pixel_source;

/* Returns the k-th input image of a request. */
xd_pixel_source xd_init_image_source(const xd_request *r, int k);
/* Reads an input image from its file or copies its pixels. Sets *rgb to malloc'ed RGB bytes of *w x
 * *h pixels. */
xd_status xd_init_image_pixels(const xd_pixel_source *of, uint8_t **rgb, int64_t *w, int64_t *h,
                               xd_err *e);
/* Converts the RGB bytes of an image to F32 in [-1,1]. *out is malloc'ed. */
xd_status xd_init_image_floats(float **out, const uint8_t *rgb, xd_grid size, xd_err *e);
/* Reads an input image on rank 0, prepares it as image i of the image encoder, and resizes it to
 * the request's size. Sets *out to malloc'ed F32 pixels. */
xd_status xd_init_image_take(xd_job *j, const xd_pixel_source *of, int i, float **out, xd_err *e);
/* Encodes a clip with the VAE to moments [t,h,w,2C], the mean and log variance of a Gaussian
 * distribution of latents. *moments is malloc'ed on every rank. Rank 0 passes the pixels of the
 * first and the last frame (or NULL); the other frames are grey. Frees the pixels of the two
 * frames. The call is collective. */
xd_status xd_init_image_moments(xd_job *j, xd_arena *a, const xd_vae_clip *clip, float **pixels[2],
                                float **moments, xd_err *e);
xd_status xd_init_image_read(xd_job *j, xd_err *e);  /* reads the initial image on rank 0      */
/* Encodes the initial image to the moments of a Gaussian distribution of latents (j->moments,
 * j->start_moments) on every rank. The VAE must be loaded on the ranks that decode images.
 * Collective. */
xd_status xd_init_image_encode(xd_job *j, xd_arena *a, xd_err *e);
/* Draws normal random numbers: the noise for an image's latents and, if j->moments is not NULL, the
 * numbers `sample` [C,h,w] for sampling from these moments (else `sample` is unchanged). `start`
 * receives the numbers for sampling from j->start_moments, unless it is NULL. */
void      xd_init_image_draw(const xd_job *j, xd_rng *g, float *noise, float *sample,
                             float *start);
/* Converts normal random numbers [C,h,w] in place to sampled latents of the Gaussian with these
 * moments. */
void      xd_init_image_sample(const xd_job *j, const float *moments, float *sample);
/* Computes, in place in `noise`, the latents from which denoising starts: a mixture of noise and
 * the sampled latents of the initial image. */
void      xd_init_image_mix(const xd_job *j, float *noise, const float *sample);
void      xd_init_image_close(xd_job *j);

#endif
