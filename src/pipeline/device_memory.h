/* device_memory.h - memory of a device with its own memory, and the ranks that share the device */
#ifndef XD_PIPELINE_DEVICE_MEMORY_H
#define XD_PIPELINE_DEVICE_MEMORY_H

#include "pipeline/context.h"

typedef struct xd_device_room {         /* summed over the ranks of this device                   */
    double need, have;          /* bytes; have: free bytes plus those of loaded weights         */
    double kernels;             /* part of `need` for libraries and kernels                     */
    int    ranks;
} xd_device_room;

/* need: bytes of this rank; held: the part that its loaded weights already use. Collective over the
 * ranks of the host. */
xd_status xd_device_room_find(const xd_context *ctx, double need, double held, xd_device_room *out,
                              xd_err *e);

#endif
