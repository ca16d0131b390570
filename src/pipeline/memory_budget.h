/* memory_budget.h - memory that a program allows its engines (xd_open_args.memory)
 *
 * The budget is for all ranks of a host together: of the host's memory, or of the memory of a
 * device where that is not the host's. Weights, activations and kernels count. Engines of a process
 * have it together. */
#ifndef XD_PIPELINE_MEMORY_BUDGET_H
#define XD_PIPELINE_MEMORY_BUDGET_H

#include "pipeline/context.h"

/* XD_EINVAL: no number of bytes that a budget may have. */
xd_status xd_budget_check(int64_t bytes, xd_err *e);
/* Of `have` free bytes of the host those that the budget allows beside `held` ones. */
double xd_budget_left(const xd_context *ctx, double have, double held);
/* The smaller one of `have` and the budget. */
double xd_budget_least(const xd_context *ctx, double have);
/* The limit in a sentence: "memory and 3 GB are available", or "a budget of 3 GB (--memory)" where
 * that is the limit. tight: it is; who: whose memory. */
void   xd_budget_text(const xd_context *ctx, int tight, const char *who, double have, char *out,
                      size_t size);

/* The engine of this context holds so many bytes of weights from now on; 0: it is closed. */
void   xd_budget_hold(xd_context *ctx, double bytes);
/* Bytes that the other engines of this process hold. */
double xd_budget_elsewhere(const xd_context *ctx);

#endif
