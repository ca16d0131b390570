/* memory_budget.h - observes the memory budget, a limit on the memory of a program's engines
 * (xd_open_args.memory).
 *
 * All ranks of a host share the memory budget. The memory budget limits host memory or, for a
 * device with its own memory, the device's memory. The memory budget includes weights, activations
 * and kernels. All engines of a process share one budget. */
#ifndef XD_PIPELINE_MEMORY_BUDGET_H
#define XD_PIPELINE_MEMORY_BUDGET_H

#include "pipeline/context.h"

/* Returns XD_EINVAL if `bytes` is not a valid memory budget. */
xd_status xd_budget_check(int64_t bytes, xd_err *e);
/* Returns how many of the `have` free bytes of the host a request may use without exceeding the
 * memory budget. `held` is the number of bytes of the budget that loaded weights already use. */
double    xd_budget_left(const xd_context *ctx, double have, double held);
/* Returns the smaller of `have` and the memory budget, in bytes. */
double    xd_budget_least(const xd_context *ctx, double have);
/* Writes a text for error messages that names the memory limit of a request. If `tight` is 1, the
 * limit is the memory budget, and the text is "a budget of 3 GB (--memory)". If `tight` is 0, the
 * limit is free memory, and the text is `who` followed by "memory and 3 GB are available". */
void      xd_budget_text(const xd_context *ctx, int tight, const char *who, double have, char *out,
                         size_t size);

/* Records that the engine of this context now has `bytes` of loaded weights; an engine that is
 * being closed passes 0. */
void   xd_budget_hold(xd_context *ctx, double bytes);
/* Returns the bytes of weights that other engines of this process hold. */
double xd_budget_elsewhere(const xd_context *ctx);

#endif
