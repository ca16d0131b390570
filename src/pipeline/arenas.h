/* arenas.h - opens the scratch memory (arena) of a request, in device memory or in memory that all
 * ranks of a host share. */
#ifndef XD_PIPELINE_ARENAS_H
#define XD_PIPELINE_ARENAS_H

#include "pipeline/context.h"

/* Opens an arena of `bytes` in the memory of a device. On a count device, which only counts memory
 * and work, the arena has no limit. */
xd_status xd_device_arena_open(xd_arena *a, xd_dev *dev, size_t bytes, xd_err *e);
void      xd_device_arena_close(xd_arena *a, xd_dev *dev);

/* Opens the arena (scratch memory) of a request. If ranks of one host compute in host memory with
 * sequence or tensor parallelism, the arena is in memory that these ranks share, provided that the
 * system supports such memory. `s` is this rank's status so far. Returns an error on every rank if
 * any rank has failed. The call is collective over the ranks in use. */
xd_status xd_request_arena_open(xd_context *ctx, xd_arena *a, size_t bytes, xd_status s, xd_err *e);
void      xd_request_arena_close(xd_context *ctx, xd_arena *a);

/* Allocates host memory for pixels or latents with malloc. If the device only counts memory and
 * computes nothing, xd_host_buffer allocates one byte, because nothing reads the buffer. */
void *xd_host_buffer(const xd_context *ctx, size_t bytes);

/* Starts reading a component's files into the page cache before the component is loaded, as long as
 * the host has memory that the request does not need (model/component_prefetch.c). */
void xd_prefetch_component(xd_context *ctx, xd_component *p);

#endif
