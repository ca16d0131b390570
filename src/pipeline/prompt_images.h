/* prompt_images.h - reference images as inputs of a text encoder
 *
 * The encoder reads each image among the ids of a prompt, at a size of the encoder. */
#ifndef XD_PIPELINE_PROMPT_IMAGES_H
#define XD_PIPELINE_PROMPT_IMAGES_H

#include "pipeline/job.h"
#include "text/text.h"

/* Sets j->seen_size[i] of an image of size `own`. Call after j->ref_size[i] is set. */
xd_status xd_prompt_image_set_size(xd_job *j, int i, xd_grid own, xd_err *e);
/* Makes j->seen[i] from pixels, which stay unchanged. cut: 1: the pixels for the transformer; 0:
 * the complete image. The encoder reads one of the two; the call for the other does nothing. */
xd_status xd_prompt_image_read(xd_job *j, int i, const uint8_t *rgb, xd_grid size, int cut,
                               xd_err *e);
/* Sends the pixels of rank 0 to all ranks that split an encoder. s: this rank's status so far.
 * Returns the first failure of any rank. Collective. */
xd_status xd_prompt_images_share(xd_job *j, xd_status s, xd_err *e);
void      xd_prompt_images_close(xd_job *j);

/* Returns how many ids the images add to a prompt of encoder k that has one id per image. */
int64_t   xd_prompt_images_more_ids(const xd_job *j, int k);
/* Returns the prompt with its images' texts before it, malloc'ed; NULL: no memory. Frees
 * `prompt`. */
char     *xd_prompt_images_text(const xd_job *j, int k, char *prompt);
/* Repeats the id of each image in *ids (malloc'ed, grows) to the number of its tokens. */
xd_status xd_prompt_images_expand(const xd_job *j, int k, int32_t **ids, int64_t *n, xd_err *e);
/* Lists the images among n ids; ids NULL: the images come first. Returns their number. */
int       xd_prompt_images_among(const xd_job *j, int k, const int32_t *ids, int64_t n,
                            xd_text_image out[XD_MAXREFS]);
/* Computes two hashes of the images that encoders read, on ranks that have them. */
void      xd_prompt_images_hash(const xd_job *j, int64_t hash[2]);

#endif
