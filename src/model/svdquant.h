/* svdquant.h - decodes the linear layers of SVDQuant files for nunchaku to plain matrices
 *
 * A source that wraps the file's own: a layer MODULE.qweight becomes MODULE.weight, quantized with
 * one code per element, and MODULE.bias. "A+B.weight" has the columns of A followed by those of B.
 * Other names stay as in the file. */
#ifndef XD_MODEL_SVDQUANT_H
#define XD_MODEL_SVDQUANT_H

#include "exec/weight.h"
#include "io/safetensors.h"

typedef struct xd_svdquant xd_svdquant;

/* Returns 1 if tensor i of the files has the codes of such a layer. */
int       xd_svdquant_takes(const xd_st *files, int64_t i);
/* Finds the layers. *s is NULL if there are none. files, raw and what are borrowed; raw: the source
 * with the names of the files. Refuses layers of another format, or tensors that do not fit. */
xd_status xd_svdquant_open(xd_svdquant **s, const xd_st *files, const xd_source *raw,
                           const char *what, xd_err *e);
void      xd_svdquant_close(xd_svdquant **s);
xd_source xd_svdquant_source(xd_svdquant *s);
/* Returns 1 if tensor i of the files belongs to a layer. s may be NULL. */
int       xd_svdquant_owns(const xd_svdquant *s, int64_t i);

#endif
