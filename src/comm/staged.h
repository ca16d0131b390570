/* staged.h - messages of tensors that lie in memory of a device which the host does not reach
 *
 * A communicator in front of another one: what is sent is first copied to host memory, what is received goes to the
 * device when it is waited for. Tensors in host memory pass as they are. Views of any strides are packed by the
 * device's copy kernel. There are no shared windows: views are exchanged by copies. */
#ifndef XD_COMM_STAGED_H
#define XD_COMM_STAGED_H

#include "backend/backend.h"
#include "comm/comm.h"

/* Puts a staging communicator in front of *c, which it owns from then on; nothing where the host reaches the
 * memory of `dev` (borrowed). Groups that are split from it are staged as well. Local. */
xd_status xd_comm_stage(xd_comm **c, xd_dev *dev, xd_err *e);

#endif
