/* preview_decoder.h - decodes previews with a tiny autoencoder (xd_open_args.preview_decoder).
 *
 * Only the first rank of a replica decodes previews. The memory plan includes the memory that the
 * preview decoder needs on the first rank. */
#ifndef XD_PIPELINE_PREVIEW_DECODER_H
#define XD_PIPELINE_PREVIEW_DECODER_H

#include "pipeline/job.h"

/* Sets *weights to the bytes of the preview decoder's weights, and *bytes to the bytes of scratch
 * memory for decoding. Sets *weights and *bytes to 0 if the request needs no preview decoder on
 * this rank. */
xd_status xd_preview_count(xd_job *j, size_t *weights, size_t *bytes, xd_err *e);
/* If the request needs the preview decoder on this rank, loads it. xd_preview_load exchanges no
 * messages. */
xd_status xd_preview_load(xd_job *j, xd_err *e);
/* Decodes one frame of predicted final latents [C,h,w] to malloc'ed pixels [size.rows,size.cols,3].
 * Returns NULL if there is no preview decoder, decoding failed, or the request was cancelled. */
float    *xd_preview_decode(const xd_job *j, const float *lat, xd_grid *size);

#endif
