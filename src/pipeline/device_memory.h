/* device_memory.h - the memory of a device that is not the host's, and the ranks that share it */
#ifndef XD_PIPELINE_DEVICE_MEMORY_H
#define XD_PIPELINE_DEVICE_MEMORY_H

#include "pipeline/context.h"

typedef struct xd_device_room {         /* bytes of the ranks of this host that have my device    */
    double need, have;          /* of all of them; have: free, or taken by their weights        */
    double kernels;             /* of need: what libraries and kernels will take                */
    int    ranks;
} xd_device_room;

/* need, held: this rank's bytes, and those of them that its weights have already. Collective over
 * the ranks of the host. */
xd_status xd_device_room_find(const xd_context *ctx, double need, double held, xd_device_room *out,
                              xd_err *e);

#endif
