/* offload.h - which blocks are streamed, so that a request fits into a device's own memory */
#ifndef XD_PIPELINE_OFFLOAD_H
#define XD_PIPELINE_OFFLOAD_H

#include "pipeline/memory_plan.h"

typedef struct xd_offload_parts {       /* the networks that have blocks                          */
    xd_block_sizes dit, dit2, text[XD_MAXTEXT]; /* all 0: absent, or not on this rank           */
    xd_stream_plan plan_dit, plan_dit2, plan_text[XD_MAXTEXT];  /* the result                    */
} xd_offload_parts;

/* The sizes of this rank's networks, as counted. */
void xd_offload_sizes(const xd_context *ctx, int text, xd_offload_parts *p);
/* Plans what is streamed so that the need is at most `have` bytes, as the job's context wants it,
 * and sets the need to what it then is. Where even that is too much, the need is the least. */
void xd_offload_fit(xd_offload_parts *p, xd_need *n, const xd_job *j, int ranks, double have);
/* Counts pinned memory of the host: `bytes` are this rank's share of the copy of the transformer's
 * streamed blocks. */
void xd_offload_pin(xd_need *n, const xd_job *j, int ranks, size_t bytes);
/* How often a rank runs the transformer's blocks in a step of so many passes; exact: one that uses
 * nothing stale. */
int  xd_offload_runs(const xd_job *j, int passes, int exact);

xd_status xd_offload_read(const char *text, xd_offload *out, xd_err *e);      /* "auto", NULL ... */

#endif
