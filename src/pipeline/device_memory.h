/* device_memory.h - compares the memory of a device, such as a GPU, with the need of the ranks that
 * share the device. */
#ifndef XD_PIPELINE_DEVICE_MEMORY_H
#define XD_PIPELINE_DEVICE_MEMORY_H

#include "pipeline/context.h"

/* Memory need of all ranks that share a device, and the memory of the device. */
typedef struct xd_device_room {
    double need, have; /* bytes that the ranks need; bytes that are free or hold loaded weights */
    double kernels;             /* the part of `need` that libraries and kernels use, in bytes  */
    int    ranks;
} xd_device_room;

/* Sums the memory need of all ranks that share this rank's device. `need` is the bytes that this
 * rank needs, of which loaded weights already use `held` bytes. Collective over the ranks of the
 * host. */
xd_status xd_device_room_find(const xd_context *ctx, double need, double held, xd_device_room *out,
                              xd_err *e);

#endif
