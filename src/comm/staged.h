/* staged.h - messages of tensors in device memory that the host cannot address
 *
 * A communicator in front of another one. Data to send is first copied to host memory, behind the
 * work that the device has been given; received data goes to the device in wait, and the work that
 * follows runs behind it. A device with lanes (backend/lanes.h) goes on meanwhile: the host waits
 * for the data of a message when it waits for the message, and for nothing else. Tensors in host
 * memory pass unchanged. The device's copy kernel packs views of any strides. There are no
 * shared-memory windows: views are exchanged by copies. */
#ifndef XD_COMM_STAGED_H
#define XD_COMM_STAGED_H

#include "backend/backend.h"
#include "comm/comm.h"

/* Puts a staging communicator in front of *c and takes *c. Does nothing if the host can address the
 * memory of `dev` (borrowed). Groups that are split from it are staged as well. Not collective. */
xd_status xd_comm_stage(xd_comm **c, xd_dev *dev, xd_err *e);

#endif
