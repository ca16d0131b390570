/* prompt_images.h - prepares reference images as inputs of a text encoder that also reads images.
 *
 * The encoder's input sequence consists of the text tokens of a prompt and, between them, the
 * tokens of each image. Images are resized to the size that the encoder needs. */
#ifndef XD_PIPELINE_PROMPT_IMAGES_H
#define XD_PIPELINE_PROMPT_IMAGES_H

#include "pipeline/job.h"
#include "text/text.h"

/* Returns XD_EUNSUPPORTED if the text encoder must read images but was opened without its vision
 * network. */
xd_status xd_prompt_images_check(const xd_job *j, xd_err *e);
/* Sets j->seen_size[i], the size at which the encoder reads image i. `own` is the original size of
 * image i. Call xd_prompt_image_set_size after j->ref_size[i] is set. */
xd_status xd_prompt_image_set_size(xd_job *j, int i, xd_grid own, xd_err *e);
/* Makes j->seen[i], the pixels of image i for the encoder, from a copy of `rgb`. If `cut` is 1,
 * `rgb` is the image after resizing and cropping for the transformer. If `cut` is 0, `rgb` is the
 * complete image. A text encoder reads either cropped or complete images; a call with `cut` for the
 * other kind does nothing. */
xd_status xd_prompt_image_read(xd_job *j, int i, const uint8_t *rgb, xd_grid size, int cut,
                               xd_err *e);
/* Sends the images for the text encoder from rank 0 to all ranks that split an encoder. `s` is this
 * rank's status so far. Returns the first failure of any rank. All ranks that split an encoder must
 * call xd_prompt_images_share. */
xd_status xd_prompt_images_share(xd_job *j, xd_status s, xd_err *e);

/* In a tokenized prompt for encoder k, one token id marks the position of an image. Returns how
 * many ids must be added so that each image has as many ids as tokens. */
int64_t   xd_prompt_images_more_ids(const xd_job *j, int k);
/* Returns the number of image rows in the embedding of a prompt or of a negative prompt, if the
 * prompt template of encoder k includes the request's image (xd_text_use.image_every); else 0. */
int64_t   xd_prompt_image_rows(const xd_job *j, int k, int negative);
/* Inserts the text for each image (xd_text_use.image_text) before the prompt for encoder k. Returns
 * the new text, malloc'ed, or NULL if out of memory. Frees the old text `prompt`. */
char     *xd_prompt_images_text(const xd_job *j, int k, char *prompt);
/* Repeats the token id of each image in *ids, so that an image has as many ids as tokens. *ids is
 * malloc'ed; xd_prompt_images_expand enlarges it. */
xd_status xd_prompt_images_expand(const xd_job *j, int k, int32_t **ids, int64_t *n, xd_err *e);
/* Writes to `out` the images that occur in the n token ids of a prompt, with their positions. If
 * `ids` is NULL, all images are assumed to precede the text. Returns the number of images written
 * to `out`. */
int       xd_prompt_images_among(const xd_job *j, int k, const int32_t *ids, int64_t n,
                                 xd_text_image out[XD_MAXREFS]);
/* For a transformer that reads reference images before the text (xd_dit_info.prefix_refs), writes
 * to `out` which of the `rows` rows of a text's embedding belong to images, and returns the number
 * of images. Only the last `rows` of the text's token ids `ids` have rows in the embedding. If
 * `ids` is NULL, all images are assumed to precede the text, which suffices for counting memory. */
int       xd_prompt_images_rows(const xd_job *j, const int32_t *ids, int64_t n, int64_t rows,
                                xd_cond_image out[XD_MAXREFS]);
/* Computes two hashes of the images that encoders read, on ranks that have these images. */
void      xd_prompt_images_hash(const xd_job *j, int64_t hash[2]);

#endif
