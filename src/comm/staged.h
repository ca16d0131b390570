/* staged.h - makes a communicator for tensors in device memory that the host cannot address.
 *
 * A staging communicator wraps another communicator. Before a message is sent, its data is copied
 * to host memory, after the work that is already queued on the device has ended. `wait` copies
 * received data to the device, before work that is queued later. If the device has lanes (copy
 * streams, backend/lanes.h), the device continues to compute during copies to and from the host.
 * The host waits for the data of a message only when it waits for the message itself. Tensors in
 * host memory are passed to the wrapped communicator unchanged. The device's copy kernel packs
 * views of any strides. A staging communicator has no shared-memory windows, so exchange_views
 * makes copies. */
#ifndef XD_COMM_STAGED_H
#define XD_COMM_STAGED_H

#include "backend/backend.h"
#include "comm/comm.h"

/* Replaces *c with a staging communicator, which wraps and owns the previous communicator *c.
 * xd_comm_stage does nothing if the host can address the memory of `dev` (borrowed). Groups that
 * are split from a staging communicator are staging communicators too. xd_comm_stage exchanges no
 * messages. */
xd_status xd_comm_stage(xd_comm **c, xd_dev *dev, xd_err *e);

#endif
