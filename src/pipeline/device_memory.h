/* device_memory.h - compares the memory of a device, such as a GPU, with the need of the ranks that
 * share the device. */
#ifndef XD_PIPELINE_DEVICE_MEMORY_H
#define XD_PIPELINE_DEVICE_MEMORY_H

#include "pipeline/context.h"

typedef struct xd_device_room {         /* memory of one device, summed over the ranks that share
                                           it */
    double need, have;          /* bytes; have: free bytes plus bytes of loaded weights         */
    double kernels;             /* bytes of `need` that are for libraries and kernels           */
    int    ranks;
} xd_device_room;

/* Sums the memory need of all ranks that share this rank's device. need: bytes that this rank
 * needs; held: the part of `need` that loaded weights already use. Collective over the ranks of the
 * host. */
xd_status xd_device_room_find(const xd_context *ctx, double need, double held, xd_device_room *out,
                              xd_err *e);

#endif
