/* mask.h - mask of a request: the part of its image that is inpainted */
#ifndef XD_PIPELINE_MASK_H
#define XD_PIPELINE_MASK_H

#include "pipeline/job.h"

/* Refuses masks that the request or its model does not support. */
xd_status xd_mask_check(const xd_job *j, xd_err *e);
/* Reads the mask on rank 0 and resizes it to the generated size; does nothing without a mask. *rgb:
 * the image of *w x *h pixels as read; with padding_mask_crop it is replaced by the generated part
 * of it. */
xd_status xd_mask_read(xd_job *j, uint8_t **rgb, int64_t *w, int64_t *h, xd_err *e);
/* Sends the mask of rank 0 to all ranks. Collective. */
xd_status xd_mask_share(xd_job *j, xd_err *e);
/* Sets the pixels of image [H,W,3] under the mask to grey (0). */
void      xd_mask_grey(const xd_job *j, float *image);
/* Writes the mask as channels of its cells' pixels [cell h * cell w,h,w]; without a mask: zeros. */
void      xd_mask_channels(const xd_job *j, float *out);
/* Writes, for each latent [C,h,w], 1 if the mask covers the first pixel of its cell, else 0. */
void      xd_mask_latents(const xd_job *j, float *out);
/* Pastes generated pixels into the original image (padding_mask_crop); replaces *pixels. On rank
 * 0. */
xd_status xd_mask_paste(const xd_job *j, uint8_t **pixels, xd_err *e);
void      xd_mask_close(xd_job *j);

#endif
