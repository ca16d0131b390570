/* dtypes.h - chooses the compute type of an engine and the types of its components' weights. */
#ifndef XD_PIPELINE_DTYPES_H
#define XD_PIPELINE_DTYPES_H

#include "pipeline/context.h"
#include "xdit/xdit.h"

/* Set an engine's compute type, and the element type of the weight matrices in its transformer
 * blocks, from the arguments with which the program opens the engine. The weight files must be open
 * when xd_types_weights is called. */
xd_status xd_types_compute(xd_context *ctx, const xd_open_args *a, xd_err *e);
xd_status xd_types_weights(xd_context *ctx, const xd_open_args *a, xd_err *e);
/* Choose the compute type for a device, and the weight type of one component, from the arguments
 * `dtype` and `weights_dtype`. The functions xd_types_of_device and xd_types_component need no
 * xd_context. */
xd_status xd_types_of_device(xd_dev *dev, const xd_open_args *a, xd_dtype *type, xd_err *e);
xd_status xd_types_component(xd_component *p, const xd_dev *dev, const xd_open_args *a, xd_err *e);
/* Returns the name of a component's weight type: "bf16", "int8", "fp8", "int4". */
const char *xd_types_name(const xd_component *p, xd_dtype compute);
/* Returns 1 if the argument text_weights_dtype applies to this text encoder. */
int         xd_types_quantizes(const xd_component *text);
/* Returns 1 if the files of the component have weight matrices of type fp8. */
int         xd_types_stores_fp8(const xd_component *p);

#endif
