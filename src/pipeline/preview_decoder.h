/* preview_decoder.h - a tiny autoencoder that decodes previews (xd_open_args.preview_decoder)
 *
 * The first rank of a replica decodes alone, in memory of its own; what that takes is part of the
 * memory plan. */
#ifndef XD_PIPELINE_PREVIEW_DECODER_H
#define XD_PIPELINE_PREVIEW_DECODER_H

#include "pipeline/job.h"

/* Bytes of its weights, and of a decode; 0 where the request needs none on this rank. */
xd_status xd_preview_count(xd_job *j, size_t *weights, size_t *bytes, xd_err *e);
/* Loads it where the request needs it on this rank. Local. */
xd_status xd_preview_load(xd_job *j, xd_err *e);
/* Decodes a frame of clean latents [C,h,w]: pixels [size.rows,size.cols,3], malloc'ed. NULL: there
 * is no decoder, it has failed, or the request was cancelled. */
float    *xd_preview_decode(const xd_job *j, const float *lat, xd_grid *size);

#endif
