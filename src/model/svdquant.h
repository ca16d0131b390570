/* svdquant.h - linear layers in SVDQuant's files for nunchaku, as matrices of plain numbers
 *
 * A source in front of the file's own: of a layer MODULE.qweight it has MODULE.weight, in codes of
 * one number an element, and MODULE.bias. "A+B.weight" has the columns of A and behind them those
 * of B. Other names are those of the file. */
#ifndef XD_MODEL_SVDQUANT_H
#define XD_MODEL_SVDQUANT_H

#include "exec/weight.h"
#include "io/safetensors.h"

typedef struct xd_svdquant xd_svdquant;

/* Is tensor i of the files the codes of such a layer? */
int       xd_svdquant_takes(const xd_st *files, int64_t i);
/* Finds the layers. *s is NULL where there are none. All but s is borrowed; raw: the source with
 * the names of the files. Refuses layers of another form, or tensors that do not fit. */
xd_status xd_svdquant_open(xd_svdquant **s, const xd_st *files, const xd_source *raw,
                           const char *what, xd_err *e);
void      xd_svdquant_close(xd_svdquant **s);
xd_source xd_svdquant_source(xd_svdquant *s);
/* Does tensor i of the files belong to a layer? s may be NULL. */
int       xd_svdquant_owns(const xd_svdquant *s, int64_t i);

#endif
