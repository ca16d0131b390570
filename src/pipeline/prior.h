/* prior.h - the images of a request that a prior turns into rows of its prompts
 * (xd_text_use.prior).
 *
 * As in diffusers' pipelines of a prior, the embedding of a prompt is the weighted sum of one
 * embedding for each image: the rows of the prompt, then the rows of the image. The rows of an
 * empty prompt are zeros, and so is its pooled embedding. Negative prompts have no rows of
 * images. */
#ifndef XD_PIPELINE_PRIOR_H
#define XD_PIPELINE_PRIOR_H

#include "pipeline/job.h"

/* Returns the number of images of a request that a prior reads. */
int64_t   xd_prior_images(const xd_request *r);
/* Refuses images without a prior, too many images, and weights that do not fit them. Sets
 * j->prior_scale and j->prior_pooled_scale. */
xd_status xd_prior_check(xd_job *j, xd_err *e);
/* Reads the images on rank 0, and prepares them for the image encoder. */
xd_status xd_prior_read(xd_job *j, xd_err *e);
/* xd_prior_rows returns the number of rows that the prior adds to a prompt's embedding.
 * xd_prior_image_rows returns the number of rows that the prior computes, the sum over all images.
 * Both return 0 if the request has no images for the prior. */
int64_t   xd_prior_rows(const xd_job *j);
int64_t   xd_prior_image_rows(const xd_job *j);
/* Returns 1 if the rows of text of a prompt are zeros. */
int       xd_prior_is_silent(const xd_job *j, int prompt);
/* Return the factor of a prompt's rows of text and of its pooled embedding. */
float     xd_prior_text_scale(const xd_job *j);
float     xd_prior_pooled_scale(const xd_job *j);
/* Changes the hash of the images by their weights. */
int64_t   xd_prior_hash(const xd_job *j, int64_t hash);

#endif
