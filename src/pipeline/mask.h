/* mask.h - reads the inpainting mask of a request, which selects the pixels that are generated. */
#ifndef XD_PIPELINE_MASK_H
#define XD_PIPELINE_MASK_H

#include "pipeline/job.h"

/* Refuses an inpainting mask that the request or its model does not support. */
xd_status xd_mask_check(const xd_job *j, xd_err *e);
/* Reads the mask on rank 0 and resizes it to the size of the generated image. Does nothing if the
 * request has no mask. The argument *rgb is the input image before resizing, with *w x *h pixels.
 * With padding_mask_crop, *rgb is replaced by the rectangle of the image that is generated. */
xd_status xd_mask_read(xd_job *j, uint8_t **rgb, int64_t *w, int64_t *h, xd_err *e);
/* Sends the mask from rank 0 to all ranks. All ranks must call xd_mask_share. */
xd_status xd_mask_share(xd_job *j, xd_err *e);
/* Writes the mask in the shape [C,h,w] of the latents. An element is 1 if the mask covers the top
 * left one of the pixels that the element represents, else 0. */
void      xd_mask_latents(const xd_job *j, float *out);
/* With padding_mask_crop, pastes the generated pixels into the original image and replaces *pixels
 * by the result. Call xd_mask_paste on rank 0. */
xd_status xd_mask_paste(const xd_job *j, uint8_t **pixels, xd_err *e);

#endif
