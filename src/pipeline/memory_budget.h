/* memory_budget.h - limit on the memory of a program's engines (xd_open_args.memory)
 *
 * The budget covers all ranks of a host together: host memory, or the memory of a device with its
 * own memory. Weights, activations and kernels count. All engines of a process share the budget. */
#ifndef XD_PIPELINE_MEMORY_BUDGET_H
#define XD_PIPELINE_MEMORY_BUDGET_H

#include "pipeline/context.h"

/* XD_EINVAL if `bytes` is not a valid budget. */
xd_status xd_budget_check(int64_t bytes, xd_err *e);
/* Returns how many of `have` free bytes of the host the budget allows in addition to `held`. */
double xd_budget_left(const xd_context *ctx, double have, double held);
/* Returns the smaller of `have` and the budget. */
double xd_budget_least(const xd_context *ctx, double have);
/* Writes the limit as part of a sentence: "memory and 3 GB are available" or, if the budget is the
 * limit (tight), "a budget of 3 GB (--memory)". who: owner of the memory. */
void   xd_budget_text(const xd_context *ctx, int tight, const char *who, double have, char *out,
                      size_t size);

/* Records that the engine of this context now holds `bytes` of weights; 0: the engine is closed. */
void   xd_budget_hold(xd_context *ctx, double bytes);
/* Returns the bytes that other engines of this process hold. */
double xd_budget_elsewhere(const xd_context *ctx);

#endif
