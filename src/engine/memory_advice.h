/* memory_advice.h - what a refused request could be instead */
#ifndef XD_ENGINE_MEMORY_ADVICE_H
#define XD_ENGINE_MEMORY_ADVICE_H

#include "pipeline/memory_plan.h"

/* Appends to a refusal (XD_ENOMEM) which other options fit, found by counting on rank 0. Collective over the
 * ranks in use, which all have refused. */
void xd_memory_advice(const xd_job *j, const xd_room *limit, xd_err *e);

#endif
