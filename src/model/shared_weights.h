/* shared_weights.h - shared memory for a component's weights, so that the ranks of a host need only
 * one copy. With GPUs, only the host copy of streamed blocks is shared. */
#ifndef XD_MODEL_SHARED_WEIGHTS_H
#define XD_MODEL_SHARED_WEIGHTS_H

#include "model/component.h"

/* Opens the share group's block of shared memory for the component's weights; with GPUs, opens and
 * pins the host copy group.copy. If shared memory is not available, the function logs this, and
 * every rank keeps its own weights. s: this rank's status so far. The call is collective over the
 * group; all ranks return the error of the first failing rank. */
xd_status xd_shared_weights_open(xd_component *p, xd_dev *dev, xd_status s, xd_err *e);
/* Closes the share group and frees its memory, which no queued work may use any more. The call is
 * collective over the group. */
void      xd_shared_weights_close(xd_component *p);
/* Combines the status of loading of all ranks of the share group. XD_OK: all ranks have packed
 * their parts of the weights. The call is collective. */
xd_status xd_shared_weights_agree(const xd_component *p, xd_status mine, xd_err *e);
/* Returns the bytes of weights that this rank saves because its group shares one copy. Returns 0
 * for host copies of streamed blocks. */
double    xd_shared_weights_saved_bytes(const xd_component *p);

#endif
