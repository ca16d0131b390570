/* image_shape.h - a request without a size takes the shape of its image */
#ifndef XD_PIPELINE_IMAGE_SHAPE_H
#define XD_PIPELINE_IMAGE_SHAPE_H

#include "pipeline/job.h"

/* Sets the sides that the request does not ask for, if it has an image whose size can be read. Of
 * models that read references, and of those that make videos of an image, the recipe has the rule
 * (sized_by). Otherwise the image keeps its size, rounded down to whole tokens; one of more pixels
 * than the model's own size is reduced to these. Of a model with positions for one size only, and
 * of a part that is cut out (padding_mask_crop), the size is the model's. */
void xd_image_shape_take(const xd_context *ctx, xd_request *r);

#endif
