/* references.h - reads and encodes the reference images of a request, which the transformer reads
 * as tokens.
 *
 * Each reference image is resized (xd_recipe.reference_size) and encoded by the VAE, and its
 * latents become tokens of the stream XD_REF. */
#ifndef XD_PIPELINE_REFERENCES_H
#define XD_PIPELINE_REFERENCES_H

#include "pipeline/job.h"

/* Returns 1 if a part of the reference image is inpainted, starting from the latents of this image
 * (inpaints_reference). */
int       xd_references_inpainted(const xd_job *j);
/* Reads and resizes the images on rank 0. Until xd_references_share the other ranks only know their
 * number; in predictions each image has the request's own size. Also makes the inputs of text
 * encoders (prompt_images.h). */
xd_status xd_references_read(xd_job *j, xd_err *e);
/* Sends the sizes of the reference images from rank 0 to all ranks, and adds the images' tokens to
 * the layout. `s` is this rank's status so far. The call is collective. */
xd_status xd_references_share(xd_job *j, xd_status s, xd_err *e);
/* Encodes the reference images with the VAE to j->ref_tokens on every rank. The VAE must be loaded
 * on the ranks that decode images. The call is collective. */
xd_status xd_references_encode(xd_job *j, xd_arena *a, xd_err *e);
/* Converts sampled latents [C,h,w] of a reference image to tokens. */
void      xd_references_from_sample(const xd_job *j, const float *sample, float *tokens);
void      xd_references_close(xd_job *j);

#endif
