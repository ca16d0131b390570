/* dtypes.h - what is computed in, and what weights are kept in */
#ifndef XD_PIPELINE_DTYPES_H
#define XD_PIPELINE_DTYPES_H

#include "pipeline/context.h"
#include "xdit/xdit.h"

/* From the flags: what is computed in, and (with the files open) what matrices of blocks are kept in. */
xd_status   xd_types_compute(xd_context *ctx, const xd_open_args *a, xd_err *e);
xd_status   xd_types_weights(xd_context *ctx, const xd_open_args *a, xd_err *e);
/* That of a component: "bf16", "int8", "fp8". */
const char *xd_types_name(const xd_component *p, xd_dtype compute);
/* Does text_weights_dtype say anything of this text encoder? */
int         xd_types_quantizes(const xd_component *text);
int         xd_types_stores_fp8(const xd_component *p);      /* do its files hold matrices in fp8?    */

#endif
