/* stored.h - matrices that stay as stored in their files
 *
 * Such a matrix is not packed when it is loaded. For each GEMM, one group of its rows after another
 * is gathered from the mapped files, packed for the device, and multiplied. Results equal those of
 * a packed matrix, bit for bit. The page cache then has the only copy of the weights, which all
 * processes of a host share. */
#ifndef XD_EXEC_STORED_H
#define XD_EXEC_STORED_H

#include "exec/weight.h"

/* Packs rows [row, row + w->out) as w, whose p and bytes are set. copy: l->copy bytes; tmp:
 * xd_stored_tmp bytes. */
xd_status xd_stored_pack(xd_stored *s, xd_weight *w, int64_t row, void *copy, void *tmp);
/* Returns the scratch bytes for packing w. */
size_t    xd_stored_tmp(xd_dev *dev, const xd_weight *w);

#endif
