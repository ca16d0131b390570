/* prior.h - reads the images of a request that a prior network (such as Redux) turns into further
 * rows of the prompts' embeddings (xd_text_use.prior).
 *
 * As in diffusers' Redux pipeline, the embedding of a prompt is a weighted sum with one term for
 * each image: the prompt's rows followed by the image's rows. The rows of an empty prompt are
 * zeros, and so is its pooled embedding. The embeddings of negative prompts have no rows for
 * images. */
#ifndef XD_PIPELINE_PRIOR_H
#define XD_PIPELINE_PRIOR_H

#include "pipeline/job.h"

/* Returns the number of images of a request that a prior reads. */
int64_t   xd_prior_images(const xd_request *r);
/* Refuses images for a model without a prior, too many images, and a number of weights other than
 * the number of images. Sets the weights of the images, j->prior_scale and
 * j->prior_pooled_scale. */
xd_status xd_prior_check(xd_job *j, xd_err *e);
/* Reads the prior's images on rank 0, and preprocesses them for the image encoder. */
xd_status xd_prior_read(xd_job *j, xd_err *e);
/* xd_prior_rows returns the number of rows that the prior adds to a prompt's embedding.
 * xd_prior_image_rows returns the number of rows that the prior computes, the sum over all images.
 * xd_prior_rows and xd_prior_image_rows return 0 if the request has no images for the prior. */
int64_t   xd_prior_rows(const xd_job *j);
int64_t   xd_prior_image_rows(const xd_job *j);
/* Returns 1 if the rows of a prompt's text are zeros, because the prompt is empty. */
int       xd_prior_is_silent(const xd_job *j, int prompt);
/* Return the factors by which the rows of a prompt's text and its pooled embedding are
 * multiplied. */
float     xd_prior_text_scale(const xd_job *j);
float     xd_prior_pooled_scale(const xd_job *j);
/* Combines `hash`, the hash of the prior's images, with the weights of these images. */
int64_t   xd_prior_hash(const xd_job *j, int64_t hash);

#endif
