/* offload.h - selects the blocks that are streamed (copied from host memory each time they are
 * used), so that a request fits into the device's own memory. */
#ifndef XD_PIPELINE_OFFLOAD_H
#define XD_PIPELINE_OFFLOAD_H

#include "pipeline/memory_plan.h"

typedef struct xd_offload_parts { /* sizes of transformer blocks, and which blocks are streamed */
    /* Sizes in bytes of the blocks of each network; 0 if this rank does not compute the network. */
    xd_block_sizes dit, dit2, text[XD_MAXTEXT];
    /* The blocks of each network that are streamed, as xd_offload_fit has selected them. */
    xd_stream_plan plan_dit, plan_dit2, plan_text[XD_MAXTEXT];
} xd_offload_parts;

/* Copies the counted sizes of the blocks of this rank's networks to `p`. `text` is 1 if this rank
 * computes text encoders. */
void xd_offload_sizes(const xd_context *ctx, int text, xd_offload_parts *p);
/* Selects the streamed blocks according to the offload setting (ctx->offload), so that this rank
 * needs at most `have` bytes of device memory. Sets *n to the memory need with the selected blocks
 * streamed. If even the lowest possible need exceeds `have`, sets *n to that need. */
void xd_offload_fit(xd_offload_parts *p, xd_need *n, const xd_job *j, int ranks, double have);
/* Stores which blocks are streamed, as *p tells, in the components whose weights are not loaded
 * yet. */
void xd_offload_set(xd_context *ctx, const xd_offload_parts *p);
/* Adds the pinned host memory of streamed blocks to the memory need *n. The ranks of a host share
 * one copy of the transformer's streamed blocks; `bytes` is the share of the copy that is counted
 * for this rank. */
void xd_offload_pin(xd_need *n, const xd_job *j, int ranks, size_t bytes);
/* Returns how many times a rank runs the transformer's blocks in a step that evaluates the
 * transformer `passes` times. `exact` is 1 for a step that uses no values of earlier steps. */
int  xd_offload_runs(const xd_job *j, int passes, int exact);

/* Reads the offload setting from its text: "auto", "none" or "stream". */
xd_status xd_offload_read(const char *text, xd_offload *out, xd_err *e);

#endif
