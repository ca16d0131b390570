/* arenas.h - memory of a request: on a device, and mapped by the other ranks of the host */
#ifndef XD_PIPELINE_ARENAS_H
#define XD_PIPELINE_ARENAS_H

#include "pipeline/context.h"

/* An arena on memory of a device; for a count device it is endless. */
xd_status xd_device_arena_open(xd_arena *a, xd_dev *dev, size_t bytes, xd_err *e);
void      xd_device_arena_close(xd_arena *a, xd_dev *dev);

/* The arena of a request: where ranks of one host exchange tokens, heads or sums, in memory that they window_open each other, if there
 * is such. `s` is how this rank fared so far, which it returns then. Collective over the ranks in use. */
xd_status xd_request_arena_open(xd_context *ctx, xd_arena *a, size_t bytes, xd_status s, xd_err *e);
void      xd_request_arena_close(xd_context *ctx, xd_arena *a);

/* Reads the files of a part ahead of its load, into memory that the request leaves (part_ahead.c). */
void      xd_prefetch_component(xd_context *ctx, xd_component *p);

#endif
