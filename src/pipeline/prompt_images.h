/* prompt_images.h - prepares reference images as inputs of a text encoder that also reads images.
 *
 * The input sequence of the encoder has the text tokens of a prompt and, between them, the tokens
 * of each image. The images are resized to the size that the encoder needs. */
#ifndef XD_PIPELINE_PROMPT_IMAGES_H
#define XD_PIPELINE_PROMPT_IMAGES_H

#include "pipeline/job.h"
#include "text/text.h"

/* Returns XD_EUNSUPPORTED if the text encoder that shall read images was opened without its vision
 * tower. */
xd_status xd_prompt_images_check(const xd_job *j, xd_err *e);
/* Sets j->seen_size[i], the size at which the encoder reads image i. `own` is the original size of
 * image i. Call xd_prompt_image_set_size after j->ref_size[i] is set. */
xd_status xd_prompt_image_set_size(xd_job *j, int i, xd_grid own, xd_err *e);
/* Makes j->seen[i], the pixels of image i for the encoder, from a copy of `rgb`. If `cut` is 1,
 * `rgb` is the image after resizing and cropping for the transformer. If `cut` is 0, `rgb` is the
 * complete image. A model's encoder reads either cropped or complete images; a call with the other
 * kind of image does nothing. */
xd_status xd_prompt_image_read(xd_job *j, int i, const uint8_t *rgb, xd_grid size, int cut,
                               xd_err *e);
/* Sends the images for the text encoder from rank 0 to all ranks that split an encoder. `s` is this
 * rank's status so far. Returns the first failure of any rank. xd_prompt_images_share is a
 * collective call. */
xd_status xd_prompt_images_share(xd_job *j, xd_status s, xd_err *e);

/* In a tokenized prompt for encoder k, each image is at first a single token id. Returns how many
 * ids must be added to the prompt so that each image has as many ids as tokens. */
int64_t   xd_prompt_images_more_ids(const xd_job *j, int k);
/* Returns the number of image rows in the embedding of a prompt or of a negative prompt, if the
 * template of encoder k has an image (xd_text_use.image_every); else 0. */
int64_t   xd_prompt_image_rows(const xd_job *j, int k, int negative);
/* Inserts the text for each image (xd_text_use.image_text) before the prompt for encoder k. Returns
 * the new text, malloc'ed, or NULL if out of memory. Frees the old text `prompt`. */
char     *xd_prompt_images_text(const xd_job *j, int k, char *prompt);
/* Repeats the token id of each image in *ids, so that an image has as many ids as tokens. *ids is
 * malloc'ed; xd_prompt_images_expand enlarges it. */
xd_status xd_prompt_images_expand(const xd_job *j, int k, int32_t **ids, int64_t *n, xd_err *e);
/* Writes to `out` the images that occur in the n token ids of a prompt, with their positions. If
 * `ids` is NULL, the images come before the text. Returns the number of images that were
 * written. */
int       xd_prompt_images_among(const xd_job *j, int k, const int32_t *ids, int64_t n,
                                 xd_text_image out[XD_MAXREFS]);
/* For a transformer whose prefix has reference images (xd_dit_info.prefix_refs), writes to `out`
 * the image rows in the embedding of a text with `rows` rows, and returns their number. `ids`: the
 * text's token ids, of which the last `rows` have rows in the embedding. If `ids` is NULL, the
 * images come first, which suffices for counting memory. */
int       xd_prompt_images_rows(const xd_job *j, const int32_t *ids, int64_t n, int64_t rows,
                                xd_cond_image out[XD_MAXREFS]);
/* Computes two hashes of the images that encoders read, on ranks that have these images. */
void      xd_prompt_images_hash(const xd_job *j, int64_t hash[2]);

#endif
