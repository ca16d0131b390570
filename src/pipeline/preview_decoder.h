/* preview_decoder.h - a tiny autoencoder that decodes previews (xd_open_args.preview_decoder)
 *
 * The first rank of a replica decodes alone, in separate memory that the memory plan includes. */
#ifndef XD_PIPELINE_PREVIEW_DECODER_H
#define XD_PIPELINE_PREVIEW_DECODER_H

#include "pipeline/job.h"

/* Counts the bytes of its weights and of a decode; 0 if the request needs none on this rank. */
xd_status xd_preview_count(xd_job *j, size_t *weights, size_t *bytes, xd_err *e);
/* Loads it if the request needs it on this rank. Local. */
xd_status xd_preview_load(xd_job *j, xd_err *e);
/* Decodes a frame of clean latents [C,h,w] to pixels [size.rows,size.cols,3], malloc'ed. NULL: no
 * decoder, a failure, or the request was cancelled. */
float    *xd_preview_decode(const xd_job *j, const float *lat, xd_grid *size);

#endif
