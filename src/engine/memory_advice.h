/* memory_advice.h - advice for a request that needs too much memory */
#ifndef XD_ENGINE_MEMORY_ADVICE_H
#define XD_ENGINE_MEMORY_ADVICE_H

#include "pipeline/memory_plan.h"

/* Appends to a refusal (XD_ENOMEM) other options that fit, found by counting on rank 0. Collective
 * over the ranks in use, which all have refused. */
void xd_memory_advice(const xd_job *j, const xd_memory_limits *limit, xd_err *e);
/* After a refusal by xd_memory_plan: takes the first advice that the engine may take by itself
 * (xd_open_args.fit) and plans again; else XD_ENOMEM with advice. Collective as above. */
xd_status xd_memory_fit(xd_job *j, const xd_prompts *w, xd_need *need, xd_memory_limits *limit,
                        xd_err *e);
/* What `fit` of these arguments allows an engine to change. */
xd_status xd_memory_fit_read(const xd_open_args *a, int *fit, xd_err *e);

#endif
