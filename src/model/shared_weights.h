/* shared_weights.h - the block of shared memory that ranks of a host pack a component's weights into */
#ifndef XD_MODEL_SHARED_WEIGHTS_H
#define XD_MODEL_SHARED_WEIGHTS_H

#include "model/component.h"

/* Gives a component's store the block that it shares with its group; leaves it as it is (and says so)
 * when there is none to be had. `s` is how this rank fared so far. Collective over the group; all
 * return the failure of the first that has one. */
xd_status xd_shared_weights_open(xd_component *p, xd_status s, xd_err *e);
/* How loading went: when this returns XD_OK the group have packed their parts. Collective. */
xd_status xd_shared_weights_agree(const xd_component *p, xd_status mine, xd_err *e);
/* Bytes of a component's weights that this rank need not have because its group do, together: the sum
 * over ranks is what one copy per host saves. */
double    xd_shared_weights_saved(const xd_component *p);

#endif
