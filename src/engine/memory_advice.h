/* memory_advice.h - advice for a request that needs too much memory */
#ifndef XD_ENGINE_MEMORY_ADVICE_H
#define XD_ENGINE_MEMORY_ADVICE_H

#include "pipeline/memory_plan.h"

/* Appends to a refusal (XD_ENOMEM) other options that fit, found by counting on rank 0. Collective
 * over the ranks in use, which all have refused. */
void xd_memory_advice(const xd_job *j, const xd_memory_limits *limit, xd_err *e);

#endif
