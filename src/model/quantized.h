/* quantized.h - weights that a file stores in codes of a quantizer, with scales beside them
 *
 * The formats are those of ComfyUI (`_quantization_metadata` in the header, or a tensor
 * MODULE.comfy_quant with JSON beside each weight) and of bitsandbytes (NAME.quant_state.*). The
 * tensors of a format have the shape of their decoded elements here. */
#ifndef XD_MODEL_QUANTIZED_H
#define XD_MODEL_QUANTIZED_H

#include "exec/weight.h"
#include "io/safetensors.h"

typedef struct xd_quantized xd_quantized;

/* Looks at all tensors of the files (borrowed, named `what`). *q is NULL where none is quantized. A
 * tensor that cannot be read is an error of xd_quantized_check only. */
xd_status xd_quantized_open(xd_quantized **q, xd_st *files, const char *what, xd_err *e);
void      xd_quantized_close(xd_quantized **q);
/* Refuses the first tensor whose name begins with `prefix` and whose format is unknown, or whose
 * scales are missing or do not fit. q may be NULL. */
xd_status xd_quantized_check(const xd_quantized *q, const char *prefix, xd_err *e);

/* The type and shape of tensor i of the files: of its decoded elements, where it is quantized. */
xd_tensor xd_quantized_shape(const xd_quantized *q, const xd_st *files, int64_t i);
/* xd_st_get, _done; q may be NULL. */
xd_status xd_quantized_get(const xd_quantized *q, xd_st *files, int64_t i, xd_tensor *t,
                           xd_err *e);
void      xd_quantized_done(const xd_quantized *q, xd_st *files, int64_t i);
/* `codes` of xd_source. */
int       xd_quantized_codes(const xd_quantized *q, int64_t i, xd_coding *c);
/* Is this a tensor that only describes others: a scale, a format? */
int       xd_quantized_is_note(const char *name);

#endif
