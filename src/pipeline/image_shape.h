/* image_shape.h - default size of a request from its image */
#ifndef XD_PIPELINE_IMAGE_SHAPE_H
#define XD_PIPELINE_IMAGE_SHAPE_H

#include "pipeline/job.h"

/* Sets the sides that the request leaves open, if it has an image whose size can be read. Models
 * that read references, and image-to-video models, have a rule in the recipe (sized_by). Otherwise
 * the image's size is used, rounded down to complete tokens, and scaled down if it has more pixels
 * than the model's default size. With positions for one size only, or with padding_mask_crop, the
 * model's default size is used. */
void xd_image_shape_take(const xd_context *ctx, xd_request *r);

#endif
