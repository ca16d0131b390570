/* image_shape.h - computes the default size of a request from the size of its input image. */
#ifndef XD_PIPELINE_IMAGE_SHAPE_H
#define XD_PIPELINE_IMAGE_SHAPE_H

#include "pipeline/job.h"

/* Sets the width and height that are 0 in a request, if the request has an input image whose size
 * can be read. For models that read reference images, and for image-to-video models, the recipe has
 * a rule (sized_by). For other models the image's size is used, rounded down to complete tokens,
 * and scaled down if it has more pixels than the model's default size. If the model has positions
 * for one size only, or with padding_mask_crop, the model's default size is used. */
void xd_image_shape_take(const xd_context *ctx, xd_request *r);

#endif
