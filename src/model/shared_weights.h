/* shared_weights.h - allocates shared memory for a component's weights, so that all ranks of a host
 * need only one copy. With GPUs, ranks share only the copy in host memory of blocks that are copied
 * to the GPU when they are computed. */
#ifndef XD_MODEL_SHARED_WEIGHTS_H
#define XD_MODEL_SHARED_WEIGHTS_H

#include "model/component.h"

/* Opens the share group's region of shared memory for the component's weights; with GPUs, opens and
 * pins group.copy, the copy of streamed blocks in host memory. If shared memory is not available,
 * logs a message, and every rank gets its own copy of the weights. xd_shared_weights_open is
 * collective over the group; if a rank fails, all ranks return its error. */
xd_status xd_shared_weights_open(xd_component *p, xd_dev *dev, xd_status s, xd_err *e);
/* Closes the share group and frees its memory; no queued device work may use this memory any more.
 * xd_shared_weights_close is collective over the group. */
void      xd_shared_weights_close(xd_component *p);
/* After the weights are loaded, exchanges the status of all ranks of the share group. Returns XD_OK
 * if all ranks have loaded their shares of the weights. All ranks of the group must call
 * xd_shared_weights_agree. */
xd_status xd_shared_weights_agree(const xd_component *p, xd_status mine, xd_err *e);
/* Returns how many bytes this rank saves because the ranks of its share group use one copy of the
 * weights. Returns 0 if the group shares only the copy of streamed blocks in host memory. */
double    xd_shared_weights_saved_bytes(const xd_component *p);

#endif
