/* prompt_images.h - prepares reference images as inputs of a text encoder that also reads images.
 *
 * The encoder reads each image's tokens among the token ids of a prompt. The images are resized to
 * the size that the encoder needs. */
#ifndef XD_PIPELINE_PROMPT_IMAGES_H
#define XD_PIPELINE_PROMPT_IMAGES_H

#include "pipeline/job.h"
#include "text/text.h"

/* Sets j->seen_size[i], the size at which the encoder reads image i. `own` is the image's own size.
 * Call after j->ref_size[i] is set. */
xd_status xd_prompt_image_set_size(xd_job *j, int i, xd_grid own, xd_err *e);
/* Makes j->seen[i], the pixels of image i for the encoder, from `rgb`, which is unchanged. If `cut`
 * is 1, rgb has the resized and cropped pixels for the transformer, else the complete image. The
 * encoder of a model reads one of the two forms, and a call with the other form does nothing. */
xd_status xd_prompt_image_read(xd_job *j, int i, const uint8_t *rgb, xd_grid size, int cut,
                               xd_err *e);
/* Sends the images for the encoder from rank 0 to all ranks that split an encoder. `s` is this
 * rank's status so far. Returns the first failure of any rank. The call is collective. */
xd_status xd_prompt_images_share(xd_job *j, xd_status s, xd_err *e);

/* Returns the number of token ids that images add to a prompt for encoder k in which each image is
 * one id. */
int64_t   xd_prompt_images_more_ids(const xd_job *j, int k);
/* Inserts the text for each image (xd_text_use.image_text) before the prompt for encoder k. Returns
 * the new text, malloc'ed, or NULL if out of memory. Frees `prompt`. */
char     *xd_prompt_images_text(const xd_job *j, int k, char *prompt);
/* Repeats the token id that stands for an image in *ids, so that there is one id for each of the
 * image's tokens. *ids is malloc'ed and is enlarged. */
xd_status xd_prompt_images_expand(const xd_job *j, int k, int32_t **ids, int64_t *n, xd_err *e);
/* Lists the images in n token ids and the positions of the images. If `ids` is NULL, the images
 * come first. Returns the number of images. */
int       xd_prompt_images_among(const xd_job *j, int k, const int32_t *ids, int64_t n,
                            xd_text_image out[XD_MAXREFS]);
/* Computes two hashes of the images that encoders read, on ranks that have these images. */
void      xd_prompt_images_hash(const xd_job *j, int64_t hash[2]);

#endif
