/* stored.h - packs rows of weight matrices that stay in the memory-mapped files and are not packed
 * when loaded.
 *
 * A GEMM processes a matrix that stays in its file in groups of rows, one after the other: a group
 * is gathered from the mapped files, packed for the device, and multiplied. GEMMs with stored
 * matrices give bit-identical results to GEMMs with packed matrices. The only copy of a stored
 * matrix is in the page cache, which all processes of a host share. */
#ifndef XD_EXEC_STORED_H
#define XD_EXEC_STORED_H

#include "exec/weight.h"

/* Packs rows [row, row + w->out) of a stored matrix to w. The caller must have set w->p and
 * w->bytes. `copy` is scratch memory of xd_lin.copy bytes, and `tmp` is scratch memory of
 * xd_stored_tmp bytes. */
xd_status xd_stored_pack(xd_stored *s, xd_weight *w, int64_t row, void *copy, void *tmp);
/* Returns the bytes of scratch memory `tmp` for packing w. */
size_t    xd_stored_tmp(xd_dev *dev, const xd_weight *w);

#endif
