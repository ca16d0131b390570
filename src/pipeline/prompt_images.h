/* prompt_images.h - reference images as a text encoder sees them
 *
 * The encoder reads each among the ids of a prompt, at a size of its own. */
#ifndef XD_PIPELINE_PROMPT_IMAGES_H
#define XD_PIPELINE_PROMPT_IMAGES_H

#include "pipeline/job.h"
#include "text/text.h"

/* Sets j->seen_size[i] of an image with so many pixels, after j->ref_size[i] is set. */
xd_status xd_prompt_image_set_size(xd_job *j, int i, xd_grid own, xd_err *e);
/* Makes j->seen[i] of its pixels, which stay as they are; cut: they are those that the transformer
 * reads. The encoder sees either these or the whole image; the other call does nothing. */
xd_status xd_prompt_image_read(xd_job *j, int i, const uint8_t *rgb, xd_grid size, int cut,
                               xd_err *e);
/* Gives all ranks that share an encoder the pixels of rank 0. s: this rank's status so far.
 * Collective; returns the status of all ranks. */
xd_status xd_prompt_images_share(xd_job *j, xd_status s, xd_err *e);
void      xd_prompt_images_close(xd_job *j);

/* How many ids the images add to a prompt of encoder k in which each has one. */
int64_t   xd_prompt_images_more_ids(const xd_job *j, int k);
/* The prompt behind the texts of its images, malloc'ed; NULL without memory. Takes `prompt`. */
char     *xd_prompt_images_text(const xd_job *j, int k, char *prompt);
/* Repeats the id of each image in *ids (malloc'ed, grows) as often as it has tokens. */
xd_status xd_prompt_images_expand(const xd_job *j, int k, int32_t **ids, int64_t *n, xd_err *e);
/* The images among n ids; ids may be NULL: then they are the first. Returns their number. */
int       xd_prompt_images_among(const xd_job *j, int k, const int32_t *ids, int64_t n,
                            xd_text_image out[XD_MAXREFS]);
/* Two hashes of what is seen, on ranks that have it. */
void      xd_prompt_images_hash(const xd_job *j, int64_t hash[2]);

#endif
