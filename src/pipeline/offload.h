/* offload.h - selects the blocks whose weights are streamed from host memory so that a request fits
 * into the device's own memory. */
#ifndef XD_PIPELINE_OFFLOAD_H
#define XD_PIPELINE_OFFLOAD_H

#include "pipeline/memory_plan.h"

typedef struct xd_offload_parts {       /* block sizes and streamed blocks of networks            */
    /* Sizes of the blocks of each network. The sizes are 0 if the network is absent, or not on this
     * rank. */
    xd_block_sizes dit, dit2, text[XD_MAXTEXT];
    /* The streamed blocks, set by xd_offload_fit. */
    xd_stream_plan plan_dit, plan_dit2, plan_text[XD_MAXTEXT];
} xd_offload_parts;

/* Copies the counted block sizes of this rank's networks to p. */
void xd_offload_sizes(const xd_context *ctx, int text, xd_offload_parts *p);
/* Plans which blocks are streamed, following the offload setting (ctx->offload), so that this rank
 * needs at most `have` bytes of device memory. Updates the memory need *n. If the need cannot be
 * reduced to `have` bytes, *n is the minimum need. */
void xd_offload_fit(xd_offload_parts *p, xd_need *n, const xd_job *j, int ranks, double have);
/* Adds pinned host memory to the memory need *n. `bytes` is the size of this rank's part of the
 * host copy of the transformer's streamed blocks. */
void xd_offload_pin(xd_need *n, const xd_job *j, int ranks, size_t bytes);
/* Returns how many times a rank runs the transformer's blocks in a step of `passes` passes. `exact`
 * is 1 for a step without stale data. */
int  xd_offload_runs(const xd_job *j, int passes, int exact);

/* Reads the offload setting from its text: "auto", "none" or "stream". */
xd_status xd_offload_read(const char *text, xd_offload *out, xd_err *e);

#endif
