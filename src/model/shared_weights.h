/* shared_weights.h - shared memory for a component's weights on one host: one copy for all ranks.
 * On GPUs, only the host copy of streamed blocks is shared. */
#ifndef XD_MODEL_SHARED_WEIGHTS_H
#define XD_MODEL_SHARED_WEIGHTS_H

#include "model/component.h"

/* Opens the shared-memory block of the group for the component's store, or opens and pins
 * group.copy. If shared memory is not available, logs it, and every rank keeps its own weights. `s`
 * is this rank's status so far. Collective over the group; all return the error of the first
 * failing rank. */
xd_status xd_shared_weights_open(xd_component *p, xd_dev *dev, xd_status s, xd_err *e);
/* Closes the group and frees its memory; no work may use it any more. Collective over the group. */
void      xd_shared_weights_close(xd_component *p);
/* Agrees on the result of loading. XD_OK: all ranks of the group have packed their parts.
 * Collective. */
xd_status xd_shared_weights_agree(const xd_component *p, xd_status mine, xd_err *e);
/* Returns the bytes of weights that this rank saves because its group shares one copy. 0 for host
 * copies of streamed blocks. */
double    xd_shared_weights_saved_bytes(const xd_component *p);

#endif
