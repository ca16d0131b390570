/* svdquant.h - decodes the linear layers of SVDQuant files for nunchaku to plain matrices.
 *
 * To decode layers, a weight source wraps the file's own weight source. A layer with the tensor
 * MODULE.qweight in the file becomes MODULE.weight, which is quantized with one code per element,
 * and MODULE.bias. A tensor named "A+B.weight" contains the columns of A followed by the columns of
 * B. Tensors of layers without SVDQuant keep their names. */
#ifndef XD_MODEL_SVDQUANT_H
#define XD_MODEL_SVDQUANT_H

#include "exec/weight.h"
#include "io/safetensors.h"

typedef struct xd_svdquant xd_svdquant;

/* Returns 1 if tensor i of the files contains the codes of an SVDQuant layer. */
int       xd_svdquant_takes(const xd_st *files, int64_t i);
/* Finds the SVDQuant layers in weight files. Sets *s to NULL if the files have no SVDQuant layers.
 * Refuses SVDQuant layers of an unknown format, and tensors of wrong shape. raw: the weight source
 * of the files, with the names in the files; what: the name of the files in errors. files, raw and
 * what are borrowed. */
xd_status xd_svdquant_open(xd_svdquant **s, const xd_st *files, const xd_source *raw,
                           const char *what, xd_err *e);
void      xd_svdquant_close(xd_svdquant **s);
xd_source xd_svdquant_source(xd_svdquant *s);
/* Returns 1 if tensor i of the files belongs to an SVDQuant layer. s may be NULL. */
int       xd_svdquant_owns(const xd_svdquant *s, int64_t i);

#endif
