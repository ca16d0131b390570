/* encoder_images.h - prepares the images of a request as inputs of the model's image encoder, or of
 * a text encoder whose prompt template includes the request's image. */
#ifndef XD_PIPELINE_ENCODER_IMAGES_H
#define XD_PIPELINE_ENCODER_IMAGES_H

#include "pipeline/job.h"

/* Returns 1 if the model has an encoder number k, and if this encoder reads j->encoder_pixels. */
int       xd_encoder_reads_pixels(const xd_job *j, int k);
/* Returns the number of the request's initial images that the encoder reads, or 0 if the model has
 * no such encoder. If the negative prompt also needs an image (xd_text_use.image_every),
 * j->encoder_pixels ends with a black image. */
int       xd_encoder_images_read(const xd_job *j);
/* Returns 1 if the image encoder reads images that are resized to the size of the result. */
int       xd_encoder_images_resized(const xd_job *j);
/* Preprocesses image i (w x h pixels of 3 bytes) into j->encoder_pixels if an image encoder reads
 * it. Call xd_encoder_images_prepare on rank 0. */
xd_status xd_encoder_images_prepare(xd_job *j, int i, const uint8_t *rgb, int64_t w, int64_t h,
                                    xd_err *e);
/* Preprocesses the request's image number i into j->encoder_pixels, if the model has an encoder
 * that reads images. */
xd_status xd_encoder_images_take(xd_job *j, int i, const uint8_t *rgb, int64_t w, int64_t h,
                                 xd_err *e);
int64_t   xd_encoder_images_hash(const xd_job *j);
/* xd_encoder_images_open allocates j->encoder_pixels; in a benchmark without an image, these pixels
 * are black. xd_encoder_images_share sends the pixels from rank 0 to the other ranks of c, which
 * compute the image encoder together. If c is NULL, one rank computes the image encoder alone. All
 * ranks of c must call xd_encoder_images_share. */
xd_status xd_encoder_images_open(xd_job *j, xd_err *e);
xd_status xd_encoder_images_share(xd_job *j, xd_comm *c, xd_err *e);

#endif
