/* stored.h - matrices that stay as their files store them
 *
 * Such a matrix is not packed when it is loaded. Whenever it is multiplied, a group of its rows is
 * gathered from the mapped files, packed for the device, multiplied, and then the next group. The
 * numbers are those of a packed matrix, bit for bit. Files in the page cache then are the only copy
 * of the weights, which all processes of a host share. */
#ifndef XD_EXEC_STORED_H
#define XD_EXEC_STORED_H

#include "exec/weight.h"

/* Packs rows [row, row + w->out) as w, of which p and bytes are set. copy: l->copy bytes; tmp:
 * xd_stored_tmp bytes. */
xd_status xd_stored_pack(xd_stored *s, xd_weight *w, int64_t row, void *copy, void *tmp);
/* Bytes that packing w takes. */
size_t    xd_stored_tmp(xd_dev *dev, const xd_weight *w);

#endif
