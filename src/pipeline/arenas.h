/* arenas.h - opens the scratch memory (arena) of a request, in device memory or in memory that all
 * ranks of a host share. */
#ifndef XD_PIPELINE_ARENAS_H
#define XD_PIPELINE_ARENAS_H

#include "pipeline/context.h"

/* Opens an arena in the memory of a device; on a count device, which computes nothing, the arena
 * has no limit. */
xd_status xd_device_arena_open(xd_arena *a, xd_dev *dev, size_t bytes, xd_err *e);
void      xd_device_arena_close(xd_arena *a, xd_dev *dev);

/* Opens the arena of a request. If ranks of one host exchange tokens, heads or sums, the arena is a
 * shared-memory window, if the system supports this. `s` is this rank's status so far. Returns the
 * first failure of any rank. Collective over the ranks in use. */
xd_status xd_request_arena_open(xd_context *ctx, xd_arena *a, size_t bytes, xd_status s, xd_err *e);
void      xd_request_arena_close(xd_context *ctx, xd_arena *a);

/* Starts reading a component's files into the page cache before the component is loaded, as far as
 * the host has memory that the request does not need (model/component_prefetch.c). */
void      xd_prefetch_component(xd_context *ctx, xd_component *p);

#endif
