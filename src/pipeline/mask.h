/* mask.h - the mask of a request: which part of its image is inpainted, and which is kept */
#ifndef XD_PIPELINE_MASK_H
#define XD_PIPELINE_MASK_H

#include "pipeline/job.h"

/* Refuses masks that the request or its model cannot have. */
xd_status xd_mask_check(const xd_job *j, xd_err *e);
/* Reads the mask on rank 0 and resizes it to the size that is generated; no mask: does nothing.
 * *rgb: the image, of *w x *h pixels, as it was read. With padding_mask_crop it is replaced by the
 * part of it that is generated. */
xd_status xd_mask_read(xd_job *j, uint8_t **rgb, int64_t *w, int64_t *h, xd_err *e);
/* Gives the mask of rank 0 to all ranks. Collective. */
xd_status xd_mask_share(xd_job *j, xd_err *e);
/* Makes what the mask shows grey (0) in the image [H,W,3]. */
void      xd_mask_grey(const xd_job *j, float *image);
/* The mask as channels of its cells' pixels [cell h * cell w,h,w]; without one: zeros. */
void      xd_mask_channels(const xd_job *j, float *out);
/* For each of the latents [C,h,w]: 1 where the mask shows the first pixel of its cell, else 0. */
void      xd_mask_latents(const xd_job *j, float *out);
/* Lays the image over generated pixels as padding_mask_crop says; *pixels is replaced. Rank 0. */
xd_status xd_mask_paste(const xd_job *j, uint8_t **pixels, xd_err *e);
void      xd_mask_close(xd_job *j);

#endif
