/* device_memory.h - computes how much memory the ranks that share a device, such as a GPU, need
 * together, and how much the device has. */
#ifndef XD_PIPELINE_DEVICE_MEMORY_H
#define XD_PIPELINE_DEVICE_MEMORY_H

#include "pipeline/context.h"

/* Memory that all ranks of one device need together, and memory that the device has. */
typedef struct xd_device_room {
    /* `need` is the number of bytes that the ranks need together. `have` is the sum of the device's
     * free bytes and the bytes of loaded weights. */
    double need, have;
    double kernels; /* bytes of the device's libraries and kernels, which `need` includes */
    int    ranks;
} xd_device_room;

/* Adds up the memory needs of all ranks that share this rank's device. `need` is the number of
 * bytes that this rank needs, including `held` bytes of loaded weights. All ranks of the host must
 * make the call together. */
xd_status xd_device_room_find(const xd_context *ctx, double need, double held, xd_device_room *out,
                              xd_err *e);

#endif
