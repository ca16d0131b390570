/* attn_table.h - reads a request's fast_attn option, which tells in which blocks and steps
 * attention is computed in full, computed in a window, or reused (DiTFastAttn,
 * parallel/fast_attn.h). */
#ifndef XD_PIPELINE_ATTN_TABLE_H
#define XD_PIPELINE_ATTN_TABLE_H

#include "base/json.h"
#include "parallel/fast_attn.h"

struct xd_job;

/* Fills the table j->ways, which tells how each block computes attention in each step, from the
 * request's fast_attn option. The option's value has one of three forms: a comma-separated list of
 * ways to compute attention (xd_attn_way), the path of a "*.json" file in xDiT's format, or
 * "measure:LIMIT", with which the program searches for a table itself. A comma-separated list that
 * is shorter than the number of steps is repeated; it begins with the second step. Call
 * xd_fast_attn_of_job after the request's attention window, steps and step cache are set. Returns
 * XD_EINVAL if the value of fast_attn is invalid, or if the plan or another option excludes it. */
xd_status xd_fast_attn_of_job(struct xd_job *j, xd_err *e);
void      xd_fast_attn_close(struct xd_job *j);
int       xd_fast_attn_is_on(const struct xd_job *j);
/* Appends to `b` the attention table that fast_attn=measure:LIMIT found, as JSON in the format of
 * xDiT's files. */
void      xd_fast_attn_add_found(const struct xd_job *j, xd_text_buf *b);

#endif
