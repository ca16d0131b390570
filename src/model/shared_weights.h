/* shared_weights.h - the shared-memory block into which ranks of a host pack a
 * component's weights */
#ifndef XD_MODEL_SHARED_WEIGHTS_H
#define XD_MODEL_SHARED_WEIGHTS_H

#include "model/component.h"

/* Gives a component's store the shared-memory block of its group. If there is none, logs it and
 * leaves the store as it is. `s` is this rank's status so far. Collective over the group; all
 * return the failure of the first failing rank. */
xd_status xd_shared_weights_open(xd_component *p, xd_status s, xd_err *e);
/* Agrees on the outcome of loading. XD_OK: the whole group has packed its parts. Collective. */
xd_status xd_shared_weights_agree(const xd_component *p, xd_status mine, xd_err *e);
/* Bytes of a component's weights that this rank need not hold because its group shares them: the
 * sum over ranks is what one copy per host saves. */
double    xd_shared_weights_saved(const xd_component *p);

#endif
