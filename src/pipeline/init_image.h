/* init_image.h - the initial image of a request: read, encoded, mixed with noise */
#ifndef XD_PIPELINE_INIT_IMAGE_H
#define XD_PIPELINE_INIT_IMAGE_H

#include "base/rng.h"
#include "pipeline/job.h"
#include "pipeline/vae_codec.h"

/* An image of a request, a file or pixels, and the names of the two fields. */
typedef struct xd_pixel_source {
    const char     *file_name, *pixels_name, *file;
    const xd_image *pixels;
} xd_pixel_source;

xd_pixel_source xd_init_image_source(const xd_request *r, int k);       /* the k-th image       */
/* Pixels read from the file or copied, malloc'ed RGB. */
xd_status xd_init_image_pixels(const xd_pixel_source *of, uint8_t **rgb, int64_t *w, int64_t *h,
                               xd_err *e);
/* Pixels of 3 bytes as F32 in [-1,1], malloc'ed. */
xd_status xd_init_image_floats(float **out, const uint8_t *rgb, xd_grid size, xd_err *e);
/* Reads the image on rank 0 for the encoder of images, as its image number i, and resized to the
 * request's size as F32, malloc'ed. */
xd_status xd_init_image_take(xd_job *j, const xd_pixel_source *of, int i, float **out, xd_err *e);
/* Encodes a clip, whose first and last frame (or NULL) are given on rank 0 and whose other frames
 * are grey, to the moments [t,h,w,2C] of its Gaussian, malloc'ed on every rank. Frees the pixels.
 * Collective. */
xd_status xd_init_image_moments(xd_job *j, xd_arena *a, const xd_vae_clip *clip, float **pixels[2],
                                float **moments, xd_err *e);
xd_status xd_init_image_read(xd_job *j, xd_err *e);  /* reads the image, on rank 0             */
/* Does the noise start from the image, while the transformer reads one that is grey at the mask? */
int       xd_init_image_starts_apart(const xd_job *j);
/* Encodes the image to its Gaussian (j->moments, j->start_moments) on every rank; the VAE is loaded
 * on the ranks that decode images. Collective. */
xd_status xd_init_image_encode(xd_job *j, xd_arena *a, xd_err *e);
/* Draws normal random numbers: the noise of an image's latents, and [C,h,w] for the sample of the
 * Gaussian, if there is one (otherwise `sample` is unchanged). start: for that of j->start_moments;
 * NULL: there is none. */
void      xd_init_image_draw(const xd_job *j, xd_rng *g, float *noise, float *sample,
                             float *start);
/* The image's latents [C,h,w] of these moments from normal random numbers, in place. */
void      xd_init_image_sample(const xd_job *j, const float *moments, float *sample);
/* The initial latents from noise and the image's latents, in place in `noise`. */
void      xd_init_image_mix(const xd_job *j, float *noise, const float *sample);
void      xd_init_image_close(xd_job *j);

#endif
