/* compare_runs.h - measures how approximations change the images, for xdit generate --compare */
#ifndef XDIT_CLI_COMPARE_RUNS_H
#define XDIT_CLI_COMPARE_RUNS_H

#include "xdit/tools.h"

/* Checks whether --compare makes sense. XD_EINVAL: the request has no approximation (cache,
 * attention, ...) whose effect could be measured. */
xd_status xd_compare_check(const xd_request *r, xd_err *e);
/* Generates the request again without its approximations, and writes no files. Rank 0 prints, in a
 * line per image or in a JSON object, the difference between the new images and those of `saved`,
 * the result with approximations. name(cookie, i) returns the file name of image i. Collective. */
xd_status xd_compare_runs(xd_engine *g, const xd_request *r, const xd_result *saved, int json,
                          const char *(*name)(void *cookie, int i), void *cookie, xd_err *e);

#endif
