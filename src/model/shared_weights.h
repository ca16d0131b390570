/* shared_weights.h - the shared-memory block into which ranks of a host pack a component's weights:
 * all of them, or on devices with memories of their own the copy of streamed blocks */
#ifndef XD_MODEL_SHARED_WEIGHTS_H
#define XD_MODEL_SHARED_WEIGHTS_H

#include "model/component.h"

/* Gives a component's store the shared-memory block of its group, or opens and pins group.copy. If
 * there is no such memory, logs it: every rank then keeps its own. `s` is this rank's status so
 * far. Collective over the group; all return the failure of the first failing rank. */
xd_status xd_shared_weights_open(xd_component *p, xd_dev *dev, xd_status s, xd_err *e);
/* Ends the group and frees its memory, which no work uses any more. Collective over the group. */
void      xd_shared_weights_close(xd_component *p);
/* Agrees on the outcome of loading. XD_OK: the whole group has packed its parts. Collective. */
xd_status xd_shared_weights_agree(const xd_component *p, xd_status mine, xd_err *e);
/* Bytes of a component's weights that this rank need not hold because its group shares them: the
 * sum over ranks is what one copy per host saves. 0 for copies of streamed blocks. */
double    xd_shared_weights_saved(const xd_component *p);

#endif
