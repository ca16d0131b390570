/* attn_table.h - the fast_attn option of a request: shared attentions (parallel/fast_attn.h) */
#ifndef XD_PIPELINE_ATTN_TABLE_H
#define XD_PIPELINE_ATTN_TABLE_H

#include "base/json.h"
#include "parallel/fast_attn.h"

struct xd_job;

/* Fills j->ways from the request's fast_attn: a comma-separated list of ways that the steps after
 * the first one cycle through, a file "*.json" in xDiT's form, or "measure:LIMIT" to search for a
 * table. Call after the window, the steps and the cache are set. XD_EINVAL: invalid value, or not
 * supported with this plan or these options. */
xd_status xd_fast_attn_of_job(struct xd_job *j, xd_err *e);
void      xd_fast_attn_close(struct xd_job *j);
int       xd_fast_attn_is_on(const struct xd_job *j);
/* Appends the table that "measure:LIMIT" found, in the form of xDiT's files. */
void      xd_fast_attn_add_found(const struct xd_job *j, xd_text_buf *b);

#endif
