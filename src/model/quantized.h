/* quantized.h - reads quantized weights from files in which one tensor contains the codes of a
 * weight and other tensors contain its scales.
 *
 * quantized.h supports the formats of ComfyUI (`_quantization_metadata` in the header, or a tensor
 * MODULE.comfy_quant with JSON for each weight) and of bitsandbytes (NAME.quant_state.*). All
 * functions of quantized.h return the shapes that tensors have after decoding. */
#ifndef XD_MODEL_QUANTIZED_H
#define XD_MODEL_QUANTIZED_H

#include "exec/weight.h"
#include "io/safetensors.h"

typedef struct xd_quantized xd_quantized;

/* Finds the quantized tensors in weight files. The files are borrowed; `what` is their name in
 * error messages. Sets *q to NULL if no tensor is quantized. If a tensor cannot be decoded, only
 * xd_quantized_check returns an error. */
xd_status xd_quantized_open(xd_quantized **q, xd_st *files, const char *what, xd_err *e);
void      xd_quantized_close(xd_quantized **q);
/* Checks all quantized tensors whose names begin with `prefix`. Refuses the first tensor whose
 * format is unknown, or whose scales are missing or have a wrong shape. q may be NULL. */
xd_status xd_quantized_check(const xd_quantized *q, const char *prefix, xd_err *e);

/* Returns the element type and shape of tensor i of the files. If the tensor is quantized, its type
 * is the type of the codes, and its shape is the shape of the decoded elements. */
xd_tensor xd_quantized_shape(const xd_quantized *q, const xd_st *files, int64_t i);
/* xd_quantized_get returns the data of tensor i, and xd_quantized_done releases the data, as
 * xd_st_get and xd_st_done do. If the tensor is quantized, the returned data are its codes. q may
 * be NULL. */
xd_status xd_quantized_get(const xd_quantized *q, xd_st *files, int64_t i, xd_tensor *t, xd_err *e);
void      xd_quantized_done(const xd_quantized *q, xd_st *files, int64_t i);
/* Implements xd_source.codes. */
int       xd_quantized_codes(const xd_quantized *q, int64_t i, xd_coding *c);
/* Returns 1 for the name of a tensor that only describes another tensor, for example by its scales
 * or its format. */
int       xd_quantized_is_note(const char *name);

#endif
