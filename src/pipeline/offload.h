/* offload.h - selects the blocks to stream so that a request fits into a device's own memory */
#ifndef XD_PIPELINE_OFFLOAD_H
#define XD_PIPELINE_OFFLOAD_H

#include "pipeline/memory_plan.h"

typedef struct xd_offload_parts {       /* networks with blocks                                   */
    xd_block_sizes dit, dit2, text[XD_MAXTEXT]; /* 0: absent, or not on this rank               */
    xd_stream_plan plan_dit, plan_dit2, plan_text[XD_MAXTEXT];  /* the result                    */
} xd_offload_parts;

/* Copies the counted sizes of this rank's networks. */
void xd_offload_sizes(const xd_context *ctx, int text, xd_offload_parts *p);
/* Plans which blocks are streamed so that the need is at most `have` bytes, by ctx->offload of the
 * job, and updates *n. If that is impossible, *n is the minimum need. */
void xd_offload_fit(xd_offload_parts *p, xd_need *n, const xd_job *j, int ranks, double have);
/* Adds pinned host memory: `bytes` are this rank's part of the copy of the transformer's streamed
 * blocks. */
void xd_offload_pin(xd_need *n, const xd_job *j, int ranks, size_t bytes);
/* Returns how often a rank runs the transformer's blocks in a step with this many passes; exact: a
 * step without stale data. */
int  xd_offload_runs(const xd_job *j, int passes, int exact);

xd_status xd_offload_read(const char *text, xd_offload *out, xd_err *e);      /* "auto", NULL ... */

#endif
