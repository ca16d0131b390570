/* stored.h - packs rows of weight matrices that stay in the memory-mapped files instead of being
 * packed when loaded.
 *
 * For each GEMM with such a matrix, one group of rows after another is gathered from the mapped
 * files, packed for the device, and multiplied. Results equal those of a packed matrix, bit for
 * bit. The only copy of such weights is in the page cache, which all processes of a host share. */
#ifndef XD_EXEC_STORED_H
#define XD_EXEC_STORED_H

#include "exec/weight.h"

/* Packs rows [row, row + w->out) of a stored matrix to w, whose fields p and bytes are set. copy
 * and tmp: scratch memory of l->copy and of xd_stored_tmp bytes. */
xd_status xd_stored_pack(xd_stored *s, xd_weight *w, int64_t row, void *copy, void *tmp);
/* Returns the number of scratch bytes `tmp` for packing w. */
size_t    xd_stored_tmp(xd_dev *dev, const xd_weight *w);

#endif
