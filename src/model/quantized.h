/* quantized.h - quantized weights in files: codes in one tensor, scales in others
 *
 * The formats are those of ComfyUI (`_quantization_metadata` in the header, or a tensor
 * MODULE.comfy_quant with JSON for each weight) and of bitsandbytes (NAME.quant_state.*). All
 * functions return the shape of the decoded elements. */
#ifndef XD_MODEL_QUANTIZED_H
#define XD_MODEL_QUANTIZED_H

#include "exec/weight.h"
#include "io/safetensors.h"

typedef struct xd_quantized xd_quantized;

/* Finds the quantized tensors of the files (borrowed, named `what` in errors). *q is NULL if there
 * are none. A tensor that cannot be decoded is an error only in xd_quantized_check. */
xd_status xd_quantized_open(xd_quantized **q, xd_st *files, const char *what, xd_err *e);
void      xd_quantized_close(xd_quantized **q);
/* Refuses the first tensor whose name begins with `prefix` and whose format is unknown, or whose
 * scales are missing or do not fit. q may be NULL. */
xd_status xd_quantized_check(const xd_quantized *q, const char *prefix, xd_err *e);

/* Returns type and shape of tensor i of the files, those of its decoded elements if it is
 * quantized. */
xd_tensor xd_quantized_shape(const xd_quantized *q, const xd_st *files, int64_t i);
/* As xd_st_get and xd_st_done; q may be NULL. */
xd_status xd_quantized_get(const xd_quantized *q, xd_st *files, int64_t i, xd_tensor *t,
                           xd_err *e);
void      xd_quantized_done(const xd_quantized *q, xd_st *files, int64_t i);
/* Implements xd_source.codes. */
int       xd_quantized_codes(const xd_quantized *q, int64_t i, xd_coding *c);
/* Returns 1 for a tensor that only describes another one: a scale, a format. */
int       xd_quantized_is_note(const char *name);

#endif
