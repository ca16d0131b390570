/* image_shape.h - computes the default size of a request from the size of its input image. */
#ifndef XD_PIPELINE_IMAGE_SHAPE_H
#define XD_PIPELINE_IMAGE_SHAPE_H

#include "pipeline/job.h"

/* Replaces a width or height of 0 in a request, if the request has an input image whose size can be
 * read. The size comes from the control video if the model reads control videos, else from the
 * image, else from the control image. If the model reads reference images or makes videos from
 * images, its recipe has a rule for the default size (xd_recipe.sized_by). For models without a
 * rule (xd_recipe.sized_by), the default size is the image's size, scaled down if it has more
 * pixels than the model's default size, and rounded down to complete tokens. The model's default
 * size is used if the model has positions for one size only, or if the request uses
 * padding_mask_crop. */
void xd_image_shape_take(const xd_context *ctx, xd_request *r);

#endif
