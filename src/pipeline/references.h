/* references.h - reference images of a request, which the transformer reads as tokens
 *
 * Each is resized to a size of its own, encoded by the VAE, and its latents become rows of the
 * stream XD_REF. */
#ifndef XD_PIPELINE_REFERENCES_H
#define XD_PIPELINE_REFERENCES_H

#include "pipeline/job.h"

/* Does the request have images that its model reads as references? */
int       xd_references_given(const xd_job *j);
/* Is a part of the reference image generated, from its own latents (inpaints_reference)? */
int       xd_references_inpainted(const xd_job *j);
/* How many images: those of the request, or one in a measurement of a model that needs one. */
int64_t   xd_references_count(const xd_job *j);
/* Reads and resizes them on rank 0. Before xd_references_share the other ranks know their number
 * only; while plans are predicted each counts as an image of the request's own size. What text
 * encoders see is made at the same time (prompt_images.h). */
xd_status xd_references_read(xd_job *j, xd_err *e);
/* Tells all ranks the sizes of rank 0 and adds the tokens to the layout. `s`: this rank's failure
 * so far. Collective. */
xd_status xd_references_share(xd_job *j, xd_status s, xd_err *e);
/* Encodes them: j->ref_tokens on every rank; the VAE is loaded on the ranks that decode images.
 * Collective. */
xd_status xd_references_encode(xd_job *j, xd_arena *a, xd_err *e);
/* The tokens of such an image from a sample of its latents [C,h,w]. */
void      xd_references_from_sample(const xd_job *j, const float *sample, float *tokens);
void      xd_references_close(xd_job *j);

#endif
