/* encoder_images.h - the images of a request as its encoder of images reads them */
#ifndef XD_PIPELINE_ENCODER_IMAGES_H
#define XD_PIPELINE_ENCODER_IMAGES_H

#include "pipeline/job.h"

/* The number of images that the model's encoder of images reads; 0: it has none. */
int       xd_encoder_images_read(const xd_job *j);
/* Image i, of w x h pixels of 3 bytes, goes into j->encoder_pixels, if an encoder reads it. On
 * rank 0. */
xd_status xd_encoder_images_prepare(xd_job *j, int i, const uint8_t *rgb, int64_t w, int64_t h,
                                    xd_err *e);
int64_t   xd_encoder_images_hash(const xd_job *j);
/* Memory for them (black where there is none: a benchmark), then the pixels of rank 0, on the ranks
 * of c, which share the encoder (NULL: there is one). The second is collective over these. */
xd_status xd_encoder_images_open(xd_job *j, xd_err *e);
xd_status xd_encoder_images_share(xd_job *j, xd_comm *c, xd_err *e);
void      xd_encoder_images_close(xd_job *j);

#endif
