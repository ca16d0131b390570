/* arenas.h - memory of a request: on a device, or mapped by the other ranks of the host */
#ifndef XD_PIPELINE_ARENAS_H
#define XD_PIPELINE_ARENAS_H

#include "pipeline/context.h"

/* An arena in memory of a device; on a count device it has no limit. */
xd_status xd_device_arena_open(xd_arena *a, xd_dev *dev, size_t bytes, xd_err *e);
void      xd_device_arena_close(xd_arena *a, xd_dev *dev);

/* The arena of a request. Where ranks of one host exchange tokens, heads or sums, it is a
 * shared-memory window, if the system provides one. `s` is this rank's status so far; a failure is
 * returned. Collective over the ranks in use. */
xd_status xd_request_arena_open(xd_context *ctx, xd_arena *a, size_t bytes, xd_status s, xd_err *e);
void      xd_request_arena_close(xd_context *ctx, xd_arena *a);

/* Starts the readahead of a component's files before its load, into memory that the request leaves
 * free (model/component_prefetch.c). */
void      xd_prefetch_component(xd_context *ctx, xd_component *p);

#endif
