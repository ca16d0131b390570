/* memory_advice.h - finds and applies options that make a request fit into memory. */
#ifndef XD_ENGINE_MEMORY_ADVICE_H
#define XD_ENGINE_MEMORY_ADVICE_H

#include "pipeline/memory_plan.h"

/* Call xd_memory_fit after xd_memory_plan has returned XD_ENOMEM. xd_memory_fit tries the changes
 * of options that xd_open_args.fit allows. The first allowed change with which the request fits
 * into memory is applied, and the memory is planned again. If no allowed change makes the request
 * fit, returns XD_ENOMEM, and the error lists other options with which the request would fit. The
 * call is collective over the ranks in use, which all get the same status. */
xd_status xd_memory_fit(xd_job *j, const xd_prompts *w, xd_need *need, xd_memory_limits *limit,
                        xd_err *e);
/* Reads xd_open_args.fit, the text that lists which changes an engine may make to save memory. */
xd_status xd_memory_fit_read(const xd_open_args *a, int *fit, xd_err *e);

#endif
