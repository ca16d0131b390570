/* memory_advice.h - finds and applies options that make a request fit into memory. */
#ifndef XD_ENGINE_MEMORY_ADVICE_H
#define XD_ENGINE_MEMORY_ADVICE_H

#include "pipeline/memory_plan.h"

/* After xd_memory_plan has returned XD_ENOMEM: applies the first change that fits and that
 * xd_open_args.fit allows, and plans again. XD_ENOMEM with advice if there is none: other options
 * that fit into memory. The call is collective over the ranks in use, all of which have the
 * error. */
xd_status xd_memory_fit(xd_job *j, const xd_prompts *w, xd_need *need, xd_memory_limits *limit,
                        xd_err *e);
/* Parses xd_open_args.fit: the changes that an engine may make to save memory. */
xd_status xd_memory_fit_read(const xd_open_args *a, int *fit, xd_err *e);

#endif
