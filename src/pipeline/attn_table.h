/* attn_table.h - what a request says of attentions that are shared (parallel/fast_attn.h) */
#ifndef XD_PIPELINE_ATTN_TABLE_H
#define XD_PIPELINE_ATTN_TABLE_H

#include "base/json.h"
#include "parallel/fast_attn.h"

struct xd_job;

/* Fills j->ways from the request's fast_attn: names of ways with commas between them, which the
 * steps behind the first one take in turn, a file "*.json" in the form of xDiT's, or
 * "measure:LIMIT" to find a table. After the window, the steps and the cache are known. XD_EINVAL:
 * it is wrong, or not for this plan or these options. */
xd_status xd_fast_attn_of_job(struct xd_job *j, xd_err *e);
void      xd_fast_attn_close(struct xd_job *j);
int       xd_fast_attn_is_on(const struct xd_job *j);
/* Appends the table that was found, in the form of xDiT's files. */
void      xd_fast_attn_add_found(const struct xd_job *j, xd_text_buf *b);

#endif
